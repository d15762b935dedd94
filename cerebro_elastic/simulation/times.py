"""How long units take in a simulation: as given, or as in a recorded run."""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import takewhile
from math import fsum
from statistics import fmean, median, variance
from typing import TypeAlias

from cerebro_elastic.core.history.estimates import EVALUATION, KNOWN, add_fetch, fetch_seconds
from cerebro_elastic.core.history.view import RunView
from cerebro_elastic.core.model.attempts import Attempt, Visit
from cerebro_elastic.core.model.configs import Config
from cerebro_elastic.core.model.events import Event, NodeJoined, UnitAssigned
from cerebro_elastic.core.model.run import Plan
from cerebro_elastic.core.model.state import State
from cerebro_elastic.core.model.units import Phase, Strategy, Unit
from cerebro_elastic.errors import RunError
from cerebro_elastic.scheduling.openshop.checks import number

Pairs: TypeAlias = Mapping[tuple[str, str], Sequence[float]]
"""The seconds of units by (config, node)."""
StayOf: TypeAlias = Callable[[str, int], int]
"""The registration of a node's name, counted from 0, at a revision."""
PROFILE = 0.1
"""The seconds of a profile, as a share of those of its unit."""

_ROUNDS = 20
_PROMPT = 10
"""A node that waited this many times as long as usual did not wait for a decision."""


@dataclass(frozen=True, slots=True)
class UnitCosts:
    """The seconds of a unit."""

    dispatch: float
    """From the moment when its node and its config are free to its start."""
    hop: float
    """To load and save its config's state."""
    training: float
    """In the task."""
    saving: float = 0.0
    """The save, behind the node's next unit."""
    data: float = 0.0
    """Part of ``training``: waits for batches, which are saved if its host has made them before."""


@dataclass(frozen=True, slots=True)
class MeasuredUnit:
    """The seconds of a unit of a recorded run."""

    node: str
    strategy: Strategy
    costs: UnitCosts


@dataclass(frozen=True, slots=True)
class Times:
    """The seconds of units on one rank. Several ranks share the training evenly.

    A unit in ``units`` takes its seconds there, on another node in proportion to the nodes' factors. Any
    other unit takes the seconds of its pair, else those of its config times its node's factor. Raises
    ``ScheduleError`` for values that are not seconds or factors.
    """

    usual: float = 10.0
    """The seconds of a config that is not in ``configs``."""
    configs: Mapping[str, float] = field(default_factory=dict)
    """By config: on the usual node."""
    nodes: Mapping[str, float] = field(default_factory=dict)
    """By node: the factor on a config's seconds, 2 for a node that is half as fast; 1 by default."""
    pairs: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """By config and node."""
    validation: Mapping[str, float] = field(default_factory=dict)
    """By config: the additional seconds of the unit that ends an epoch."""
    evaluation: float = EVALUATION
    """The seconds of an evaluation, as a share of those of a training unit."""
    hop: float = 0.0
    """As in ``UnitCosts``."""
    fetch: float = 0.0
    """The seconds of a fetch of a partition that the node's host never had."""
    dispatch: float = 0.0
    """As in ``UnitCosts``."""
    startup: Mapping[str, float] = field(default_factory=dict)
    """By node: the seconds from its first unit's assignment to that unit's start, in which it imports."""
    units: Mapping[Unit, MeasuredUnit] = field(default_factory=dict)
    """By unit: its seconds in a recorded run."""
    saving: float = 0.0
    """As in ``UnitCosts``."""
    data: float = 0.0
    """The share (0 to 1) of a training unit's seconds that are ``UnitCosts.data``."""

    def __post_init__(self) -> None:
        for name in ("usual", "evaluation", "hop", "fetch", "dispatch", "saving"):
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
        """The expected training seconds of the attempt. A gang is as fast as its slowest node."""
        config, ranks = attempt.unit.config, attempt.strategy.ranks
        whole = max(self._whole(config, node) for node in attempt.nodes)
        match attempt.unit.phase:
            case Phase.EVALUATE:
                return self.evaluation * whole / ranks
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


def ends_epoch(config: Config, partitions: int) -> bool:
    """Whether the config's next training unit is its epoch's last."""
    return len(config.visited) + 1 == partitions


@dataclass(frozen=True, slots=True)
class UnitSizes:
    """The sizes of checkpoints and units."""

    states: Mapping[str, int] = field(default_factory=dict)
    """By config: the bytes of its checkpoints."""
    usual: int = 0
    """The bytes of the checkpoints of a config that is not in ``states``."""
    batches: int = 100
    samples: int = 100

    def state(self, config: str) -> int:
        """The bytes of the config's checkpoints."""
        return self.states.get(config, self.usual)


def measured(events: Sequence[Event], plan: Plan) -> Times:
    """The seconds of each unit of a recorded run.

    Units that were not trained take their config's seconds times their node's factor; if the config was
    trained there at least ``KNOWN`` times, its mean there.

    Raises:
        RunError: No whole unit was trained.
    """
    visits = RunView(events).trained
    trained = [v for v in visits if v.unit.phase is Phase.TRAIN and v.whole and not v.skip]
    if not trained:
        raise RunError("the run has no whole training unit, so nothing is known of its seconds")
    last = _last_of_epochs(visits) if not plan.evaluations and plan.partitions > 1 else set()
    stay_of = _stays(events)
    warm = _without_first(trained, stay_of)
    validation = _validation(warm, last)
    seconds = _seconds_of_pairs(warm, last, validation)
    configs, nodes = _factors(seconds)
    nodes = _likely(nodes, configs, seconds)
    waits, fetches = _waits(visits), reduce(add_fetch, visits, State().fetches)
    dispatch = fmean(waits.values()) if waits else 0.0
    return Times(
        usual=fmean(configs.values()),
        configs=configs,
        nodes=nodes,
        pairs={pair: fmean(values) for pair, values in seconds.items() if len(values) >= KNOWN},
        validation=validation,
        evaluation=_evaluation(visits, configs, nodes),
        hop=fmean(v.hop_seconds for v in trained),
        saving=fmean(v.save_seconds for v in trained),
        fetch=fetch_seconds(fetches) if fetches else 0.0,
        dispatch=dispatch,
        startup=_startup(events, visits, stay_of),
        units={
            v.unit: MeasuredUnit(
                v.node,
                v.strategy,
                UnitCosts(waits.get(v.attempt, dispatch), v.hop_seconds, v.seconds, v.save_seconds),
            )
            for v in visits
            if v.whole and not v.skip
        },
    )


def _stays(events: Sequence[Event]) -> StayOf:
    """A function for the registration of a node's name at a revision: a node may leave and return."""
    joined: dict[str, list[int]] = defaultdict(list)
    for event in events:
        if isinstance(event, NodeJoined):
            joined[event.node.name].append(event.revision)
    return lambda node, revision: bisect_right(joined[node], revision) - 1


def _without_first(trained: Sequence[Visit], stay_of: StayOf) -> list[Visit]:
    """The visits without the first one of each registration of a node, which is slow for passing reasons
    (imports, a cold cache), if other visits cover its config."""
    stays = {v.attempt: (v.node, stay_of(v.node, v.attempt)) for v in trained}
    first = {stays[v.attempt]: v.attempt for v in sorted(trained, key=lambda v: -v.started)}
    known = {v.unit.config for v in trained if first[stays[v.attempt]] != v.attempt}
    return [v for v in trained if first[stays[v.attempt]] != v.attempt or v.unit.config not in known]


def _last_of_epochs(visits: Sequence[Visit]) -> set[int]:
    """The attempts that ended an epoch: the last one of each complete epoch of a config."""
    latest: dict[tuple[str, int], int] = {}
    seen: dict[tuple[str, int], set[int]] = defaultdict(set)
    for visit in visits:
        epoch = visit.unit.config, visit.unit.epoch
        latest[epoch] = visit.attempt
        seen[epoch].add(visit.unit.partition)
    most = max(len(partitions) for partitions in seen.values())
    return {attempt for epoch, attempt in latest.items() if len(seen[epoch]) == most}


def _validation(trained: Sequence[Visit], last: set[int]) -> dict[str, float]:
    """By config: the additional seconds of the units that ended an epoch, compared with its other units.

    They are compared with the expectation from its other units for their node, since the last node is not a
    random one.
    """
    usual_units = [v for v in trained if v.attempt not in last]
    configs, nodes = _factors(_seconds_of_pairs(usual_units, set(), {}))
    more: dict[str, list[float]] = defaultdict(list)
    for visit in trained:
        config = visit.unit.config
        if visit.attempt in last and config in configs:
            usual = configs[config] * nodes.get(visit.node, 1.0)
            more[config].append(visit.seconds * visit.strategy.ranks - usual)
    return {config: max(0.0, fmean(seconds)) for config, seconds in more.items()}


def _evaluation(visits: Sequence[Visit], configs: Mapping[str, float], nodes: Mapping[str, float]) -> float:
    """The seconds of evaluations, as a share of those of their configs' training units."""
    known = [v for v in visits if v.unit.phase is Phase.EVALUATE and v.whole and v.unit.config in configs]
    training = sum(configs[v.unit.config] * nodes.get(v.node, 1.0) for v in known)
    return sum(v.seconds * v.strategy.ranks for v in known) / training if training else EVALUATION


def _seconds_of_pairs(trained: Sequence[Visit], last: set[int], validation: Mapping[str, float]) -> Pairs:
    seconds: dict[tuple[str, str], list[float]] = defaultdict(list)
    for visit in trained:
        config = visit.unit.config
        whole = visit.seconds * visit.strategy.ranks
        extra = validation.get(config, 0.0) if visit.attempt in last else 0.0
        seconds[config, visit.node].append(max(whole - extra, 0.1 * whole))
    return seconds


def _factors(pairs: Pairs) -> tuple[dict[str, float], dict[str, float]]:
    """By config the seconds on the usual node, and by node a factor, such that their products are nearest to
    the means of ``pairs`` (least squares of logarithms, each side fitted to the other in turn)."""
    means = {pair: fmean(values) for pair, values in pairs.items()}
    nodes = {node: 1.0 for _, node in pairs}
    configs: dict[str, float] = {}
    for _ in range(_ROUNDS):
        configs = _geometric_means((config, value / nodes[node]) for (config, node), value in means.items())
        nodes = _geometric_means((node, value / configs[config]) for (config, node), value in means.items())
    return configs, nodes


def _likely(nodes: Mapping[str, float], configs: Mapping[str, float], seconds: Pairs) -> dict[str, float]:
    """The factors of ``nodes``, without the part due to chance. Units vary, so factors from a few visits
    differ even for equal nodes, and a forecast would replace the seemingly slow ones. Each factor is shrunk
    towards the mean by the share of its variance that the variance of units explains (empirical Bayes, by the
    method of moments)."""
    if len(nodes) < 2:
        return dict(nodes)
    logs = {node: math.log(factor) for node, factor in nodes.items()}
    known: dict[str, list[float]] = defaultdict(list)
    for (config, node), values in seconds.items():
        known[node] += [math.log(max(each, 1e-9) / configs[config]) - logs[node] for each in values]
    number = sum(map(len, known.values()))
    spare = number - len(nodes) - len(configs) + 1
    squares = fsum(each**2 for values in known.values() for each in values)
    of_units = squares / spare if spare > 0 else math.inf
    by_chance = {node: of_units / len(values) for node, values in known.items()}
    mean, between = fmean(logs.values()), variance(logs.values()) - fmean(by_chance.values())
    shares = {node: between / (between + by_chance[node]) if between > 0 else 0.0 for node in nodes}
    return {node: math.exp(mean + shares[node] * (logs[node] - mean)) for node in nodes}


def _geometric_means(named: Iterable[tuple[str, float]]) -> dict[str, float]:
    logs: dict[str, list[float]] = defaultdict(list)
    for name, value in named:
        logs[name].append(math.log(max(value, 1e-9)))
    return {name: math.exp(fmean(values)) for name, values in logs.items()}


def _startup(events: Sequence[Event], visits: Sequence[Visit], stay_of: StayOf) -> dict[str, float]:
    """By node that joined before the first unit: the seconds between its start and the first node's. A node
    that left without a unit has no such time, although a node of its name may have joined later."""
    before = [*takewhile(lambda e: not isinstance(e, UnitAssigned), events)]
    stays = {name: stay_of(name, before[-1].revision) for name in RunView(before).state.nodes}
    began: dict[str, float] = {}
    for visit in visits:
        for name in visit.nodes:
            if stay_of(name, visit.attempt) == stays.get(name):
                began[name] = min(visit.started, began.get(name, visit.started))
    return {name: began[name] - min(v.started for v in visits) for name in stays if name in began}


def _waits(visits: Sequence[Visit]) -> dict[int, float]:
    """By attempt, the seconds between its start and the moment when its nodes and its config were free (if
    they had been busy before). A node that could continue waits only for the decision, so these are the
    seconds of deciding and reporting."""
    ended: dict[str, float] = {}
    waits: dict[int, float] = {}
    for visit in sorted(visits, key=lambda v: v.started):
        taking = (visit.unit.config, *visit.nodes)
        if all(name in ended for name in taking):
            waits[visit.attempt] = max(0.0, visit.started - max(ended[name] for name in taking))
        ended |= {**dict.fromkeys(visit.nodes, visit.freed), visit.unit.config: visit.ended}
    # A node that was away or without work did wait.
    longest = _PROMPT * median(waits.values()) if waits else 0.0
    return {attempt: wait for attempt, wait in waits.items() if wait <= longest}
