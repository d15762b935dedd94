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
RunExtended      the run has ended; it is the next extension;    the plan has these epochs, the run goes on;
                 it has no fewer epochs; each config that is to  only nodes that register from now on get
                 go on has finished before the last epoch, or    units
                 is stopped
RecordMended     the plan is known                               restored configs are at this revision,
                                                                 restored nodes neither registered nor
                                                                 quarantined, withdrawn attempts over
StateRead        no plan is known, or it has the same plan, or   the state is the one that was read
                 was extended
ConfigCreated    its id is new; it begins at the beginning,      it is live
                 where its parent stands, or at the plan's
                 checkpoint from outside the run
ConfigEnded      it is live; or a person stops what the search   it is stopped or failed
                 has stopped
ConfigResumed    it is stopped; or the last extension lets it    it is live, where it was
                 go on, and it does not yet
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
UnitAssigned     its nodes are registered as the attempt says,   the nodes are busy with the attempt, or it is
                 since the last extension, idle, and as many     queued on its node
                 as its strategy takes; or the node trains an
                 attempt that one may queue behind; the
                 config is live, idle and at the attempt's
                 revision; the unit (or the unit that it
                 profiles) is one of its next; skip is what
                 earlier visits have trained of it
UnitTrained      the attempt is assigned to this node alone,     the node is idle and saves the attempt behind
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

An attempt is in training (``State.attempts``), queued behind the one in training (``State.queued``) or, after
``UnitTrained``, being saved (``State.saving``): at most one of each per node. It ends from any in the same
way, and when the one in training is over the queued one takes its place. So a node holds the states of two
configs at most, and a config is in one attempt at a time (isolation).

Each row is a function. Those of the run are here, the others in ``config_events.py``, ``node_events.py`` and
``unit_events.py``. The fields that follow from visits, profiles and failures alone (timings, curves, streaks,
...) are computed in ``derived.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from cerebro_elastic.core.history.config_events import CONFIG_EVENTS
from cerebro_elastic.core.history.guards import Handler, require, without, without_attempts
from cerebro_elastic.core.history.node_events import NODE_EVENTS
from cerebro_elastic.core.history.unit_events import UNIT_EVENTS
from cerebro_elastic.core.model.configs import Status
from cerebro_elastic.core.model.events import (
    Event,
    HomesAssigned,
    LeaderChanged,
    NodeDraining,
    NodeJoined,
    NodeLeft,
    NodeReady,
    NodeRecovered,
    NodeStalled,
    Ordered,
    RecordMended,
    RunEnded,
    RunExtended,
    RunOpened,
    StateRead,
)
from cerebro_elastic.core.model.state import State
from cerebro_elastic.errors import IllegalEvent


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


def _run_opened(state: State, event: RunOpened) -> State:
    require(state.plan is None, event, f"the plan is {state.plan}")
    return replace(state, plan=event.plan)


def _leader_changed(state: State, event: LeaderChanged) -> State:
    return replace(state, leader=event.leader)


def _run_ended(state: State, event: RunEnded) -> State:
    live = sorted(c.id for c in state.configs.values() if c.status is Status.LIVE)
    require(not live, event, f"live configs: {live}")
    return replace(state, outcome=event.outcome)


def _run_extended(state: State, event: RunExtended) -> State:
    assert state.plan is not None
    extension, epochs = event.extension, event.extension.epochs
    number = state.extension.number + 1 if state.extension is not None else 1
    require(state.outcome is not None, event, "the run has not ended")
    require(extension.number == number, event, f"the next extension is number {number}")
    require(epochs >= state.plan.epochs, event, f"configs have {state.plan.epochs} epochs already")
    require(
        set(state.configs) == {*extension.configs, *extension.others}, event, "each config goes on, or not"
    )
    for name, behind in extension.configs.items():
        config = state.configs[name]
        ended = config.status in (Status.FINISHED, Status.STOPPED)
        right = ended and config.epoch == behind < epochs
        require(right, event, f"{config} cannot go on after {behind} epochs (completeness)")
    return replace(
        state,
        plan=replace(state.plan, epochs=epochs),
        outcome=None,
        extension=extension,
        extended=event.revision,
    )


def _record_mended(state: State, event: RecordMended) -> State:
    mended = {
        name: replace(state.configs[name], revision=event.revision)
        for name in event.names("configs")
        if name in state.configs
    }
    asked = event.revision if state.asked and event.names("control") else state.asked
    return replace(
        without_attempts(state, *event.withdrawn),
        configs={**state.configs, **mended},
        nodes=without(state.nodes, *event.names("nodes")),
        quarantined=without(state.quarantined, *event.names("quarantined")),
        asked=asked,
    )


def _state_read(state: State, event: StateRead) -> State:
    known, read = state.plan, event.state.plan
    extended = known is not None and read is not None and replace(known, epochs=read.epochs) == read
    goes_on = extended and event.state.extension is not None
    require(known in (None, read) or goes_on, event, f"the plan is {state.plan}")
    return event.state


def _homes_assigned(state: State, event: HomesAssigned) -> State:
    assert state.plan is not None
    partitions = set(range(state.plan.partitions))
    require(set(event.homes) == partitions, event, f"the partitions are 0 to {state.plan.partitions - 1}")
    valid = all(homes and len(set(homes)) == len(homes) for homes in event.homes.values())
    require(valid, event, "a partition is at home on one node or several")
    return replace(state, homes=dict(event.homes))


def _ordered(state: State, event: Ordered) -> State:
    require(state.leader is not None, event, "no controller leads")
    return replace(state, order=event.order)


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

_RUN_EVENTS: Mapping[type[Event], Handler] = {
    RunOpened: _run_opened,
    LeaderChanged: _leader_changed,
    RunEnded: _run_ended,
    RunExtended: _run_extended,
    RecordMended: _record_mended,
    StateRead: _state_read,
    HomesAssigned: _homes_assigned,
    Ordered: _ordered,
}

_TABLE = {**_RUN_EVENTS, **CONFIG_EVENTS, **NODE_EVENTS, **UNIT_EVENTS}
