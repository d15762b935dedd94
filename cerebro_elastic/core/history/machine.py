"""What does an event change? The core machine: a run's state as a fold over its events.

Theory
------
A run consists of configs and nodes. A config is a chain of visits: each begins with the checkpoint of the
previous one. A node trains at most one attempt at a unit, and may save one more behind it.

The store puts all events into one order, the revisions. The machine reads the events in that order, so every
reader of the same history computes the same state. Hence a controller needs no memory: one that takes over at
any revision continues as its predecessor would have.

``TABLE`` has one row per event: who may write it, which keys it changes, which it compares, and a function
with the condition of the event and the state after it. The store's transactions are made from the same rows,
so that a process writes the very values that every reader will compute. A new event is a class
(``core/model/events.py``), a row and a test. The fields that follow from visits, profiles and failures alone
(timings, curves, streaks, ...) are computed in ``derived.py``.

An attempt may report a result (``State.may_report``) as long as the registrations of all its nodes exist and
its config is live and at the attempt's revision (fencing).

``NodeLeft`` keeps the attempt because the store keeps it too: the assignment is a separate key, and until it
is withdrawn no other node may get the config (isolation). The same holds for a gang: its attempt has a key
for each of its nodes, all are written and removed together, and without one of its nodes it cannot commit.

``NodeLeft`` and ``NodeReleased`` happen when a lease ends. No transaction guards them, so they are always
possible: another program may have written such a key and removed it.

An attempt is in training (``State.attempts``), queued behind the one in training (``State.queued``) or, after
``UnitTrained``, being saved (``State.saving``): at most one of each per node. It ends from any in the same
way, and when the one in training is over the queued one takes its place. So a node holds the states of two
configs at most, and a config is in one attempt at a time (isolation).
"""

from __future__ import annotations

from cerebro_elastic.core.history import run_events, unit_events
from cerebro_elastic.core.history.keys import named_in
from cerebro_elastic.core.history.rows import Rows
from cerebro_elastic.core.model.configs import Config
from cerebro_elastic.core.model.events import Event
from cerebro_elastic.core.model.state import State
from cerebro_elastic.errors import IllegalEvent

TABLE: Rows = {**run_events.ROWS, **unit_events.ROWS}


def fold(state: State, event: Event) -> State:
    """The state after ``event``.

    Raises:
        IllegalEvent: The event is not possible in ``state``.
    """
    row = TABLE[type(event)]
    if event.revision < state.revision and not event.afresh:
        raise IllegalEvent(
            f"{event} comes after revision {state.revision}; events are read in the store's order, each once"
        )
    if state.plan is None and not row.before_the_run:
        raise IllegalEvent(f"{event} comes before the run was opened")
    try:
        after = row.after(state, event)
    except IllegalEvent as error:
        raise IllegalEvent(f"{error}. {_last_events(state, event)}") from error
    return after if row.derives is None else row.derives(after, event)


def _last_events(state: State, event: Event) -> str:
    """The last events of the config and the nodes that the event concerns, for people."""
    configs, nodes = named_in(event)
    of_configs = [_last_of_config(state.configs[name]) for name in configs if name in state.configs]
    of_nodes = [_last_of_node(state, name) for name in nodes]
    return "; ".join([*of_configs, *of_nodes, f"last revision {state.revision}"])


def _last_of_config(config: Config) -> str:
    behind = f"in epoch {config.epoch + 1} behind partitions {list(config.visited)}"
    last = config.failures[-1] if config.failures else None
    failed = f", attempt {last.attempt} failed on {last.node} ({last.kind.value})" if last else ""
    return f"config {config.id}: {config.status.value} at revision {config.revision}, {behind}{failed}"


def _last_of_node(state: State, name: str) -> str:
    node = state.nodes.get(name)
    facts = [f"registered at revision {node.registration}" if node else "not registered"]
    for what, attempts in (("trains", state.attempts), ("queues", state.queued), ("saves", state.saving)):
        if name in attempts:
            facts.append(f"{what} attempt {attempts[name].token} of config {attempts[name].unit.config}")
    if name in state.committed:
        facts.append(f"committed attempt {state.committed[name]} last")
    return f"node {name}: {', '.join(facts)}"
