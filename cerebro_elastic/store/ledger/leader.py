"""What the leader writes to a run's record.

Every verb is fenced by the leadership: its guard has the revision at which the leader key was created. A
verb whose guard does not hold, because another leads or the world has moved on, changes nothing and returns
``None``. One whose answer was lost raises ``TxnUnknown``; the controller then waits for what its watch shows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from cerebro_elastic.core.model.attempts import Attempt
from cerebro_elastic.core.model.configs import Config, Status
from cerebro_elastic.core.model.events import (
    ConfigEnded,
    ConfigResumed,
    Event,
    HomesAssigned,
    LeaderChanged,
    NodeQuarantined,
    Ordered,
    RecordMended,
    RunEnded,
    UnitAssigned,
    UnitWithdrawn,
)
from cerebro_elastic.core.model.origin import basis_of
from cerebro_elastic.core.model.units import Order, RecordHead
from cerebro_elastic.errors import TxnUnknown
from cerebro_elastic.store.client.base import (
    Compare,
    Delete,
    KeyValue,
    Op,
    Put,
    absent,
    at_revision,
    created_at,
)
from cerebro_elastic.store.ledger.foreign import value_in
from cerebro_elastic.store.ledger.record import Record
from cerebro_elastic.store.ledger.transactions import (
    as_assigned,
    clearing,
    config_change,
    config_creation,
    current,
    transact,
    value_of,
)


def become_leader(
    record: Record,
    controller: str,
    lease: int,
    versions: Mapping[str, str] | None = None,
    head: RecordHead | None = None,
) -> LeaderLedger | None:
    """Become the run's leader under ``lease``.

    Guard: the run has no leader. A leader key without a lease is foreign, and is deleted first. Event:
    ``LeaderChanged``, with the digest of the spec as it is now.

    Args:
        record: The run.
        controller: The leader's name.
        lease: The lease with whose end the leadership ends.
        versions: The versions of the packages that will decide.
        head: Where the leader's own journal ends.

    Returns:
        The leader's ledger; ``None`` if another leads.
    """
    store, key, value = record.store, record.keys.leader, controller.encode()
    holder = store.get(key)
    if holder is not None and not holder.lease:
        with suppress(TxnUnknown):
            store.txn([at_revision(key, holder.mod_revision)], [Delete(key)])
    spec = record.spec()
    basis = basis_of(spec) if spec is not None else None
    event = LeaderChanged(0, controller, basis, versions or {}, head)
    with suppress(TxnUnknown):
        transact(record, [absent(key)], [Put(key, value, lease)], event)
    # Also when refused: by an earlier try of ours, of whose success we never heard.
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
    """The verbs of one leadership; a leader that is elected again gets another."""

    record: Record
    fence: int
    """The revision at which this leader was elected."""

    def create_config(self, config: Config, parent: int = 0) -> int | None:
        """Add a config. Guard: its id is free; its parent in the run is at revision ``parent``. Event:
        ``ConfigCreated``."""
        return self._transact(*config_creation(self.record.keys, config, parent))

    def end_config(self, config: Config, status: Status, reason: str) -> int | None:
        """End a config. Guard: it is at the revision that was read. Event: ``ConfigEnded``."""
        event = ConfigEnded(0, config.id, status, reason)
        return self._transact(*config_change(self.record.keys, config, event))

    def resume_config(
        self, config: Config, reason: str, extension: int = 0, *, by_hand: bool = False
    ) -> int | None:
        """Let a config go on that is stopped, or that the ``extension`` of this number lets go on. Guard: it
        is at the revision that was read. Event: ``ConfigResumed``."""
        event = ConfigResumed(0, config.id, reason, by_hand, extension)
        return self._transact(*config_change(self.record.keys, config, event))

    def assign_homes(self, homes: Mapping[int, tuple[str, ...]]) -> int | None:
        """Write the home nodes of each partition. Event: ``HomesAssigned``."""
        event = HomesAssigned(0, homes)
        return self._transact([], [Put(self.record.keys.homes, value_of(event))], event)

    def set_order(self, order: Order) -> int | None:
        """Write the order of units that the policy's solver found. Event: ``Ordered``."""
        event = Ordered(0, order)
        return self._transact([], [Put(self.record.keys.order, value_of(event))], event)

    def assign(self, attempt: Attempt) -> int | None:
        """Assign the attempt to its nodes; returns its token.

        Guard: the nodes have no unit, or the node has the one that the attempt is to be queued behind; the
        nodes are registered as the attempt says, and the config is at its revision. Event:
        ``UnitAssigned``."""
        keys, value = self.record.keys, value_of(attempt)
        assigned = [keys.assign(name, second=attempt.second) for name in attempt.nodes]
        others = [keys.assign(name, second=not attempt.second) for name in attempt.nodes]
        before = [at_revision(key, attempt.behind) for key in others]
        guard = [*map(absent, assigned), *before, *as_assigned(keys, attempt)]
        return self._transact(guard, [Put(key, value) for key in assigned], UnitAssigned(0, attempt))

    def withdraw(self, attempt: Attempt) -> int | None:
        """Take an attempt back: it cannot commit any more. Guard: it is assigned, or being saved. Event:
        ``UnitWithdrawn``."""
        keys, event = self.record.keys, UnitWithdrawn(0, attempt.node, attempt.token)
        return self._transact(current(keys, attempt), clearing(keys, attempt), event)

    def quarantine(self, node: str, why: str, failure: int, seconds: float) -> int | None:
        """Give the idle node no units for ``seconds``, which the store counts by a lease.

        Guard: the node is idle and not in quarantine, and was not quarantined for this ``failure`` (the token
        of the failed attempt) or a later one. Event: ``NodeQuarantined``.
        """
        keys, store = self.record.keys, self.record.store
        event = NodeQuarantined(0, node, why, failure, seconds)
        before = store.get(keys.quarantined_for(node))
        if before is not None and value_in(before, NodeQuarantined).failure >= failure:
            return None
        guard = [
            absent(keys.quarantined(node)),
            absent(keys.assign(node)),
            absent(keys.assign(node, second=True)),
            at_revision(keys.quarantined_for(node), before.mod_revision if before else 0),
        ]
        lease = store.grant(seconds)
        puts = [
            Put(keys.quarantined(node), value_of(event), lease),
            Put(keys.quarantined_for(node), value_of(event)),
        ]
        return self._transact(guard, puts, event)

    def end_run(self, outcome: str, asked: int = 0) -> int | None:
        """End the run. Guard: it has not ended, and no operator has asked for anything since revision
        ``asked``. Event: ``RunEnded``."""
        key, event = self.record.keys.outcome, RunEnded(0, outcome)
        guard = [absent(key), at_revision(self.record.keys.control, asked)]
        return self._transact(guard, [Put(key, value_of(event))], event)

    def mend(
        self, ops: Sequence[Op], items: Mapping[str, KeyValue | None], withdrawn: Sequence[int]
    ) -> int | None:
        """Put right by ``ops`` what others have changed. Guard: the keys are as in ``items``. Event:
        ``RecordMended``; the attempts with the tokens ``withdrawn`` are over."""
        prefix = self.record.keys.prefix
        event = RecordMended(0, tuple(op.key.removeprefix(prefix) for op in ops), tuple(withdrawn))
        guard = [at_revision(key, item.mod_revision if item else 0) for key, item in items.items()]
        return self._transact(guard, [*ops, Put(self.record.keys.mended, value_of(event))], event)

    def _transact(self, guard: Sequence[Compare], ops: Sequence[Op], event: Event) -> int | None:
        return transact(self.record, [created_at(self.record.keys.leader, self.fence), *guard], ops, event)
