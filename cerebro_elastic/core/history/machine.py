"""What does an event change? The core machine: a run's state as a fold over its events.

Theory
------
A run consists of configs and nodes. A config is a chain of visits: each begins with the checkpoint that the
last one wrote. A node trains at most one attempt at a unit, and may save one more behind it.

The store puts everything that happens into one order, the revisions. The machine reads the events in that
order, so every reader of the same history computes the same state. Hence a controller needs no memory of its
own: one that takes over at any revision continues as the last one would have.

``TABLE`` has one row per event: who may write it, which keys it changes, which it compares, and a function
that says when the event is possible and what is true afterwards. The store's transactions are made from the
same rows, so that a process writes what every reader will compute. A new event is a class
(``core/model/events.py``), a row and a test. The fields that follow from visits, profiles and failures alone
(timings, curves, streaks, ...) are computed in ``derived.py``.

An attempt *stands* as long as the registrations of all its nodes exist and its config is live and at the
attempt's revision (``State.may_report``). Only then it may report a result (fencing).

``NodeLeft`` keeps the attempt because the store keeps it too: the assignment is a key of its own, and until
it is withdrawn no other node may get the config (isolation). The same holds for a gang: its attempt has a key
for each of its nodes, all are written and removed together, and without one of its nodes it cannot commit.

``NodeLeft`` and ``NodeReleased`` happen when a lease ends. No transaction guards them, so they are always
possible: another program may have written such a key and removed it.

An attempt is in training (``State.attempts``), queued behind the one in training (``State.queued``) or, after
``UnitTrained``, being saved (``State.saving``): at most one of each per node. It ends from any in the same
way, and when the one in training is over the queued one takes its place. So a node holds the states of two
configs at most, and a config is in one attempt at a time (isolation).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from cerebro_elastic.core.history import config_events, derived, node_events, run_events, unit_events
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
    RunExtended,
    RunOpened,
    StateRead,
    UnitAssigned,
    UnitCommitted,
    UnitFailed,
    UnitTrained,
    UnitWithdrawn,
)
from cerebro_elastic.core.model.state import State
from cerebro_elastic.errors import IllegalEvent


class Writer(StrEnum):
    """Who writes to a run's record."""

    LEADER = "the leader"
    OPERATOR = "operators"
    WORKER = "workers"
    NODE = "nodes"


LEADER, OPERATOR, WORKER, NODE = Writer


@dataclass(frozen=True, slots=True)
class Row:
    """What an event is. Keys are named by their kinds (``KINDS``)."""

    after: Callable[[State, Any], State]
    """The state after the event. Raises ``IllegalEvent`` if the event is not possible."""
    by: tuple[Writer, ...] = ()
    """Who may write it; empty: it is no transaction."""
    keys: tuple[str, ...] = ()
    """What it changes."""
    also: tuple[str, ...] = ()
    """What it changes if that is there, or if a person has asked for it."""
    compares: tuple[str, ...] = ()
    """What must be as its writer has read it, beside what it changes and what fences its writer."""
    derives: Callable[[State, Any], State] | None = None
    """What readers compute from it besides, in the state after it; no key has that."""
    before_the_run: bool = False
    """It may happen before the run is opened."""


_ATTEMPT = ("assign", "saving")

TABLE: Mapping[type[Event], Row] = {
    RunOpened: Row(run_events.opened, (OPERATOR,), ("spec",), before_the_run=True),
    LeaderChanged: Row(run_events.leader_changed, (LEADER,), ("leader",), before_the_run=True),
    RunEnded: Row(run_events.ended, (LEADER,), ("outcome",), compares=("control",)),
    RunExtended: Row(run_events.extended, (OPERATOR,), ("spec", "outcome", "extended")),
    RecordMended: Row(run_events.mended, (LEADER,), ("mended",)),
    StateRead: Row(run_events.read, before_the_run=True),
    HomesAssigned: Row(run_events.homes_assigned, (LEADER,), ("homes",)),
    Ordered: Row(run_events.ordered, (LEADER,), ("order",)),
    ConfigCreated: Row(
        config_events.created,
        (LEADER, OPERATOR),
        ("configs",),
        also=("children", "control"),
        compares=("configs",),
    ),
    ConfigEnded: Row(config_events.ended, (LEADER, OPERATOR), ("configs",), also=("control",)),
    ConfigResumed: Row(config_events.resumed, (LEADER, OPERATOR), ("configs",), also=("control",)),
    NodeJoined: Row(node_events.joined, (NODE,), ("nodes",), before_the_run=True),
    NodeLeft: Row(node_events.left, before_the_run=True),
    NodeReady: Row(node_events.ready, (NODE,), ("nodes",), before_the_run=True),
    NodeDraining: Row(node_events.draining, (NODE, OPERATOR), ("nodes",), before_the_run=True),
    NodeStalled: Row(node_events.stalled, (NODE,), ("nodes",), before_the_run=True),
    NodeRecovered: Row(node_events.recovered, (NODE,), ("nodes",), before_the_run=True),
    NodeQuarantined: Row(
        node_events.quarantined, (LEADER,), ("quarantined", "quarantined_for"), compares=_ATTEMPT
    ),
    NodeReleased: Row(node_events.released),
    UnitAssigned: Row(unit_events.assigned, (LEADER,), ("assign",), compares=(*_ATTEMPT, "nodes", "configs")),
    UnitTrained: Row(unit_events.trained, (WORKER,), _ATTEMPT),
    UnitCommitted: Row(
        unit_events.committed, (WORKER,), ("visits", "configs"), also=_ATTEMPT, derives=derived.committed
    ),
    UnitFailed: Row(unit_events.failed, (WORKER,), ("configs",), also=_ATTEMPT, derives=derived.failed),
    ProfileDone: Row(unit_events.profiled, (WORKER,), ("profiles",), also=_ATTEMPT, derives=derived.profiled),
    UnitWithdrawn: Row(unit_events.withdrawn, (LEADER, WORKER), also=_ATTEMPT),
}


def fold(state: State, event: Event) -> State:
    """The state after ``event``.

    Raises:
        IllegalEvent: The event is not possible in ``state``.
    """
    row = TABLE[type(event)]
    if event.revision < state.revision and not isinstance(event, StateRead):
        raise IllegalEvent(
            f"{event} comes after revision {state.revision}; events are read in the store's order, each once"
        )
    if state.plan is None and not row.before_the_run:
        raise IllegalEvent(f"{event} comes before the run was opened")
    after = row.after(state, event)
    if row.derives is not None:
        after = row.derives(after, event)
    return replace(after, revision=event.revision)
