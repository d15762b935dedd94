"""The controller's verbs. Each is fenced by its leadership: the revision at which it became leader."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

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
from cerebro_elastic.store.ledger.changes import as_begun, cleared, config_changed, created, held, value_of
from cerebro_elastic.store.ledger.foreign import value_in
from cerebro_elastic.store.ledger.record import Record


class LeaderVerbs(Record):
    """What the leader of a run does to its record. A verb that is no longer the leader's, or whose guard does
    not hold otherwise, changes nothing and returns ``None``; one whose answer was lost raises
    ``TxnUnknown``."""

    def lead(
        self,
        controller: str,
        lease: int,
        versions: Mapping[str, str] | None = None,
        record: RecordHead | None = None,
    ) -> int | None:
        """Become leader under ``lease``: the fence for the verbs below; ``None`` if another leads. On record
        are the spec as it is now, the ``versions`` of what will decide, and where the leader's own ``record``
        ends. A key without a lease is no leader's, and would stay for ever."""
        key, value = self.keys.leader, controller.encode()
        found = self.store.get(key)
        if found is not None and not found.lease:
            with suppress(TxnUnknown):
                self.store.txn([at_revision(key, found.mod_revision)], [Delete(key)])
        spec = self.spec()
        basis = basis_of(spec) if spec is not None else None
        event = LeaderChanged(0, controller, basis, versions or {}, record)
        with suppress(TxnUnknown):
            self._do([absent(key)], [Put(key, value, lease)], event)
        # Also when refused: by an earlier try of ours, of whose success we never heard.
        item = self.store.get(key)
        return item.create_revision if item and (item.value, item.lease) == (value, lease) else None

    def create_config(self, config: Config, leader: int, parent: int = 0) -> int | None:
        """Add a config; one with a parent in the run, as long as that is at revision ``parent``."""
        return self._lead(leader, *created(self.keys, config, parent))

    def end_config(self, config: Config, status: Status, reason: str, leader: int) -> int | None:
        event = ConfigEnded(0, config.id, status, reason)
        return self._lead(leader, *config_changed(self.keys, config, event))

    def resume_config(self, config: Config, reason: str, leader: int) -> int | None:
        return self._lead(leader, *config_changed(self.keys, config, ConfigResumed(0, config.id, reason)))

    def place(self, homes: Mapping[int, tuple[str, ...]], leader: int) -> int | None:
        event = HomesAssigned(0, homes)
        return self._lead(leader, [], [Put(self.keys.homes, value_of(event))], event)

    def order(self, order: Order, leader: int) -> int | None:
        event = Ordered(0, order)
        return self._lead(leader, [], [Put(self.keys.order, value_of(event))], event)

    def assign(self, attempt: Attempt, leader: int) -> int | None:
        """Give the attempt to its nodes; returns its token."""
        keys, value = self.keys, value_of(attempt)
        idle = [absent(keys.assign(name)) for name in attempt.nodes]
        puts = [Put(keys.assign(name), value) for name in attempt.nodes]
        return self._lead(leader, [*idle, *as_begun(keys, attempt)], puts, UnitAssigned(0, attempt))

    def withdraw(self, attempt: Attempt, leader: int) -> int | None:
        event = UnitWithdrawn(0, attempt.node, attempt.token)
        return self._lead(leader, held(self.keys, attempt), cleared(self.keys, attempt), event)

    def set_aside(self, node: str, why: str, failure: int, seconds: float, leader: int) -> int | None:
        """Give the idle node no units until ``seconds`` are over, which the store counts, not we. Each
        failure is answered once."""
        event, keys = NodeQuarantined(0, node, why, failure, seconds), self.keys
        quarantined_for = self.store.get(keys.quarantined_for(node))
        if quarantined_for is not None and value_in(quarantined_for, NodeQuarantined).failure >= failure:
            return None
        guard = [
            absent(keys.quarantined(node)),
            absent(keys.assign(node)),
            at_revision(keys.quarantined_for(node), quarantined_for.mod_revision if quarantined_for else 0),
        ]
        lease = self.store.grant(seconds)
        puts = [
            Put(keys.quarantined(node), value_of(event), lease),
            Put(keys.quarantined_for(node), value_of(event)),
        ]
        return self._lead(leader, guard, puts, event)

    def end_run(self, outcome: str, leader: int, asked: int = 0) -> int | None:
        """End the run, unless a person has made a config live since revision ``asked``."""
        key, event = self.keys.outcome, RunEnded(0, outcome)
        guard = [absent(key), at_revision(self.keys.control, asked)]
        return self._lead(leader, guard, [Put(key, value_of(event))], event)

    def mend(
        self, ops: Sequence[Op], items: Mapping[str, KeyValue | None], withdrawn: Sequence[int], leader: int
    ) -> int | None:
        """Put right by ``ops`` what others have changed, as long as their keys are as in ``items``; the
        attempts with these tokens are over."""
        prefix = self.keys.prefix
        event = RecordMended(0, tuple(op.key.removeprefix(prefix) for op in ops), tuple(withdrawn))
        guard = [at_revision(key, item.mod_revision if item else 0) for key, item in items.items()]
        return self._lead(leader, guard, [*ops, Put(self.keys.mended, value_of(event))], event)

    def log(self, config: str, visits: int, controller: str) -> None:
        """Note that the loggers have so many visits of the config, unless another than ``controller`` leads.
        It is no event, for it says nothing about the run."""
        leader = self.store.get(self.keys.leader)
        if leader is None or leader.value == controller.encode():
            guard = created_at(self.keys.leader, leader.create_revision if leader else 0)
            with suppress(TxnUnknown):  # the config's next visit is noted, too
                self.store.txn([guard], [Put(self.keys.logged(config), str(visits).encode())])

    def _lead(self, leader: int, guard: Sequence[Compare], ops: Sequence[Op], event: Event) -> int | None:
        return self._do([created_at(self.keys.leader, leader), *guard], ops, event)
