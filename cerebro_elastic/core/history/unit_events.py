"""When are the events of units possible, and what do they change?"""

from __future__ import annotations

from dataclasses import replace

from cerebro_elastic.core.history import derived
from cerebro_elastic.core.history.progress import advance, is_next, skipped
from cerebro_elastic.core.history.rows import (
    LEADER,
    WORKER,
    Row,
    Rows,
    changed,
    require,
    with_config,
    without_attempts,
)
from cerebro_elastic.core.model.attempts import Attempt
from cerebro_elastic.core.model.events import (
    Event,
    ProfileDone,
    UnitAssigned,
    UnitCommitted,
    UnitFailed,
    UnitsReused,
    UnitTrained,
    UnitWithdrawn,
)
from cerebro_elastic.core.model.state import State
from cerebro_elastic.core.model.units import Phase, Unit
from cerebro_elastic.errors import IllegalEvent


def assigned(state: State, event: UnitAssigned) -> State:
    """Possible if its nodes are registered as the attempt says, since the last extension, idle, and as many
    as its strategy takes, or if the node trains an attempt behind which another may be queued; if the config
    is live, idle and at the attempt's revision; and if the unit (or the unit that it profiles) is one of its
    next, and skip is the number of its batches that earlier visits trained. Then the nodes are busy with the
    attempt, or it is queued."""
    attempt = replace(event.attempt, token=event.revision)
    assert state.plan is not None
    ahead = [state.attempts[name] for name in attempt.nodes if name in state.attempts]
    queues = bool(ahead) and _may_follow(state, attempt, ahead[0])
    idle = not ahead and not attempt.queued_behind
    require(idle or queues, event, f"before it come {ahead} (exclusive access)")
    sized = len(set(attempt.nodes)) == attempt.strategy.nodes
    require(sized, event, f"its strategy takes {attempt.strategy.nodes} nodes, each once (exclusive access)")
    require(state.running(attempt.unit.config) is None, event, "the config is in a unit (isolation)")
    require(state.may_report(attempt), event, "node or config is not as the attempt says (fencing)")
    late = all(member.registration >= state.extended for member in attempt.members)
    require(late, event, "a node of it knows the plan from before the extension (fencing)")
    config = state.configs[attempt.unit.config]
    is_due = is_next(config, attempt.unit, state.plan)
    require(is_due, event, lambda: f"not a next unit of {config} (completeness)")
    require(attempt.strategy in state.plan.strategies, event, "the plan has no such strategy")
    skips_right = attempt.skip == skipped(config)
    require(skips_right, event, lambda: f"{config} has trained {config.partial_unit} (completeness)")
    if queues:
        return changed(state, event, queued={**state.queued, attempt.node: attempt})
    return changed(state, event, attempts={**state.attempts, **dict.fromkeys(attempt.nodes, attempt)})


def _may_follow(state: State, attempt: Attempt, ahead: Attempt) -> bool:
    """Whether the attempt was queued behind the one ``ahead`` of it, and may be: nothing else is queued
    there, and its key in the store is free."""
    free = attempt.node not in state.queued and attempt.second_key != ahead.second_key
    return attempt.queued_behind == ahead.token and free and attempt.may_queue and ahead.may_queue


def trained(state: State, event: UnitTrained) -> State:
    """Possible if the attempt is assigned to this node alone, may report and is no profile, and the node
    saves no other. Then the node is idle and saves the attempt behind its next unit; the config stays
    busy."""
    attempt = _attempt(state, event, event.node, event.token)
    require(not attempt.trained, event, "it was trained before")
    _require_fenced(state, event, attempt)
    require(attempt.nodes == (event.node,), event, "a gang's attempt is saved by all of its nodes")
    require(attempt.unit.phase is not Phase.PROFILE, event, "a profile saves nothing")
    require(event.node not in state.saving, event, f"it saves {state.saving.get(event.node)}")
    freed = without_attempts(state, attempt.token)
    saved = replace(attempt, trained=event.revision, freed=event.at)
    return changed(state, event, **{**freed, "saving": {**state.saving, event.node: saved}})


def committed(state: State, event: UnitCommitted) -> State:
    """Possible if the attempt is the node's and may report; if input, skip, strategy and nodes are the
    attempt's; and if a visit that is not whole has trained a batch. Then the config has advanced, and the
    attempt and the nodes' streaks up to it are over."""
    assert state.plan is not None
    visit = event.visit
    attempt = _reporting(state, event, visit.node, visit.attempt, visit.unit)
    as_assigned = (visit.nodes, visit.strategy) == (attempt.nodes, attempt.strategy)
    require(as_assigned, event, f"it was to be trained by {attempt.strategy} on {attempt.nodes}")
    require(visit.unit.phase is not Phase.PROFILE, event, "a profile is no visit (completeness)")
    require(visit.input == attempt.input, event, f"its input is {attempt.input} (isolation)")
    require(visit.skip == attempt.skip, event, f"it began after {attempt.skip} batches (completeness)")
    may_be_partial = visit.unit.phase is Phase.TRAIN and visit.batches > 0 and not visit.done
    require(visit.whole or may_be_partial, event, "it cannot have been left before its end (completeness)")
    config = advance(state.configs[visit.unit.config], visit, state.plan)
    return with_config(state, event, config, **without_attempts(state, attempt.token))


def reused(state: State, event: UnitsReused) -> State:
    """Possible if the config is live and idle, and each visit is one of its next units, begins with its
    predecessor's checkpoint, and was made by an earlier run with a strategy of the plan. Then the config has
    advanced by all of them; nothing changes for nodes."""
    assert state.plan is not None
    require(bool(event.visits), event, "it has no visit")
    require(event.config in state.configs, event, f"configs are {sorted(state.configs)}")
    require(state.running(event.config) is None, event, "the config is in a unit (isolation)")
    config = state.configs[event.config]
    for visit in event.visits:
        earlier = bool(visit.reused) and visit.strategy in state.plan.strategies
        require(earlier, event, "no earlier run has made it by a strategy of this plan")
        require(is_next(config, visit.unit, state.plan), event, f"not a next unit of {config} (completeness)")
        begins = visit.input == config.head and visit.skip == skipped(config)
        require(begins, event, f"{config} is at another checkpoint (isolation)")
        config = advance(config, visit, state.plan)
        state = derived.after_visit(state, visit, config)
    return with_config(state, event, config)


def failed(state: State, event: UnitFailed) -> State:
    """Possible if the attempt is the node's and may report. Then the config remembers the failure, the
    attempt is over, and the streak of the node that failed is longer."""
    failure = event.failure
    attempt = _reporting(state, event, failure.node, failure.attempt, failure.unit)
    config = state.configs[failure.unit.config]
    updated = replace(config, failures=(*config.failures, failure))
    return with_config(state, event, updated, **without_attempts(state, attempt.token))


def profiled(state: State, event: ProfileDone) -> State:
    """Possible if the attempt is the node's, may report, and profiles this strategy. Then the result is
    known, and the attempt is over."""
    profile = event.profile
    attempt = _reporting(state, event, profile.node, profile.attempt, profile.unit)
    require(profile.unit.phase is Phase.PROFILE, event, "its unit is no profile")
    as_assigned = (profile.strategy, profile.hardware) == (attempt.strategy, attempt.hardware)
    require(as_assigned, event, f"it was to profile {attempt.strategy} on {attempt.hardware}")
    return changed(state, event, **without_attempts(state, attempt.token))


def withdrawn(state: State, event: UnitWithdrawn) -> State:
    """Possible if the attempt is the node's. Then it is over."""
    attempt = _attempt(state, event, event.node, event.token)
    return changed(state, event, **without_attempts(state, attempt.token))


def _reporting(state: State, event: Event, node: str, token: int, unit: Unit) -> Attempt:
    """The attempt of this ``token``, if it may still report a result."""
    attempt = _attempt(state, event, node, token)
    require(attempt.unit == unit, event, lambda: f"the node's attempt is {attempt} (fencing)")
    _require_fenced(state, event, attempt)
    return attempt


def _attempt(state: State, event: Event, node: str, token: int) -> Attempt:
    attempt = state.attempt(node, token)
    if attempt is None:
        attempts = [state.attempts.get(node), state.queued.get(node), state.saving.get(node)]
        raise IllegalEvent(f"{event} is impossible: the node's attempts are {attempts} (fencing)")
    return attempt


def _require_fenced(state: State, event: Event, attempt: Attempt) -> None:
    require(
        state.may_report(attempt), event, "a node of it or its config has changed since it began (fencing)"
    )


_ATTEMPT = ("assign", "saving")

ROWS: Rows = {
    UnitAssigned: Row(assigned, (LEADER,), ("assign",), compares=(*_ATTEMPT, "nodes", "configs")),
    UnitTrained: Row(trained, (WORKER,), _ATTEMPT),
    UnitCommitted: Row(committed, (WORKER,), ("visits", "configs"), also=_ATTEMPT, derives=derived.committed),
    UnitsReused: Row(reused, (LEADER,), ("visits", "configs")),
    UnitFailed: Row(failed, (WORKER,), ("configs",), also=_ATTEMPT, derives=derived.failed),
    ProfileDone: Row(profiled, (WORKER,), ("profiles",), also=_ATTEMPT, derives=derived.profiled),
    UnitWithdrawn: Row(withdrawn, (LEADER, WORKER), also=_ATTEMPT),
}
