"""The leader's writes to a run's record.

Every transaction is fenced by the leadership: its guard has the revision at which the leader key was created.
If the guard does not hold, because another leads or the run's state has changed, nothing changes. If the
answer is lost, ``TxnUnknown`` is raised, and the controller waits until its watch shows the outcome.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from cerebro_elastic.core.history.rows import Writer
from cerebro_elastic.core.model.events import Event, LeaderChanged, NodeQuarantined
from cerebro_elastic.core.model.origin import basis_of
from cerebro_elastic.core.model.state import State
from cerebro_elastic.core.model.units import RecordHead
from cerebro_elastic.errors import TxnUnknown
from cerebro_elastic.store.client.base import (
    Compare,
    Put,
    absent,
    at_revision,
    created_at,
)
from cerebro_elastic.store.ledger.foreign import value_in
from cerebro_elastic.store.ledger.record import Record
from cerebro_elastic.store.ledger.transactions import transact, write


def become_leader(
    record: Record,
    controller: str,
    lease: int,
    versions: Mapping[str, str] | None = None,
    head: RecordHead | None = None,
) -> LeaderLedger | None:
    """Become the run's leader under ``lease``.

    Guard: the run has no leader. Event: ``LeaderChanged``, with the digest of the spec as it is now.

    Args:
        controller: The leader's name.
        lease: The lease whose end ends the leadership.
        versions: The versions of the packages that will decide.
        head: Where the leader's own journal ends.

    Returns:
        The leader's ledger; ``None`` if another leads.
    """
    store, key, value = record.store, record.keys.leader, controller.encode()
    spec = record.spec()
    basis = basis_of(spec) if spec is not None else None
    event = LeaderChanged(0, controller, basis, versions or {}, head)
    with suppress(TxnUnknown):
        transact(record, [absent(key)], [Put(key, value, lease)], event)
    # Also when refused: by an earlier try of ours whose answer was lost.
    holder = store.get(key)
    ours = holder is not None and (holder.value, holder.lease) == (value, lease)
    return LeaderLedger(record, holder.create_revision) if holder is not None and ours else None


def note_logged(record: Record, controller: str, config: str, visits: int) -> None:
    """Note how many visits of the config the loggers have, unless another than ``controller`` leads.

    No event: it says nothing about the run.
    """
    leader = record.store.get(record.keys.leader)
    if leader is None or leader.value == controller.encode():
        guard = created_at(record.keys.leader, leader.create_revision if leader else 0)
        with suppress(TxnUnknown):  # the config's next visit is noted, too
            record.store.txn([guard], [Put(record.keys.logged(config), str(visits).encode())])


@dataclass(frozen=True)
class LeaderLedger:
    """The writes of one leadership; a leader that is elected again gets another ledger."""

    record: Record
    fence: int
    """The revision at which this leader was elected."""

    def write(self, state: State, event: Event) -> int | None:
        """Write the decision that was made in ``state``; answers as ``transactions.write``."""
        if isinstance(event, NodeQuarantined):
            return self._quarantine(state, event)
        return write(self.record, Writer.LEADER, state, event, [self._leads])

    def _quarantine(self, state: State, event: NodeQuarantined) -> int | None:
        """The store counts the quarantine's seconds by a lease. Guard: the node was not quarantined for this
        failure, or a later one."""
        record = self.record
        key = record.keys.quarantined_for(event.node)
        before = record.store.get(key)
        if before is not None and value_in(before, record.keys, NodeQuarantined).failure >= event.failure:
            return None
        guard = [self._leads, at_revision(key, before.mod_revision if before else 0)]
        lease = record.store.grant(event.seconds)
        return write(record, Writer.LEADER, state, event, guard, lease=lease)

    @property
    def _leads(self) -> Compare:
        return created_at(self.record.keys.leader, self.fence)
