"""The policy ``exact``: ``auto``, with one more rule for its dry runs, the order that CP-SAT has found.

The solver works while units run. Its answer is an event of the run's history, so that a decision depends on
the state alone, of which the last answer is a part. An order has no times. It is followed only as long as it
is better than the choices of ``auto``, in dry runs as far ahead as the order reaches.

The question to the solver is the remaining work, as far as ``UNITS`` reach: the present epochs of all
configs, and as many whole epochs after them as that allows. All beyond is a tail after the last unit of its
node and of its config, as ``least_end`` counts it. The solver starts from a schedule that is known. Its
effort is counted in its own steps, not in seconds: the same question has the same answer on every machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, inf
from typing import Any, ClassVar

from cerebro_elastic.extending.planning import (
    Auto,
    Dispatch,
    DispatchState,
    Order,
    Planned,
    Progress,
    RemainingWork,
    Rule,
    ScheduledUnit,
    dry_run,
    least_end,
    mean_unit,
)
from cerebro_planner.exact import SOLVER, TICKS, by_start

WORTH = 0.001
"""How much longer than its bound, as a share, the run must be for the solver to be called."""
UNITS = 1000
"""The largest number of units in a question to the solver."""
EFFORT = 2.0
"""The solver's budget, in its own deterministic units of some seconds each."""
DRIFT = 0.1
"""The share of the run's remaining time by which a config's must have changed for another call of the solver:
where units vary, it changes a little with each of them."""


class Exact(Auto):
    """The order's rule, or that of ``auto`` if it is better by now. A ``Planner``."""

    waits: ClassVar[bool] = True
    solver = SOLVER

    def _rule(self, left: RemainingWork, seed: tuple[int, ...]) -> tuple[DispatchState, Rule]:
        state, usual = super()._rule(left, seed)
        order = _planned(left)
        if not order or left.progress is Progress.EVEN:
            return state, usual
        ordered = state.fork()
        ordered.assign(_owners(left, state))
        rule = Planned(order)
        whole = len(order) == _units(left)
        ahead = inf if whole else len(order) * mean_unit(state) / len(state.replicas)
        as_ordered, _ = dry_run(ordered, rule, ahead, inf)
        as_usual, _ = dry_run(state, usual, ahead, inf)
        return (ordered, rule) if as_ordered <= as_usual else (state, usual)

    def due(self, before: RemainingWork | None, left: RemainingWork) -> bool:
        """Whether to call the solver at the moment ``left``, after the last call at the moment ``before``.

        It is due when nodes have come or gone, or configs other than at their end; when the seconds of units
        have drifted; or when half of the last question's units are done. It is not due as long as some
        configs' seconds are guessed: a plan that rests on guesses does harm.
        """
        if left.guessed:
            return False
        if before is None or before.nodes.keys() != left.nodes.keys():
            return True
        gone = before.configs.keys() - left.configs.keys()
        ended_early = any(_units_of(before, name) for name in gone)
        if ended_early or left.configs.keys() - before.configs.keys():
            return True
        half = min(_units(before), UNITS) / 2
        return _drifted(before, left) or _units(before) - _units(left) > half

    def question(self, left: RemainingWork, seed: int) -> Mapping[str, Any] | None:
        """The question: none (``None``) where the run cannot end sooner than by the present rule, or where
        even the present epochs are too many units."""
        if not _units(left) or len(left.configs) < 2:
            return None
        state, rule = self._rule(left, (seed,))
        least = least_end(state, [at for at, _, _ in state.events])
        known: list[ScheduledUnit] = []
        if Dispatch(state, rule, record=known.append).play() <= least * (1 + WORTH):
            return None
        return _question(left, known, seed)

    def order(
        self, left: RemainingWork, question: Mapping[str, Any], answer: Sequence[tuple[int, int]] | None
    ) -> Order:
        """The solver's answer to the ``question`` of the moment ``left``."""
        nodes, configs = list(left.nodes), list(left.configs)
        order = []
        for at, n in by_start(question, answer or []):
            config = configs[question["units"][at][0]]
            epoch = left.epochs.get(config, 0) + question["units"][at][1]
            order.append((nodes[n], config, epoch, question["partitions"][at]))
        return tuple(order)


def _planned(left: RemainingWork) -> list[tuple[int, int, int]]:
    """The rest of the order, as numbers of nodes, configs and epochs from the present one on."""
    nodes, configs = _numbers(left.nodes), _numbers(left.configs)
    planned = []
    for node, config, epoch, partition in left.order:
        if node in nodes and config in configs:
            later = epoch - left.epochs.get(config, 0)
            if 0 < later <= left.later[config] or (later == 0 and partition in left.undone[config]):
                planned.append((nodes[node], configs[config], later))
    return planned


def _owners(left: RemainingWork, state: DispatchState) -> list[list[int]]:
    """The owners of ``state``; those of the order instead, where they may still do their units."""
    owners = [row.copy() for row in state.owner]
    nodes, configs = _numbers(left.nodes), _numbers(left.configs)
    for node, config, _, partition in reversed(left.order):
        if config in configs and partition < len(left.holders) and node in left.holders[partition]:
            owners[configs[config]][partition] = nodes.get(node, owners[configs[config]][partition])
    return owners


def _numbers(names: Mapping[str, Any]) -> dict[str, int]:
    return {name: number for number, name in enumerate(names)}


def _question(left: RemainingWork, known: Sequence[ScheduledUnit], seed: int) -> Mapping[str, Any] | None:
    """The question to ``cerebro_planner.cp_sat`` if the run continues as ``known`` (units up to its end),
    from which each unit has its node."""
    end_epoch = _epochs(left)
    asked = [v for v in known if v.epoch < end_epoch]
    if len(asked) < 2:
        return None
    tick = max(v.end for v in known) / TICKS
    node_tail, config_tail = [0.0] * len(left.nodes), [0.0] * len(left.configs)
    for v in known:
        if v.epoch >= end_epoch:
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


def _epochs(left: RemainingWork) -> int:
    """How many epochs of each config, the present one first, a question can have."""
    units = sum(map(len, left.undone.values()))
    epochs = 0
    while units <= UNITS and epochs <= max(left.later.values(), default=-1):
        epochs += 1
        units += sum(len(left.holders) for later in left.later.values() if later >= epochs)
    return epochs


def _drifted(before: RemainingWork, now: RemainingWork) -> bool:
    """Whether a config needs other seconds than before, by much for the whole run."""
    length = sum(_seconds(now, name) for name in now.configs) / len(now.nodes)
    drifts = (
        _seconds(now, name) * (1 - min(before.seconds[name]) / (min(now.seconds[name]) or 1.0))
        for name in now.configs
    )
    return any(abs(drift) > DRIFT * length for drift in drifts)


def _units(left: RemainingWork) -> int:
    """How many units are left."""
    return sum(_units_of(left, config) for config in left.configs)


def _units_of(left: RemainingWork, config: str) -> int:
    return len(left.undone[config]) + left.later[config] * len(left.holders)


def _seconds(left: RemainingWork, config: str) -> float:
    return _units_of(left, config) * min(left.seconds[config])
