"""What does an event change? The core machine: a run's state as a fold over its events.

Theory
------
A run consists of configs and nodes. A config is a chain of visits: each begins with the checkpoint that the
last one wrote. A node trains at most one attempt at a unit, and may save one more behind it.

The store puts everything that happens into one order, the revisions. The machine reads the events in that
order, so every reader of the same history computes the same state. Hence a controller needs no memory of its
own: one that takes over at any revision continues as the last one would have.

``fold`` is a table with one row per event. A row states when the event is possible; otherwise the machine
raises ``IllegalEvent``, and the state stays as it was. And it states what is true afterwards.

===============  ==============================================  =============================================
event            possible if                                     afterwards
===============  ==============================================  =============================================
RunOpened        no plan is known                                the plan is known
LeaderChanged    always                                          a controller leads, or none
RunEnded         no config is live                               the run has ended
RecordMended     the plan is known                               restored configs are at this revision,
                                                                 restored nodes neither registered nor
                                                                 quarantined, withdrawn attempts over
StateRead        no plan is known, or it has the same plan       the state is the one that was read
ConfigCreated    its id is new; it begins at the beginning,      it is live
                 where its parent stands, or at the plan's
                 checkpoint from outside the run
ConfigEnded      it is live; or a person stops what the search   it is stopped or failed
                 has stopped
ConfigResumed    it is stopped                                   it is live, where it was
NodeJoined       no node of its name is registered               it is registered
NodeLeft         always                                          it is not registered; its attempt stays, and
                                                                 can only be withdrawn
NodeReady        it is registered and starting                   it is ready, and the partitions in its cache
                                                                 are known
NodeDraining     it is registered and not draining               it leaves within the given seconds
NodeStalled      it is registered and not stalled                it gets no units
NodeRecovered    it is stalled                                   it gets units again
NodeQuarantined  it is idle and not quarantined; the failure is  it is quarantined for that failure
                 the last of its streak
NodeReleased     always                                          it is not quarantined
HomesAssigned    every partition has a home, none a node twice   partitions have these homes
Ordered          a controller leads                              the policy is shown this order
UnitAssigned     its nodes are registered as the attempt says,   the nodes are busy with the attempt
                 idle, and as many as its strategy takes; the
                 config is live, idle and at the attempt's
                 revision; the unit (or the unit that it
                 profiles) is one of its next; skip is what
                 earlier visits have trained of it
UnitTrained      the attempt is in training on this node alone,  the node is idle and saves the attempt behind
                 it stands, and is no profile; the node saves    its next unit; the config stays busy
                 no other
UnitCommitted    the attempt is the node's and stands; input,    the config has advanced, the attempt is over,
                 skip, strategy and nodes are the attempt's; a   the nodes' streaks up to it are over
                 visit that is not whole has trained a batch
UnitFailed       the attempt is the node's and stands            the config remembers the failure, the attempt
                                                                 is over, the streak of the node that failed
                                                                 is longer
ProfileDone      as UnitFailed, and the attempt profiles this    the result is known, the attempt is over
                 strategy
UnitWithdrawn    the attempt is the node's                       the attempt is over
===============  ==============================================  =============================================

An attempt *stands* as long as the registrations of all its nodes exist and its config is live and at the
attempt's revision (``State.stands``). Only then it may report a result (fencing).

``NodeLeft`` keeps the attempt because the store keeps it too: the assignment is a key of its own, and until
it is withdrawn no other node may get the config (isolation). The same holds for a gang: its attempt has a key
for each of its nodes, all are written and removed together, and without one of its nodes it cannot commit.

``NodeLeft`` and ``NodeReleased`` happen when a lease ends. No transaction guards them, so they are always
possible: another program may have written such a key and removed it.

An attempt is in training (``State.attempts``) or, after ``UnitTrained``, being saved (``State.saving``): at
most one of each per node. It ends from either in the same way. So a node holds the states of two configs at
most, and a config is in one attempt at a time (isolation).

What follows from visits, profiles and failures alone (timings, curves, streaks, ...) is in ``derived.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from cerebro_elastic.core.history.derived import after_failure, after_profile, after_visit
from cerebro_elastic.core.history.lineage import born, edge_from, may_end, with_status
from cerebro_elastic.core.history.progress import advance, is_next, skipped
from cerebro_elastic.core.history.tallies import ready_node
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
from cerebro_elastic.core.model.nodes import Node, Stall
from cerebro_elastic.core.model.state import State
from cerebro_elastic.core.model.units import Phase, Unit
from cerebro_elastic.errors import IllegalEvent

V = TypeVar("V")


def fold(state: State, event: Event) -> State:
    """The state after ``event``.

    Raises:
        IllegalEvent: The event is not possible in ``state``.
    """
    if event.revision < state.revision and not isinstance(event, StateRead):
        raise IllegalEvent(
            f"{event} comes after revision {state.revision}; events are read in the store's order, each once"
        )
    if state.plan is None and not isinstance(event, _BEFORE_THE_RUN):
        raise IllegalEvent(f"{event} comes before the run was opened")
    after = _TABLE[type(event)](state, event)
    return replace(after, revision=event.revision)


# The run and who leads it


def _run_opened(state: State, event: RunOpened) -> State:
    _require(state.plan is None, event, f"the plan is {state.plan}")
    return replace(state, plan=event.plan)


def _leader_changed(state: State, event: LeaderChanged) -> State:
    return replace(state, leader=event.leader)


def _run_ended(state: State, event: RunEnded) -> State:
    live = sorted(c.id for c in state.configs.values() if c.status is Status.LIVE)
    _require(not live, event, f"live configs: {live}")
    return replace(state, outcome=event.outcome)


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


def _state_read(state: State, event: StateRead) -> State:
    _require(state.plan in (None, event.state.plan), event, f"the plan is {state.plan}")
    return event.state


# Configs


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
    return _with_config(state, config, config.by_hand)


def _config_ended(state: State, event: ConfigEnded) -> State:
    config = _config(state, event.config, event)
    _require(event.status in (Status.STOPPED, Status.FAILED), event, "a config ends stopped or failed")
    _require(may_end(config, event), event, f"it is {config.status.value} already")
    return _with_config(state, replace(with_status(config, event), revision=event.revision), event.by_hand)


def _config_resumed(state: State, event: ConfigResumed) -> State:
    config = _config(state, event.config, event)
    _require(config.status is Status.STOPPED, event, f"it is {config.status.value}, not stopped")
    return _with_config(state, replace(with_status(config, event), revision=event.revision), event.by_hand)


# Nodes


def _node_joined(state: State, event: NodeJoined) -> State:
    _require(event.node.name not in state.nodes, event, "a node of this name is registered")
    return _with_node(state, event.node)


def _node_left(state: State, event: NodeLeft) -> State:
    return replace(state, nodes=_without(state.nodes, event.node))


def _node_ready(state: State, event: NodeReady) -> State:
    node = _registered(state, event.node, event)
    _require(node.starting, event, "it was ready before")
    return _with_node(state, ready_node(node, event.cached))


def _node_draining(state: State, event: NodeDraining) -> State:
    node = _registered(state, event.node, event)
    _require(node.drain is None, event, "it was asked to leave before")
    return _with_node(state, replace(node, drain=event.grace))


def _node_stalled(state: State, event: NodeStalled) -> State:
    node = _registered(state, event.node, event)
    _require(node.stalled is None, event, "it was stalled before")
    return _with_node(state, replace(node, stalled=Stall(event.since, event.why)))


def _node_recovered(state: State, event: NodeRecovered) -> State:
    node = _registered(state, event.node, event)
    _require(node.stalled is not None, event, "it is not stalled")
    return _with_node(state, replace(node, stalled=None))


def _node_quarantined(state: State, event: NodeQuarantined) -> State:
    streak = state.streaks.get(event.node)
    _require(event.node not in state.quarantined, event, "it is quarantined already")
    _require(event.node not in state.attempts, event, "it is busy (non-preemption)")
    _require(streak is not None and streak.last == event.failure, event, f"its streak is {streak}")
    return replace(
        state,
        quarantined={**state.quarantined, event.node: event.why},
        quarantined_for={**state.quarantined_for, event.node: event.failure},
    )


def _node_released(state: State, event: NodeReleased) -> State:
    return replace(state, quarantined=_without(state.quarantined, event.node))


# Homes, and the order of a planner


def _homes_assigned(state: State, event: HomesAssigned) -> State:
    assert state.plan is not None
    partitions = set(range(state.plan.partitions))
    _require(set(event.homes) == partitions, event, f"the partitions are 0 to {state.plan.partitions - 1}")
    valid = all(homes and len(set(homes)) == len(homes) for homes in event.homes.values())
    _require(valid, event, "a partition is at home on one node or several")
    return replace(state, homes=dict(event.homes))


def _ordered(state: State, event: Ordered) -> State:
    _require(state.leader is not None, event, "no controller leads")
    return replace(state, order=event.order)


# Units


def _unit_assigned(state: State, event: UnitAssigned) -> State:
    attempt = replace(event.attempt, token=event.revision)
    assert state.plan is not None
    busy = sorted(set(attempt.nodes) & set(state.attempts))
    _require(not busy, event, f"{busy} are busy (exclusive access)")
    sized = len(set(attempt.nodes)) == attempt.strategy.nodes
    _require(sized, event, f"its strategy takes {attempt.strategy.nodes} nodes, each once (exclusive access)")
    _require(state.running(attempt.unit.config) is None, event, "the config is in a unit (isolation)")
    _require(state.stands(attempt), event, "node or config is not as the attempt says (fencing)")
    config = state.configs[attempt.unit.config]
    _require(is_next(config, attempt.unit, state.plan), event, f"not a next unit of {config} (completeness)")
    _require(attempt.strategy in state.plan.strategies, event, "the plan has no such strategy")
    _require(
        attempt.skip == skipped(config), event, f"{config} has trained {config.partial_unit} (completeness)"
    )
    return replace(state, attempts={**state.attempts, **dict.fromkeys(attempt.nodes, attempt)})


def _unit_trained(state: State, event: UnitTrained) -> State:
    attempt = state.attempts.get(event.node)
    if attempt is None or attempt.token != event.token:
        raise IllegalEvent(f"{event} cannot be: the node's attempt is {attempt} (fencing)")
    _require_standing(state, event, attempt)
    _require(attempt.nodes == (event.node,), event, "a gang's attempt is saved by all of its nodes")
    _require(attempt.unit.phase is not Phase.PROFILE, event, "a profile saves nothing")
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
    as_assigned = (visit.nodes, visit.strategy) == (attempt.nodes, attempt.strategy)
    _require(as_assigned, event, f"it was to be trained by {attempt.strategy} on {attempt.nodes}")
    _require(visit.unit.phase is not Phase.PROFILE, event, "a profile is no visit (completeness)")
    _require(visit.input == attempt.input, event, f"its input is {attempt.input} (isolation)")
    _require(visit.skip == attempt.skip, event, f"it began after {attempt.skip} batches (completeness)")
    may_be_partial = visit.unit.phase is Phase.TRAIN and visit.batches > 0 and not visit.done
    _require(visit.whole or may_be_partial, event, "it cannot have been left before its end (completeness)")
    config = replace(advance(state.configs[visit.unit.config], visit, state.plan), revision=event.revision)
    advanced = replace(_over(state, attempt), configs={**state.configs, config.id: config})
    return after_visit(advanced, visit, config)


def _unit_failed(state: State, event: UnitFailed) -> State:
    failure = event.failure
    attempt = _standing(state, event, failure.node, failure.attempt, failure.unit)
    config = state.configs[failure.unit.config]
    updated = replace(config, failures=(*config.failures, failure), revision=event.revision)
    failed = replace(_over(state, attempt), configs={**state.configs, config.id: updated})
    return after_failure(failed, failure)


def _profile_done(state: State, event: ProfileDone) -> State:
    profile = event.profile
    attempt = _standing(state, event, profile.node, profile.attempt, profile.unit)
    _require(profile.unit.phase is Phase.PROFILE, event, "its unit is no profile")
    as_assigned = (profile.strategy, profile.hardware) == (attempt.strategy, attempt.hardware)
    _require(as_assigned, event, f"it was to profile {attempt.strategy} on {attempt.hardware}")
    return after_profile(_over(state, attempt), profile)


def _unit_withdrawn(state: State, event: UnitWithdrawn) -> State:
    return _over(state, _attempt(state, event, event.node, event.token))


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
    RunEnded: _run_ended,
    RecordMended: _record_mended,
    StateRead: _state_read,
    ConfigCreated: _config_created,
    ConfigEnded: _config_ended,
    ConfigResumed: _config_resumed,
    NodeJoined: _node_joined,
    NodeLeft: _node_left,
    NodeReady: _node_ready,
    NodeDraining: _node_draining,
    NodeStalled: _node_stalled,
    NodeRecovered: _node_recovered,
    NodeQuarantined: _node_quarantined,
    NodeReleased: _node_released,
    HomesAssigned: _homes_assigned,
    Ordered: _ordered,
    UnitAssigned: _unit_assigned,
    UnitTrained: _unit_trained,
    UnitCommitted: _unit_committed,
    UnitFailed: _unit_failed,
    ProfileDone: _profile_done,
    UnitWithdrawn: _unit_withdrawn,
}


# What the handlers share


def _require(holds: bool, event: Event, why: str) -> None:
    if not holds:
        raise IllegalEvent(f"{event} cannot be: {why}")


def _config(state: State, name: str, event: Event) -> Config:
    _require(name in state.configs, event, f"configs are {sorted(state.configs)}")
    return state.configs[name]


def _registered(state: State, name: str, event: Event) -> Node:
    _require(name in state.nodes, event, f"registered are {sorted(state.nodes)}")
    return state.nodes[name]


def _with_config(state: State, config: Config, asked: bool) -> State:
    """``state`` with ``config`` as it is now; ``asked``: a person has asked for the change."""
    configs = {**state.configs, config.id: config}
    return replace(state, configs=configs, asked=config.revision if asked else state.asked)


def _with_node(state: State, node: Node) -> State:
    return replace(state, nodes={**state.nodes, node.name: node})


def _standing(state: State, event: Event, node: str, token: int, unit: Unit) -> Attempt:
    """The attempt of this ``token``, if it may still report a result."""
    attempt = _attempt(state, event, node, token)
    _require(attempt.unit == unit, event, f"the node's attempt is {attempt} (fencing)")
    _require_standing(state, event, attempt)
    return attempt


def _attempt(state: State, event: Event, node: str, token: int) -> Attempt:
    attempt = state.attempt(node, token)
    if attempt is None:
        attempts = [state.attempts.get(node), state.saving.get(node)]
        raise IllegalEvent(f"{event} cannot be: the node's attempts are {attempts} (fencing)")
    return attempt


def _require_standing(state: State, event: Event, attempt: Attempt) -> None:
    _require(state.stands(attempt), event, "a node of it or its config has changed since it began (fencing)")


def _over(state: State, attempt: Attempt) -> State:
    """``state`` without the attempt."""
    if attempt.trained:
        return replace(state, saving=_without(state.saving, attempt.node))
    return replace(state, attempts=_without(state.attempts, *attempt.nodes))


def _without(mapping: Mapping[str, V], *keys: str) -> dict[str, V]:
    return {k: v for k, v in mapping.items() if k not in keys}
