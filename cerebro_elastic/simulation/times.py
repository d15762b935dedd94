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
from cerebro_elastic.scheduling.openshop.checks import LARGEST, number

OTHERS = "*"
"""In a table: all configs or nodes that it does not name."""
PROFILE = 0.1
"""The seconds of a profile, as a share of those of the unit that it tries."""
EVALUATION = 1 / 3
"""The seconds of an evaluation, as a share of those of training, which also goes back, at twice the cost."""


@dataclass(frozen=True, slots=True)
class UnitCosts:
    """The seconds that a unit takes."""

    dispatch: float
    """From when its node and its config are free to its begin."""
    hop: float
    """To load and save its config's state."""
    training: float
    """In the task."""
    saving: float = 0.0
    """Of a save behind the node's next unit."""
    data: float = 0.0
    """Of those in the task: waiting for batches, which are there if its host has made them before."""


@dataclass(frozen=True, slots=True)
class MeasuredUnit:
    """The seconds of a unit of a recorded run."""

    node: str
    """Where it was trained."""
    strategy: Strategy
    costs: UnitCosts


@dataclass(frozen=True, slots=True)
class Times:
    """The seconds of units on one rank. Several ranks share the training evenly.

    A unit in ``units`` takes what it took there, on another node in proportion to the nodes' factors. Any
    other unit takes the seconds of its pair, else those of its config times its node's factor. Raises
    ``ScheduleError`` for values that are no seconds, or no factors.
    """

    usual: float = 10.0
    """Of a config that is not in ``configs``."""
    configs: Mapping[str, float] = field(default_factory=dict)
    """By config: on the usual node."""
    nodes: Mapping[str, float] = field(default_factory=dict)
    """By node: the factor on a config's seconds, 2 for a node that is half as fast; 1 where it is left
    out."""
    pairs: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """By config and node."""
    validation: Mapping[str, float] = field(default_factory=dict)
    """By config: what the unit that ends an epoch takes more."""
    hop: float = 0.0
    """As in ``UnitCosts``."""
    fetch: float = 0.0
    """To get a partition that the node's host never had."""
    dispatch: float = 0.0
    """As in ``UnitCosts``."""
    startup: Mapping[str, float] = field(default_factory=dict)
    """By node: from when it is given its first unit to that unit's begin, in which it imports."""
    units: Mapping[Unit, MeasuredUnit] = field(default_factory=dict)
    """By unit: what it took in a recorded run."""
    saving: float = 0.0
    """As in ``UnitCosts``."""
    data: float = 0.0
    """The share (0 to 1) of a training unit's seconds that are ``UnitCosts.data``."""

    def __post_init__(self) -> None:
        for name in ("usual", "hop", "fetch", "dispatch", "saving"):
            number(getattr(self, name), name)
        for name in ("configs", "nodes", "pairs", "validation", "startup"):
            for key, value in getattr(self, name).items():
                number(value, f"{name}[{key!r}]")

    def costs(self, attempt: Attempt, *, ends_epoch: bool) -> UnitCosts:
        """The expected seconds of the attempt, without the fetch of its partition."""
        known = self.units.get(attempt.unit)
        if known is None or known.strategy != attempt.strategy:
            training = self.training(attempt, ends_epoch=ends_epoch)
            data = self.data * training if attempt.unit.phase is Phase.TRAIN else 0.0
            return UnitCosts(self.dispatch, self.hop, training, self.saving, data)
        relative = self.nodes.get(attempt.node, 1.0) / self.nodes.get(known.node, 1.0)
        return replace(known.costs, training=known.costs.training * relative)

    def training(self, attempt: Attempt, *, ends_epoch: bool) -> float:
        """The seconds that the attempt is expected to train. A gang is as fast as its slowest node."""
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
    """A factor on a unit's seconds: log-normal with mean 1.

    It is the same on every node and under every policy, so that two simulations with one seed can be
    compared.
    """
    key = f"{seed} {unit.config} {unit.epoch} {unit.partition} {unit.phase}"
    return math.exp(random.Random(key).gauss(0.0, spread) - spread**2 / 2)


def read_times(path: Path) -> Times:
    """Times from a JSON file: seconds by config, or by config and node.

    ``*`` stands for all others: ``{"c0000": 4, "c0001": {"node-0": 8, "node-1": 4}, "*": 6}``. Raises
    ``RecipeError``.
    """
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
class UnitSizes:
    """How large checkpoints and units are."""

    states: Mapping[str, int] = field(default_factory=dict)
    """By config: the bytes of its checkpoints."""
    usual: int = 0
    """The bytes of the checkpoints of a config that is not in ``states``."""
    batches: int = 100
    samples: int = 100

    def state(self, config: str) -> int:
        """The bytes of the config's checkpoints."""
        return self.states.get(config, self.usual)
