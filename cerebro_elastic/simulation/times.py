"""How long units take in a simulation."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from cerebro_elastic.core.model.attempts import Attempt
from cerebro_elastic.core.model.configs import Config
from cerebro_elastic.core.model.units import Phase, Strategy, Unit
from cerebro_elastic.errors import RecipeError
from cerebro_elastic.openshop.checks import LARGEST, number

OTHERS = "*"
"""In a table: the configs or nodes that are not named."""
PROFILE = 0.1
"""What a trial takes, as a share of the unit that it tries."""
EVALUATION = 1 / 3
"""What an evaluation takes, as a share of training: a step goes forward once, and back at twice the cost."""


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds of a unit: ``dispatch`` from when its node and config are free to its begin, ``hop`` to load
    and save its config's state, ``training`` in the task; ``saving`` those of a save behind the next unit."""

    dispatch: float
    hop: float
    training: float
    saving: float = 0.0


@dataclass(frozen=True, slots=True)
class Measured:
    """What a unit took on ``node``, trained by ``strategy``."""

    node: str
    strategy: Strategy
    costs: Costs


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds of units. One that is in ``units`` takes what it took there, on another node in proportion to
    the nodes' factors.

    Any other one takes what ``pairs`` says for its (config, node), else what ``configs`` says for
    its config (``usual`` for one that is not in it) times its node's factor in ``nodes`` (else 1); the one
    that ends an epoch takes ``validation`` seconds of its config more. Ranks share them evenly. ``hop``,
    ``dispatch`` and ``saving`` are as in ``Costs``. Besides, a partition that its host never had takes
    ``fetch`` seconds, and a node begins its first unit, with all that it imports, ``startup`` seconds after
    it was given it. Raises ``ScheduleError`` for what are no seconds, or no factor.
    """

    usual: float = 10.0
    configs: Mapping[str, float] = field(default_factory=dict)
    nodes: Mapping[str, float] = field(default_factory=dict)
    pairs: Mapping[tuple[str, str], float] = field(default_factory=dict)
    validation: Mapping[str, float] = field(default_factory=dict)
    hop: float = 0.0
    fetch: float = 0.0
    dispatch: float = 0.0
    startup: Mapping[str, float] = field(default_factory=dict)
    units: Mapping[Unit, Measured] = field(default_factory=dict)
    saving: float = 0.0

    def __post_init__(self) -> None:
        for name in ("usual", "hop", "fetch", "dispatch", "saving"):
            number(getattr(self, name), name)
        for name in ("configs", "nodes", "pairs", "validation", "startup"):
            for key, value in getattr(self, name).items():
                number(value, f"{name}[{key!r}]")

    def costs(self, attempt: Attempt, *, ends_epoch: bool) -> Costs:
        """Of an attempt, as they are to be expected, but for fetching its partition."""
        known = self.units.get(attempt.unit)
        if known is None or known.strategy != attempt.strategy:
            training = self.training(attempt, ends_epoch=ends_epoch)
            return Costs(self.dispatch, self.hop, training, self.saving)
        relative = self.nodes.get(attempt.node, 1.0) / self.nodes.get(known.node, 1.0)
        return replace(known.costs, training=known.costs.training * relative)

    def training(self, attempt: Attempt, *, ends_epoch: bool) -> float:
        """Seconds in the task, as they are to be expected. A gang is as fast as its slowest node."""
        config, ranks = attempt.unit.config, attempt.strategy.ranks
        whole = max(self._whole(config, node) for node in attempt.nodes)
        match attempt.unit.phase:
            case Phase.EVALUATE:
                return EVALUATION * whole / ranks
            case Phase.PROFILE:
                return PROFILE * whole / ranks
            case Phase.TRAIN:
                return (whole + (self.validation.get(config, 0.0) if ends_epoch else 0.0)) / ranks

    def _whole(self, config: str, node: str) -> float:
        if (config, node) in self.pairs:
            return self.pairs[config, node]
        return self.configs.get(config, self.usual) * self.nodes.get(node, 1.0)


def noise(seed: int, unit: Unit, spread: float) -> float:
    """A factor on a unit's seconds: log-normal with mean 1, the same on whichever node and under any policy,
    so that two simulations with one seed differ by what they are to be compared for."""
    told = f"{seed} {unit.config} {unit.epoch} {unit.partition} {unit.phase}"
    return math.exp(random.Random(told).gauss(0.0, spread) - spread**2 / 2)


def read_times(path: Path) -> Times:
    """Times from a JSON file: seconds by config, or by config and node, ``*`` standing for all others:
    ``{"c0000": 4, "c0001": {"node-0": 8, "node-1": 4}, "*": 6}``. Raises ``RecipeError``."""
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as exc:
        raise RecipeError(f"{path} cannot be read as JSON: {exc}") from exc
    if not isinstance(table, Mapping):
        raise RecipeError(f"{path} is no table: it shall be like {{'c0000': 4, '*': 6}}")
    configs: dict[str, float] = {}
    pairs: dict[tuple[str, str], float] = {}
    for config, entry in table.items():
        for node, seconds in (entry if isinstance(entry, Mapping) else {OTHERS: entry}).items():
            checked = _seconds(seconds, f"{path}, {config}, {node}")
            if node == OTHERS:
                configs[config] = checked
            else:
                pairs[config, node] = checked
    usual = configs.pop(OTHERS, None) or _mean([*configs.values(), *pairs.values()], path)
    return Times(usual=usual, configs=configs, pairs=pairs)


def _seconds(value: Any, where: str) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 < value <= LARGEST:
        raise RecipeError(f"{where}: {value!r} are no seconds; give a number above 0, at most {LARGEST:g}")
    return float(value)


def _mean(values: list[float], path: Path) -> float:
    if not values:
        raise RecipeError(f"{path} has no seconds: it shall be like {{'c0000': 4, '*': 6}}")
    return sum(values) / len(values)


def ends_epoch(config: Config, partitions: int) -> bool:
    """Whether the config's next training unit is its epoch's last."""
    return len(config.visited) + 1 == partitions


@dataclass(frozen=True, slots=True)
class Sizes:
    """A config's state has so many bytes at rest (``states``, ``usual`` for one that is not in it); a unit
    has so many ``batches`` and ``samples``."""

    states: Mapping[str, int] = field(default_factory=dict)
    usual: int = 0
    batches: int = 100
    samples: int = 100

    def state(self, config: str) -> int:
        return self.states.get(config, self.usual)
