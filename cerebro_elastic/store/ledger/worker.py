"""A worker's writes to a run's record for its node's attempts.

Every verb is fenced by the attempt: its guard has the assignment (or the note that the attempt is being
saved), the config's revision, and the registrations of the attempt's nodes. A transaction whose answer was
lost is sent again as long as the attempt is current: its guard lets it through once.

The ranks of an attempt of several ranks meet at the address that rank 0 writes to ``meeting/<lead>``. That is
no event, because it does not change the run. An address is valid for the attempt whose token it has, as long
as that is assigned.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace

from cerebro_elastic.core.history.rows import Writer
from cerebro_elastic.core.model.attempts import Attempt, Failure, ProfileResult, Visit
from cerebro_elastic.core.model.configs import Config
from cerebro_elastic.core.model.events import (
    Event,
    ProfileDone,
    UnitCommitted,
    UnitFailed,
    UnitTrained,
    UnitWithdrawn,
)
from cerebro_elastic.core.model.nodes import Node
from cerebro_elastic.core.model.run import Plan
from cerebro_elastic.core.model.state import State
from cerebro_elastic.errors import Compacted, TxnUnknown
from cerebro_elastic.store.client.base import Delete, KeyValue, Put, at_revision
from cerebro_elastic.store.ledger.record import Record
from cerebro_elastic.store.ledger.transactions import value_of, write

_LOOK_SECONDS = 1.0
"""How often a rank that waits for the address looks whether its attempt is still assigned."""


@dataclass(frozen=True, slots=True)
class MeetingPlace:
    """Where rank 0 of an attempt listens."""

    token: int
    host: str
    """The address of the lead node."""
    port: int
    """The port of the group's store."""


@dataclass(frozen=True)
class WorkerLedger:
    """The verbs of a worker."""

    record: Record

    def mark_trained(self, attempt: Attempt, at: float = 0.0) -> Attempt | None:
        """Free the attempt's nodes for their next unit, ``at`` this wall-clock time, while the lead node
        saves this one.

        Guard: the attempt's, and that the node saves no other. Event: ``UnitTrained``.

        Returns:
            The attempt to commit or fail from now on; ``None`` if it may no longer commit, or if the node
            saves another.
        """
        event = UnitTrained(0, attempt.node, attempt.token, at)
        while True:
            refused = False
            with suppress(TxnUnknown):
                revision = self._write(_seen(attempt), event)
                if revision is not None:
                    return replace(attempt, trained=revision, freed=at)
                refused = True
            saving = self.record.saving(attempt.node)  # perhaps by an earlier try of ours
            if saving is not None and saving.token == attempt.token:
                return saving
            if refused or not self._is_current(attempt):
                return None

    def commit(self, attempt: Attempt, config: Config, visit: Visit, plan: Plan) -> bool:
        """Make the attempt a visit and advance its config. Event: ``UnitCommitted``. Returns ``False`` if
        the attempt may not commit any more."""
        if self._end(attempt, UnitCommitted(0, visit), config, plan):
            return True
        return self.record.visit(visit.unit, visit.index_in_epoch) == visit

    def fail(self, attempt: Attempt, config: Config, failure: Failure) -> bool:
        """End the attempt with a failure, which is kept with its config. Event: ``UnitFailed``. Returns
        ``False`` if the attempt is no longer its node's."""
        if self._end(attempt, UnitFailed(0, failure), config):
            return True
        recorded = self.record.config(config.id)
        return recorded is not None and failure in recorded.failures

    def record_profile(self, attempt: Attempt, profile: ProfileResult) -> bool:
        """End an attempt that profiled a strategy. Event: ``ProfileDone``. Returns ``False`` if the attempt
        is no longer its node's."""
        key = self.record.keys.profile(attempt.unit.config, attempt.token)
        return self._end(attempt, ProfileDone(0, profile)) or self.record.store.get(key) is not None

    def give_up(self, attempt: Attempt) -> bool:
        """Withdraw the attempt of a node that leaves and has nothing to commit. Event: ``UnitWithdrawn``.
        Returns ``False`` if the attempt is no longer its node's."""
        return self._end(attempt, UnitWithdrawn(0, attempt.node, attempt.token))

    def delete_unsigned(self, item: KeyValue) -> None:
        """Delete a key that is not signed with the run's key and blocks a signed one. Guard: it is at the
        revision that was read. No event."""
        with suppress(TxnUnknown):
            self.record.store.txn([at_revision(item.key, item.mod_revision)], [Delete(item.key)])

    def is_assigned(self, attempt: Attempt, node: str) -> bool:
        """Whether the ``node`` still has to train the attempt."""
        assigned = self.record.assignment(node, second=attempt.second_key)
        return assigned is not None and assigned.token == attempt.token

    def announce(self, attempt: Attempt, host: str, port: int) -> None:
        """Write where the lead listens. Guard: the attempt is assigned to its lead node. No event."""
        guard = [at_revision(self.record.keys.assign(attempt.node), attempt.token)]
        place = value_of(MeetingPlace(attempt.token, host, port))
        while True:
            with suppress(TxnUnknown):  # done twice is done
                self.record.store.txn(guard, [Put(self.record.keys.meeting(attempt.node), place)])
                return

    def meeting_place(self, attempt: Attempt, node: str) -> MeetingPlace | None:
        """Wait for the address, on the attempt's ``node``; ``None`` if the attempt is no longer assigned."""
        store, key = self.record.store, self.record.keys.meeting(attempt.node)
        while True:
            snapshot = store.range(key)
            for item in snapshot.items:
                place = self.record.value_in(item, MeetingPlace) if item.key == key else None
                if place is not None and place.token == attempt.token:
                    return place
            if not self.is_assigned(attempt, node):
                return None
            with store.watch(key, snapshot.revision + 1) as watch, suppress(Compacted):
                watch.next(_LOOK_SECONDS)

    def _end(
        self, attempt: Attempt, event: Event, config: Config | None = None, plan: Plan | None = None
    ) -> bool:
        """Write the event that ends the attempt. ``False``: it was refused, or written by an earlier
        transaction whose answer was lost."""
        seen = _seen(attempt, config, plan)
        while seen.may_report(attempt):
            try:
                return self._write(seen, event) is not None
            except TxnUnknown:
                if not self._is_current(attempt):
                    break
        return False

    def _write(self, seen: State, event: Event) -> int | None:
        return write(self.record, Writer.WORKER, seen, event, [], compares=("nodes", "configs"))

    def _is_current(self, attempt: Attempt) -> bool:
        """Whether the attempt is still its node's: in training, or being saved if it says so."""
        if not attempt.trained:
            return self.is_assigned(attempt, attempt.node)
        saving = self.record.saving(attempt.node)
        return saving is not None and saving.token == attempt.token


def _seen(attempt: Attempt, config: Config | None = None, plan: Plan | None = None) -> State:
    """A worker's part of the state: the attempt, and the nodes and the config as they were when it was
    assigned."""
    config = config or Config(attempt.unit.config, {}, revision=attempt.config_revision)
    return State(
        plan=plan,
        configs={config.id: config},
        nodes={m.node: Node(m.node, "", registration=m.registration) for m in attempt.members},
        attempts={} if attempt.trained else dict.fromkeys(attempt.nodes, attempt),
        saving={attempt.node: attempt} if attempt.trained else {},
    )
