"""How long the units of a recorded run took, from its visits."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from itertools import takewhile
from statistics import fmean, median
from typing import TypeAlias

from cerebro_elastic.core.history.estimates import add_fetch, fetch_seconds
from cerebro_elastic.core.history.view import RunView
from cerebro_elastic.core.model.attempts import Visit
from cerebro_elastic.core.model.events import Event, UnitAssigned
from cerebro_elastic.core.model.run import Plan
from cerebro_elastic.core.model.state import State
from cerebro_elastic.core.model.units import Phase
from cerebro_elastic.errors import RunError
from cerebro_elastic.simulation.times import MeasuredUnit, Times, UnitCosts

Pairs: TypeAlias = Mapping[tuple[str, str], float]
"""Seconds by (config, node)."""
_ROUNDS = 20
_PROMPT = 10
"""A node that waited this many times as long as usual did not wait for a decision."""


def measured(events: Sequence[Event], plan: Plan) -> Times:
    """The seconds of each unit of a recorded run.

    Units that were not trained take the mean seconds of their config on their node; where the config was
    never trained there, the config's seconds times the node's factor.

    Raises:
        RunError: No whole unit was trained.
    """
    visits = RunView(events).log
    trained = [v for v in visits if v.unit.phase is Phase.TRAIN and v.whole and not v.skip]
    if not trained:
        raise RunError("the run has no whole training unit, so nothing is known of its seconds")
    last = _last_of_epochs(visits) if not plan.evaluations and plan.partitions > 1 else set()
    validation = _validation(trained, last)
    pairs = _pairs(trained, last, validation)
    configs, nodes = _factors(pairs)
    waits, fetches = _waits(visits), reduce(add_fetch, visits, State().fetches)
    dispatch = fmean(waits.values()) if waits else 0.0
    return Times(
        usual=fmean(configs.values()),
        configs=configs,
        nodes=nodes,
        pairs=pairs,
        validation=validation,
        hop=fmean(v.hop_seconds for v in trained),
        saving=fmean(v.save_seconds for v in trained),
        fetch=fetch_seconds(fetches) if fetches else 0.0,
        dispatch=dispatch,
        startup=_startup(events, visits),
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


def _last_of_epochs(visits: Sequence[Visit]) -> set[int]:
    """The attempts that ended an epoch: the last one of each epoch of a config in which no partition is
    left."""
    latest: dict[tuple[str, int], int] = {}
    seen: dict[tuple[str, int], set[int]] = defaultdict(set)
    for visit in visits:
        epoch = visit.unit.config, visit.unit.epoch
        latest[epoch] = visit.attempt
        seen[epoch].add(visit.unit.partition)
    most = max(len(partitions) for partitions in seen.values())
    return {attempt for epoch, attempt in latest.items() if len(seen[epoch]) == most}


def _validation(trained: Sequence[Visit], last: set[int]) -> dict[str, float]:
    """By config, by how many seconds the units that ended an epoch took longer than its other units.

    They are compared with what its other units let expect for their node, since the node that comes last is
    not a random one.
    """
    configs, nodes = _factors(_pairs([v for v in trained if v.attempt not in last], set(), {}))
    more: dict[str, list[float]] = defaultdict(list)
    for visit in trained:
        config = visit.unit.config
        if visit.attempt in last and config in configs:
            usual = configs[config] * nodes.get(visit.node, 1.0)
            more[config].append(visit.seconds * visit.strategy.ranks - usual)
    return {config: max(0.0, fmean(seconds)) for config, seconds in more.items()}


def _pairs(trained: Sequence[Visit], last: set[int], validation: Mapping[str, float]) -> Pairs:
    seconds: dict[tuple[str, str], list[float]] = defaultdict(list)
    for visit in trained:
        config = visit.unit.config
        whole = visit.seconds * visit.strategy.ranks
        extra = validation.get(config, 0.0) if visit.attempt in last else 0.0
        seconds[config, visit.node].append(max(whole - extra, 0.1 * whole))
    return {pair: fmean(values) for pair, values in seconds.items()}


def _factors(pairs: Pairs) -> tuple[dict[str, float], dict[str, float]]:
    """By config the seconds on the usual node, and by node a factor, such that their products come nearest to
    ``pairs`` (least squares of logarithms, each side fitted to the other in turn)."""
    nodes = {node: 1.0 for _, node in pairs}
    configs: dict[str, float] = {}
    for _ in range(_ROUNDS):
        configs = _geometric_means((config, value / nodes[node]) for (config, node), value in pairs.items())
        nodes = _geometric_means((node, value / configs[config]) for (config, node), value in pairs.items())
    return configs, nodes


def _geometric_means(named: Iterable[tuple[str, float]]) -> dict[str, float]:
    logs: dict[str, list[float]] = defaultdict(list)
    for name, value in named:
        logs[name].append(math.log(max(value, 1e-9)))
    return {name: math.exp(fmean(values)) for name, values in logs.items()}


def _startup(events: Sequence[Event], visits: Sequence[Visit]) -> dict[str, float]:
    """By node that joined before the first unit: how many seconds after the first node it began."""
    joined = RunView(takewhile(lambda e: not isinstance(e, UnitAssigned), events)).state.nodes
    began = {name: v.started for v in sorted(visits, key=lambda v: -v.started) for name in v.nodes}
    return {name: began[name] - min(began.values()) for name in joined if name in began}


def _waits(visits: Sequence[Visit]) -> dict[int, float]:
    """By attempt, the seconds from when its nodes and its config were free (if they had been busy before)
    to its begin. A node that could go on waits only for the decision, so that is how long deciding and
    reporting take."""
    ended: dict[str, float] = {}
    waits: dict[int, float] = {}
    for visit in sorted(visits, key=lambda v: v.started):
        taking = (visit.unit.config, *visit.nodes)
        if all(name in ended for name in taking):
            waits[visit.attempt] = max(0.0, visit.started - max(ended[name] for name in taking))
        ended |= {**dict.fromkeys(visit.nodes, visit.freed), visit.unit.config: visit.ended}
    # A node that was away, or had nothing to do, did wait.
    longest = _PROMPT * median(waits.values()) if waits else 0.0
    return {attempt: wait for attempt, wait in waits.items() if wait <= longest}
