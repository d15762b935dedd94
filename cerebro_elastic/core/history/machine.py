"""The core machine: a run's state as a fold over its events.

Theory
------
A run is a set of configs, each a chain of visits, and a set of nodes, each with at most one
attempt. The store puts all that happens into one order; the machine reads it in that order, so
everybody who folds the same history has the same state, and a controller that takes over at any
point goes on from where the last one stood.

Every event has a row in the table: what must hold for it to be possible (else ``IllegalEvent``,
and nothing changes), and what it makes true.

==============  ==============================================  ==================================
event           possible if                                     makes true
==============  ==============================================  ==================================
RunOpened       there is no plan                                the plan is known
LeaderChanged   always                                          somebody or nobody leads
ConfigCreated   its id is new; it is at the beginning, or       it is live
                where its parent stands, or where the plan's
                checkpoint from outside the run was
ConfigEnded     it is live; or a person stops what the search   it is stopped or failed
                has stopped
ConfigResumed   it is stopped                                   it is live again, where it was
NodeJoined      no node of its name is registered               it is registered
NodeLeft        always                                          it is not registered; its attempt
                                                                stays, and can only be withdrawn
NodeReady       it is registered and starting                   it is not starting any more, and
                                                                holds what its cache has
NodeDraining    it is registered and not draining               it has so many seconds left
NodeSetAside    it is idle and not aside, and the failure is    it is aside, the failure is answered
                the last of its streak
NodeForgiven    always                                          it is not aside
NodeStalled     it is registered and not stalled                it gets no units
NodeRecovered   it is stalled                                   it gets units again
Placed          every partition has a home, none a node twice   homes are as told
Ordered         somebody leads                                  the policy is shown this order
UnitAssigned    its nodes are registered as the attempt says    the nodes are busy with the attempt
                and idle, and as many as its choice asks for;
                config live, at the attempt's revision and
                idle, unit (or what it tries) is one of its
                next, skip is what is done of it
UnitTrained     the attempt is the node's alone and no trial,   the node is idle, and saves the
                its registration stands, the config is where    attempt behind what it does next; the
                the attempt began; the node saves no other      config stays busy with it
UnitCommitted   the attempt is the node's, all registrations    the config has advanced, the nodes
                stand, the config is where the attempt began;   are done with the attempt, their
                input, skip, choice and nodes are the           streaks up to it are over
                attempt's; if not whole: it trained at least
                one batch
UnitFailed      the attempt is the node's, all registrations    the config remembers, its nodes are
                stand, the config is where the attempt began    done with it, the streak of the one
                                                                that failed is longer
TrialDone       as UnitFailed, and it is a trial of the choice  what it told is known, its nodes are
                                                                idle
UnitWithdrawn   the attempt is the node's                       its nodes are done with it
RunEnded        no config is live                               the run has ended
RecordMended    the plan is known                               its configs are at this revision, its
                                                                nodes are neither registered nor aside,
                                                                its attempts are over
StateRead       always, if the plan is the same or there is     all is as read; what was before is as
                none                                            if it had not been
==============  ==============================================  ==================================

``NodeLeft`` leaves the attempt in place because the store does too: the assignment is a key of
its own, and until it is withdrawn nobody else may have the config (isolation). It cannot commit,
since its registration is gone (fencing). So it is with a gang, whose attempt has a key for each of its
nodes: they come and go together, and if one node is gone the attempt cannot commit.

``NodeLeft`` and ``NodeReleased`` are what the store does when a lease ends. Nothing guards them, so they are
always possible: others may have written such a key, and taken it away.

An attempt is a node's in training (``State.attempts``) or, from ``UnitTrained`` on, being saved
(``State.saving``), one at a time in each: it ends from there as it would have from the first. So a node has
two configs' states at most, and a config is in one attempt at a time wherever that is (isolation).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from cerebro_elastic.core.history.estimates import learn, waited
from cerebro_elastic.core.history.lineage import born, changed, edge_from, may_end
from cerebro_elastic.core.history.profiles import profiled, refined
from cerebro_elastic.core.history.progress import advance, is_next, skipped
from cerebro_elastic.core.history.tallies import (
    add_usage,
    extend,
    lengthen,
    streaks_of,
    when_ready,
    with_visit,
)
from cerebro_elastic.core.model.attempts import Attempt
from cerebro_elastic.core.model.configs import Config, Status
from cerebro_elastic.core.model.events import (
    ConfigCreated,
    ConfigEnded,
    ConfigResumed,
    Event,
    HomesAssigned,
    LeaderChanged,
    NodeDraining,
    NodeJoined,
    NodeLeft,
    NodeQuarantined,
    NodeReady,
    NodeRecovered,
    NodeReleased,
    NodeStalled,
    Ordered,
    ProfileDone,
    RecordMended,
    RunEnded,
    RunOpened,
    StateRead,
    UnitAssigned,
    UnitCommitted,
    UnitFailed,
    UnitTrained,
    UnitWithdrawn,
)
from cerebro_elastic.core.model.nodes import Stall
from cerebro_elastic.core.model.state import State
from cerebro_elastic.core.model.units import Phase, Unit
from cerebro_elastic.errors import IllegalEvent


def fold(state: State, event: Event) -> State:
    """The state after ``event``; raises ``IllegalEvent`` and changes nothing if it cannot be."""
    if event.revision < state.revision and not isinstance(event, StateRead):
        raise IllegalEvent(
            f"{event} comes after revision {state.revision}; events are read in the store's order, each once"
        )
    if state.plan is None and not isinstance(event, _BEFORE_THE_RUN):
        raise IllegalEvent(f"{event} comes before the run was opened")
    after = _TABLE[type(event)](state, event)
    return replace(after, revision=event.revision)


def _run_opened(state: State, event: RunOpened) -> State:
    _require(state.plan is None, event, f"the plan is {state.plan}")
    return replace(state, plan=event.plan)


def _leader_changed(state: State, event: LeaderChanged) -> State:
    return replace(state, leader=event.leader)


def _config_created(state: State, event: ConfigCreated) -> State:
    _require(event.config.id not in state.configs, event, "a config of this id exists")
    config = replace(event.config, revision=event.revision)
    new = replace(born(config), by_hand=config.by_hand, revision=event.revision)
    _require(config == new, event, f"it begins as {new} (isolation)")
    assert state.plan is not None
    _require(config.epoch < state.plan.epochs, event, "there is nothing left for it to do (completeness)")
    if config.parent is not None:
        inside = config.parent.config
        edge = edge_from(_config(state, inside, event)) if inside else state.plan.start
        _require(config.parent == edge, event, f"its parent is at {edge} (isolation)")
    return _with(state, config, config.by_hand)


def _config_ended(state: State, event: ConfigEnded) -> State:
    config = _config(state, event.config, event)
    _require(event.status in (Status.STOPPED, Status.FAILED), event, "a config ends stopped or failed")
    _require(may_end(config, event), event, f"it is {config.status.value} already")
    return _with(state, replace(changed(config, event), revision=event.revision), event.by_hand)


def _config_resumed(state: State, event: ConfigResumed) -> State:
    config = _config(state, event.config, event)
    _require(config.status is Status.STOPPED, event, f"it is {config.status.value}, not stopped")
    return _with(state, replace(changed(config, event), revision=event.revision), event.by_hand)


def _node_joined(state: State, event: NodeJoined) -> State:
    _require(event.node.name not in state.nodes, event, "a node of this name is registered")
    return replace(state, nodes={**state.nodes, event.node.name: event.node})


def _node_left(state: State, event: NodeLeft) -> State:
    return replace(state, nodes=_without(state.nodes, event.node))


def _node_ready(state: State, event: NodeReady) -> State:
    _require(event.node in state.nodes, event, f"registered are {sorted(state.nodes)}")
    node = state.nodes[event.node]
    _require(node.starting, event, "it was ready before")
    return replace(state, nodes={**state.nodes, node.name: when_ready(node, event.cached)})


def _node_draining(state: State, event: NodeDraining) -> State:
    _require(event.node in state.nodes, event, f"registered are {sorted(state.nodes)}")
    node = state.nodes[event.node]
    _require(node.drain is None, event, "it was asked to leave before")
    return replace(state, nodes={**state.nodes, node.name: replace(node, drain=event.grace)})


def _node_set_aside(state: State, event: NodeQuarantined) -> State:
    streak = state.streaks.get(event.node)
    _require(event.node not in state.quarantined, event, "it is set aside already")
    _require(event.node not in state.attempts, event, "it is busy (non-preemption)")
    _require(streak is not None and streak.last == event.failure, event, f"its streak is {streak}")
    return replace(
        state,
        quarantined={**state.quarantined, event.node: event.why},
        quarantined_for={**state.quarantined_for, event.node: event.failure},
    )


def _node_forgiven(state: State, event: NodeReleased) -> State:
    return replace(state, quarantined=_without(state.quarantined, event.node))


def _node_stalled(state: State, event: NodeStalled) -> State:
    _require(event.node in state.nodes, event, f"registered are {sorted(state.nodes)}")
    node = state.nodes[event.node]
    _require(node.stalled is None, event, "it was stalled before")
    stalled = replace(node, stalled=Stall(event.since, event.why))
    return replace(state, nodes={**state.nodes, node.name: stalled})


def _node_recovered(state: State, event: NodeRecovered) -> State:
    _require(event.node in state.nodes, event, f"registered are {sorted(state.nodes)}")
    node = state.nodes[event.node]
    _require(node.stalled is not None, event, "it is not stalled")
    return replace(state, nodes={**state.nodes, node.name: replace(node, stalled=None)})


def _record_mended(state: State, event: RecordMended) -> State:
    mended = {
        name: replace(state.configs[name], revision=event.revision)
        for name in event.names("configs")
        if name in state.configs
    }
    asked = event.revision if state.asked and event.names("control") else state.asked
    return replace(
        state,
        configs={**state.configs, **mended},
        nodes=_without(state.nodes, *event.names("nodes")),
        quarantined=_without(state.quarantined, *event.names("quarantined")),
        attempts={k: a for k, a in state.attempts.items() if a.token not in event.withdrawn},
        saving={k: a for k, a in state.saving.items() if a.token not in event.withdrawn},
        asked=asked,
    )


def _placed(state: State, event: HomesAssigned) -> State:
    assert state.plan is not None
    wanted = set(range(state.plan.partitions))
    _require(set(event.homes) == wanted, event, f"the partitions are 0 to {state.plan.partitions - 1}")
    each = all(homes and len(set(homes)) == len(homes) for homes in event.homes.values())
    _require(each, event, "a partition is at home on one node or several")
    return replace(state, homes=dict(event.homes))


def _ordered(state: State, event: Ordered) -> State:
    _require(state.leader is not None, event, "nobody leads")
    return replace(state, order=event.order)


def _unit_assigned(state: State, event: UnitAssigned) -> State:
    attempt = replace(event.attempt, token=event.revision)
    assert state.plan is not None
    busy = sorted(set(attempt.nodes) & set(state.attempts))
    _require(not busy, event, f"{busy} are busy (exclusive access)")
    alone = len(set(attempt.nodes)) == attempt.strategy.nodes
    _require(alone, event, f"its choice takes {attempt.strategy.nodes} nodes, each once (exclusive access)")
    _require(state.running(attempt.unit.config) is None, event, "the config is in a unit (isolation)")
    _require(state.stands(attempt), event, "node or config is not as the attempt says (fencing)")
    config = state.configs[attempt.unit.config]
    _require(is_next(config, attempt.unit, state.plan), event, f"not a next unit of {config} (completeness)")
    _require(attempt.strategy in state.plan.strategies, event, "the plan has no such choice")
    _require(
        attempt.skip == skipped(config), event, f"{config} has begun {config.partial_unit} (completeness)"
    )
    return replace(state, attempts={**state.attempts, **dict.fromkeys(attempt.nodes, attempt)})


def _unit_trained(state: State, event: UnitTrained) -> State:
    attempt = state.attempts.get(event.node)
    if attempt is None or attempt.token != event.token:
        raise IllegalEvent(f"{event} cannot be: the node's attempt is {attempt} (fencing)")
    _require_standing(state, event, attempt)
    _require(attempt.nodes == (event.node,), event, "a gang's attempt is saved by all of its nodes")
    _require(attempt.unit.phase is not Phase.PROFILE, event, "a trial saves nothing")
    _require(event.node not in state.saving, event, f"it saves {state.saving.get(event.node)}")
    return replace(
        state,
        attempts=_without(state.attempts, event.node),
        saving={**state.saving, event.node: replace(attempt, trained=event.revision)},
    )


def _unit_committed(state: State, event: UnitCommitted) -> State:
    assert state.plan is not None
    visit = event.visit
    attempt = _standing(state, event, visit.node, visit.attempt, visit.unit)
    trained = (visit.nodes, visit.strategy) == (attempt.nodes, attempt.strategy)
    _require(trained, event, f"it was to be trained by {attempt.strategy} on {attempt.nodes}")
    _require(visit.unit.phase is not Phase.PROFILE, event, "a trial is no visit (completeness)")
    _require(visit.input == attempt.input, event, f"its input is {attempt.input} (isolation)")
    _require(visit.skip == attempt.skip, event, f"it began after {attempt.skip} batches (completeness)")
    left_early = visit.unit.phase is Phase.TRAIN and visit.batches > 0 and not visit.done
    _require(visit.whole or left_early, event, "it cannot have been left before its end (completeness)")
    config = replace(advance(state.configs[visit.unit.config], visit, state.plan), revision=event.revision)
    timings, speed_factors = learn(state.timings, state.speed_factors, visit)
    committed = {**state.committed}
    for name in visit.nodes:
        committed[name] = max(committed.get(name, 0), visit.attempt)
    failed = any(name in state.streaks for name in visit.nodes)
    return replace(
        _over(state, attempt),
        configs={**state.configs, config.id: config},
        nodes=with_visit(state.nodes, visit),
        committed=committed,
        streaks=streaks_of(state.configs.values(), committed) if failed else state.streaks,
        quarantined_for={
            name: token for name, token in state.quarantined_for.items() if token > committed.get(name, 0)
        },
        timings=timings,
        speed_factors=speed_factors,
        fetches=waited(state.fetches, visit),
        curves=extend(state.curves, config, visit, state.plan),
        usage=add_usage(state.usage, visit),
        profiles=refined(state.profiles, visit),
    )


def _unit_failed(state: State, event: UnitFailed) -> State:
    failure = event.failure
    attempt = _standing(state, event, failure.node, failure.attempt, failure.unit)
    config = state.configs[failure.unit.config]
    remembers = replace(config, failures=(*config.failures, failure), revision=event.revision)
    counts = failure.attempt > state.committed.get(failure.node, 0)
    return replace(
        _over(state, attempt),
        configs={**state.configs, config.id: remembers},
        streaks=lengthen(state.streaks, failure) if counts else state.streaks,
    )


def _trial_done(state: State, event: ProfileDone) -> State:
    profile = event.profile
    attempt = _standing(state, event, profile.node, profile.attempt, profile.unit)
    _require(profile.unit.phase is Phase.PROFILE, event, "its unit is no trial")
    same = (profile.strategy, profile.hardware) == (attempt.strategy, attempt.hardware)
    _require(same, event, f"it was to try {attempt.strategy} on {attempt.hardware}")
    return replace(_over(state, attempt), profiles=profiled(state.profiles, profile))


def _unit_withdrawn(state: State, event: UnitWithdrawn) -> State:
    return _over(state, _attempt(state, event, event.node, event.token))


def _run_ended(state: State, event: RunEnded) -> State:
    live = sorted(c.id for c in state.configs.values() if c.status is Status.LIVE)
    _require(not live, event, f"live configs: {live}")
    return replace(state, outcome=event.outcome)


def _state_read(state: State, event: StateRead) -> State:
    _require(state.plan in (None, event.state.plan), event, f"the plan is {state.plan}")
    return event.state


_BEFORE_THE_RUN = (
    RunOpened,
    LeaderChanged,
    NodeJoined,
    NodeLeft,
    NodeReady,
    NodeDraining,
    NodeStalled,
    NodeRecovered,
    StateRead,
)

_TABLE: Mapping[type[Event], Callable[[State, Any], State]] = {
    RunOpened: _run_opened,
    LeaderChanged: _leader_changed,
    ConfigCreated: _config_created,
    ConfigEnded: _config_ended,
    ConfigResumed: _config_resumed,
    NodeJoined: _node_joined,
    NodeLeft: _node_left,
    NodeReady: _node_ready,
    NodeDraining: _node_draining,
    NodeQuarantined: _node_set_aside,
    NodeReleased: _node_forgiven,
    NodeStalled: _node_stalled,
    NodeRecovered: _node_recovered,
    RecordMended: _record_mended,
    HomesAssigned: _placed,
    Ordered: _ordered,
    UnitAssigned: _unit_assigned,
    UnitTrained: _unit_trained,
    UnitCommitted: _unit_committed,
    UnitFailed: _unit_failed,
    ProfileDone: _trial_done,
    UnitWithdrawn: _unit_withdrawn,
    RunEnded: _run_ended,
    StateRead: _state_read,
}

V = TypeVar("V")


def _without(mapping: Mapping[str, V], *keys: str) -> dict[str, V]:
    return {k: v for k, v in mapping.items() if k not in keys}


def _config(state: State, name: str, event: Event) -> Config:
    _require(name in state.configs, event, f"configs are {sorted(state.configs)}")
    return state.configs[name]


def _with(state: State, config: Config, asked: bool) -> State:
    """With ``config`` as it is now, whether the search or a person has ``asked`` for it."""
    configs = {**state.configs, config.id: config}
    return replace(state, configs=configs, asked=config.revision if asked else state.asked)


def _standing(state: State, event: Event, node: str, token: int, unit: Unit) -> Attempt:
    """The attempt named, if it may still report a result."""
    attempt = _attempt(state, event, node, token)
    _require(attempt.unit == unit, event, f"the node's attempt is {attempt} (fencing)")
    _require_standing(state, event, attempt)
    return attempt


def _attempt(state: State, event: Event, node: str, token: int) -> Attempt:
    attempt = state.attempt(node, token)
    if attempt is None:
        both = [state.attempts.get(node), state.saving.get(node)]
        raise IllegalEvent(f"{event} cannot be: the node's attempts are {both} (fencing)")
    return attempt


def _over(state: State, attempt: Attempt) -> State:
    """Without the attempt."""
    if attempt.trained:
        return replace(state, saving=_without(state.saving, attempt.node))
    return replace(state, attempts=_without(state.attempts, *attempt.nodes))


def _require_standing(state: State, event: Event, attempt: Attempt) -> None:
    _require(state.stands(attempt), event, "a node of it or its config has changed since it began (fencing)")


def _require(holds: bool, event: Event, why: str) -> None:
    if not holds:
        raise IllegalEvent(f"{event} cannot be: {why}")
