"""Which fields of a state follow from its visits, profiles and failures, and how?

The fold applies these functions to each event as it comes. The reader of a snapshot applies them to all that
the store holds (``derive``). So both arrive at the same state. A new derived field is added here and nowhere
else.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable
from dataclasses import replace

from cerebro_elastic.core.history.estimates import add_fetch, learn
from cerebro_elastic.core.history.lineage import born
from cerebro_elastic.core.history.profiles import add_profile, refine
from cerebro_elastic.core.history.progress import advance
from cerebro_elastic.core.history.tallies import (
    add_batches,
    add_cached,
    add_failure,
    add_point,
    add_token,
    add_usage,
    streaks_of,
)
from cerebro_elastic.core.model.attempts import ProfileResult, Visit
from cerebro_elastic.core.model.configs import Config
from cerebro_elastic.core.model.events import ProfileDone, UnitCommitted, UnitFailed
from cerebro_elastic.core.model.state import State


def after_visit(state: State, visit: Visit, config: Config) -> State:
    """``state`` with its derived fields as they are after ``visit``, which has brought its config to
    ``config``."""
    assert state.plan is not None
    timings, speed_factors = learn(state.timings, state.speed_factors, visit)
    committed = add_token(state.committed, visit)
    may_end = any(name in state.streaks for name in visit.nodes)
    return replace(
        state,
        nodes=add_cached(state.nodes, visit),
        committed=committed,
        streaks=streaks_of(state.configs.values(), committed) if may_end else state.streaks,
        quarantined_for={
            name: token for name, token in state.quarantined_for.items() if token > committed.get(name, 0)
        },
        timings=timings,
        speed_factors=speed_factors,
        fetches=add_fetch(state.fetches, visit),
        curves=add_point(state.curves, config, visit, state.plan),
        usage=add_usage(state.usage, visit),
        batches=add_batches(state.batches, visit, state.plan),
        profiles=refine(state.profiles, visit),
    )


def after_profile(state: State, profile: ProfileResult) -> State:
    """``state`` after one more profile."""
    return replace(state, profiles=add_profile(state.profiles, profile))


def committed(state: State, event: UnitCommitted) -> State:
    return after_visit(state, event.visit, state.configs[event.visit.unit.config])


def failed(state: State, event: UnitFailed) -> State:
    """A failure that is older than what the node last committed does not count."""
    failure = event.failure
    if failure.attempt <= state.committed.get(failure.node, 0):
        return state
    return replace(state, streaks=add_failure(state.streaks, failure))


def profiled(state: State, event: ProfileDone) -> State:
    return after_profile(state, event.profile)


def derive(state: State, visits: Iterable[Visit], profiles: Iterable[ProfileResult]) -> State:
    """``state`` with the derived fields that the whole history gives them.

    Args:
        state: All that is not derived; ``nodes`` as they registered, and all of ``quarantined_for``.
        visits: All visits in the order of their commits.
        profiles: All results of profiles, in any order. A config is in one attempt at a time, so the tokens
            order its profiles and visits.
    """
    to_come: defaultdict[str, deque[ProfileResult]] = defaultdict(deque)
    for profile in sorted(profiles, key=lambda profile: profile.attempt):
        to_come[profile.unit.config].append(profile)
    configs = {config.id: born(config) for config in state.configs.values()}
    for visit in visits:
        name = visit.unit.config
        while to_come[name] and to_come[name][0].attempt < visit.attempt:
            state = after_profile(state, to_come[name].popleft())
        assert state.plan is not None
        configs[name] = advance(configs[name], visit, state.plan)
        state = after_visit(state, visit, configs[name])
    for profile in (profile for rest in to_come.values() for profile in rest):
        state = after_profile(state, profile)
    return replace(state, streaks=streaks_of(state.configs.values(), state.committed))
