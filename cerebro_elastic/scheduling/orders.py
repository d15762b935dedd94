"""What a live run asks CP-SAT, and what becomes of the answer: pure functions.

The question is what is left of the run, as far as ``UNITS`` reach: the present epochs of all configs, and as
many whole epochs after them as that allows. What lies beyond is a tail, which comes after the last unit of
its node and of its config, as ``present.least_end`` counts it. The solver starts from a schedule that is
known, and what it may spend is counted in its own steps, not in seconds: the same question has the same
answer on every machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import Any

from cerebro_elastic.core.model.interfaces import RemainingWork
from cerebro_elastic.core.model.units import Order
from cerebro_elastic.openshop.dispatch import ScheduledUnit
from cerebro_elastic.openshop.exact import TICKS, by_start

UNITS = 1000
"""As many are asked about, or fewer."""
EFFORT = 2.0
"""What the solver may spend, in its own deterministic units: each some seconds."""
DRIFT = 0.1
"""By what share of the time that the run has left that of a config must have changed: where units vary, a
little changes with each of them."""


def question(left: RemainingWork, known: list[ScheduledUnit], seed: int) -> Mapping[str, Any] | None:
    """What to ask at the moment ``left`` if the run goes on as ``known`` (visits up to its end), from which
    each unit has its node. ``None`` if even the present epochs are too much."""
    upto = _epochs(left)
    asked = [v for v in known if v.epoch < upto]
    if len(asked) < 2:
        return None
    tick = max(v.end for v in known) / TICKS
    node_tail, config_tail = [0.0] * len(left.nodes), [0.0] * len(left.configs)
    for v in known:
        if v.epoch >= upto:
            node_tail[v.node] += v.end - v.start
            config_tail[v.config] += v.end - v.start
    return {
        "problem": "open shop",
        "effort": EFFORT,
        "seed": seed,
        "units": [(v.config, v.epoch, {v.node: ceil((v.end - v.start) / tick)}) for v in asked],
        "node_ready": [ceil(at / tick) for at in left.nodes.values()],
        "config_ready": [ceil(at / tick) for at in left.configs.values()],
        "node_tail": [ceil(tail / tick) for tail in node_tail],
        "config_tail": [ceil(tail / tick) for tail in config_tail],
        "hint": [v.node for v in asked],
        "partitions": [v.partition for v in asked],
    }


def order(left: RemainingWork, asked: Mapping[str, Any], answer: list[tuple[int, int]] | None) -> Order:
    """What the answer to what was ``asked`` at the moment ``left`` says."""
    nodes, configs = list(left.nodes), list(left.configs)
    found = []
    for at, n in by_start(asked, answer or []):
        config = configs[asked["units"][at][0]]
        epoch = left.epochs.get(config, 0) + asked["units"][at][1]
        found.append((nodes[n], config, epoch, asked["partitions"][at]))
    return tuple(found)


def due(before: RemainingWork | None, now: RemainingWork) -> bool:
    """Whether to ask anew, having asked last at the moment ``before``: nodes have come or gone, or configs
    other than at their end; what a unit takes has drifted; or half of what was asked about is done. Not as
    long as some configs' seconds are guessed: what is planned on that is followed to its loss."""
    if now.guessed:
        return False
    if before is None or before.nodes.keys() != now.nodes.keys():
        return True
    gone = before.configs.keys() - now.configs.keys()
    early = any(_units(before, name) for name in gone)
    if early or now.configs.keys() - before.configs.keys():
        return True
    length = sum(_seconds(now, name) for name in now.configs) / len(now.nodes)
    drifts = (
        _seconds(now, name) * (1 - min(before.seconds[name]) / (min(now.seconds[name]) or 1.0))
        for name in now.configs
    )
    return (
        any(abs(drift) > DRIFT * length for drift in drifts)
        or units(before) - units(now) > min(units(before), UNITS) / 2
    )


def _epochs(left: RemainingWork) -> int:
    """How many epochs of each config, the present one first, are not too many units."""
    so_many = sum(map(len, left.undone.values()))
    upto = 0
    while so_many <= UNITS and upto <= max(left.later.values(), default=-1):
        upto += 1
        so_many += sum(len(left.holders) for later in left.later.values() if later >= upto)
    return upto


def units(left: RemainingWork) -> int:
    """How many are left."""
    return sum(_units(left, config) for config in left.configs)


def _units(left: RemainingWork, config: str) -> int:
    return len(left.undone[config]) + left.later[config] * len(left.holders)


def _seconds(left: RemainingWork, config: str) -> float:
    return _units(left, config) * min(left.seconds[config])
