"""What is left of a run, for policies that play it forward before they choose?

The core has no clock, and a unit under way does not report how far it is. But visits state when they ended.
So an attempt counts as begun when the last visit before it ended (``Attempt.last_visit_ended``), and "now" is
the end of the last visit of all. (Half of the expected seconds would be simpler, but loses much of what
looking ahead gains.)
"""

from __future__ import annotations

from math import inf

from cerebro_elastic.core.decisions.moment import Moment
from cerebro_elastic.core.decisions.per_config import PerConfig
from cerebro_elastic.core.history.estimates import begun_at, fetch_seconds, speed_factor, unit_seconds
from cerebro_elastic.core.model.attempts import Attempt
from cerebro_elastic.core.model.configs import Config, Status
from cerebro_elastic.core.model.interfaces import RemainingWork
from cerebro_elastic.core.model.run import Plan
from cerebro_elastic.core.model.state import State

LEAST = 0.05
"""The share of its expected seconds that a unit under way still takes at least: it may be late, but it has
not ended."""


def remaining_work(moment: Moment, freed: str | None = None) -> RemainingWork | None:
    """What is left of the run on the moment's nodes; ``None`` if that is more than training units of one node
    each. If ``freed`` is given, the question is what that node does next; it counts as idle."""
    state, plan, nodes = moment.state, moment.plan, moment.nodes
    holders = [[name for name in state.homes[j] if name in nodes] for j in range(plan.partitions)]
    plain = all(options.plain for options in moment.placements.values())
    if plan.evaluations or not plain or not all(holders):
        return None
    live = [config for config in state.configs.values() if config.status is Status.LIVE]
    longest = max(state.timings.values(), default=None)
    seconds = {
        # One that was not measured may be the tail of the run, and must begin early.
        config.id: moment.seconds[config.id] if longest is None or _measured(state, config.id) else longest
        for config in live
    }
    factors = moment.speed_factors.values()
    underway = {attempt.unit.config: attempt for attempt in state.underway()}
    return RemainingWork(
        nodes={name: 0.0 if name == freed else _until_free(state, name) for name in nodes},
        configs={name: _seconds_left(state, underway[name]) if name in underway else 0.0 for name in seconds},
        seconds={name: [unit * factor for factor in factors] for name, unit in seconds.items()},
        undone=_undone_partitions(plan, ((config, underway.get(config.id)) for config in live)),
        later={config.id: plan.epochs - config.epoch - 1 for config in live},
        holders=holders,
        fetch=fetch_seconds(state.fetches) if plan.on_demand else inf,
        cached=moment.cached if plan.on_demand else {},
        epochs={config.id: config.epoch for config in live},
        order=state.order,
        guessed=[config.id for config in live if not _measured(state, config.id)],
        progress=plan.progress,
    )


def _measured(state: State, config: str) -> bool:
    return config in state.timings or config in state.profiles


@PerConfig
def _undone_partitions(plan: Plan, config: Config, attempt: Attempt | None) -> list[int]:
    done = {*config.visited, *([attempt.unit.partition] if attempt is not None else [])}
    return [j for j in range(plan.partitions) if j not in done]


def _until_free(state: State, node: str) -> float:
    last = state.queued.get(node) or state.attempts.get(node)
    return 0.0 if last is None else _seconds_left(state, last)


def _seconds_left(state: State, attempt: Attempt) -> float:
    """The seconds until the attempt is expected to end. One that is being saved is almost over; one that is
    queued begins when its node is free."""
    expected = attempt.expected
    if expected is None:
        expected = unit_seconds(state, attempt.unit.config) * speed_factor(state, attempt.node)
    if attempt.trained:
        return LEAST * expected
    if state.is_queued(attempt):
        return _seconds_left(state, state.attempts[attempt.node]) + expected
    begun = begun_at(state, attempt)
    elapsed = 0.0 if begun is None else state.usage.until - begun
    return max(expected - max(elapsed, 0.0), LEAST * expected)
