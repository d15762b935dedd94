"""What is left of a run at a moment, for policies that play it forward before they choose.

How far a unit is that is under way nobody tells, and there is no clock here. But visits say when they ended:
an attempt has begun when the last visit before it had ended (``Attempt.since``), and now is when the last one
of all had. (Half of the expected seconds would do without that, but lose much of what looking ahead gains.)
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import inf

from cerebro_elastic.core.decisions.placements import Placements
from cerebro_elastic.core.history.estimates import fetch_seconds, speed_factor, unit_seconds
from cerebro_elastic.core.model.attempts import Attempt
from cerebro_elastic.core.model.configs import Config, Status
from cerebro_elastic.core.model.interfaces import RemainingWork
from cerebro_elastic.core.model.nodes import Node
from cerebro_elastic.core.model.run import Plan
from cerebro_elastic.core.model.state import State
from cerebro_elastic.core.model.units import Phase

LEAST = 0.05
"""What a unit under way still takes at least, as a share of its seconds: it may be late, but it has not
ended."""


def remaining_work(
    state: State,
    plan: Plan,
    nodes: Mapping[str, Node],
    held: Mapping[str, Collection[int]],
    placements: Placements,
) -> RemainingWork | None:
    """What is left of the run on ``nodes``, whose caches have partitions (``held``); ``None`` if it is not
    training units of one node each alone."""
    holders = [[name for name in state.homes[j] if name in nodes] for j in range(plan.partitions)]
    others = any(
        placement.strategy.nodes > 1 or placement.unit.phase is not Phase.TRAIN
        for some in placements.values()
        for placement in some
    )
    if plan.evaluations or others or not all(holders):
        return None
    live = [config for config in state.configs.values() if config.status is Status.LIVE]
    usual = {config.id: _unit_seconds(state, config.id) for config in live}
    speed_factors = {name: speed_factor(state, name) for name in nodes}
    underway = {attempt.unit.config: attempt for attempt in state.underway()}
    return RemainingWork(
        nodes={name: _until_free(state, name) for name in nodes},
        configs={name: _still(state, underway[name]) if name in underway else 0.0 for name in usual},
        seconds={name: [each * factor for factor in speed_factors.values()] for name, each in usual.items()},
        undone={config.id: _undone(config, underway.get(config.id), plan) for config in live},
        later={config.id: plan.epochs - config.epoch - 1 for config in live},
        holders=holders,
        fetch=fetch_seconds(state.fetches) if plan.on_demand else inf,
        cached=held if plan.on_demand else {},
        epochs={config.id: config.epoch for config in live},
        order=state.order,
        guessed=[config.id for config in live if not _measured(state, config.id)],
        progress=plan.progress,
    )


def _unit_seconds(state: State, config: str) -> float:
    """Of a config that nobody has measured, those of the longest that was: who may be the tail of the run is
    begun before it is too late."""
    if _measured(state, config):
        return unit_seconds(state, config)
    return max(state.timings.values(), default=unit_seconds(state, config))


def _measured(state: State, config: str) -> bool:
    return config in state.timings or config in state.profiles


def _undone(config: Config, attempt: Attempt | None, plan: Plan) -> list[int]:
    done = {*config.visited, *([attempt.unit.partition] if attempt is not None else [])}
    return [j for j in range(plan.partitions) if j not in done]


def _until_free(state: State, node: str) -> float:
    attempt = state.attempts.get(node)
    return 0.0 if attempt is None else _still(state, attempt)


def _still(state: State, attempt: Attempt) -> float:
    """The seconds that the attempt is expected to take yet. Of what is being saved the most is over."""
    expected = attempt.expected
    if expected is None:
        expected = unit_seconds(state, attempt.unit.config) * speed_factor(state, attempt.node)
    if attempt.trained:
        return LEAST * expected
    began = state.usage.began if attempt.since is None else attempt.since
    elapsed = 0.0 if began is None else state.usage.until - began
    return max(expected - max(elapsed, 0.0), LEAST * expected)
