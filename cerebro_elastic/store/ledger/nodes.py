"""What is written to a node's registration: by its agent, its ranks, and an operator that drains it.

Every verb changes the registration that it has read (its guard), under the lease that this has, and is sent
again when its answer was lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from cerebro_elastic.core.history.tallies import ready_node
from cerebro_elastic.core.model.events import NodeDraining, NodeJoined, NodeReady, NodeRecovered, NodeStalled
from cerebro_elastic.core.model.nodes import Node, Stall
from cerebro_elastic.errors import NameTaken, TxnUnknown
from cerebro_elastic.store.client.base import Delete, KeyValue, Put, absent, at_revision
from cerebro_elastic.store.ledger.foreign import ForeignValue, foreign_value, value_in
from cerebro_elastic.store.ledger.history import node_of
from cerebro_elastic.store.ledger.record import Record
from cerebro_elastic.store.ledger.transactions import transact, value_of


@dataclass(frozen=True)
class NodeLedger:
    """The verbs of a node."""

    record: Record

    def register(self, node: Node, lease: int) -> Node:
        """Register a node under ``lease``.

        An older registration of the node's own (of the same boot) is ended first, so that what was begun
        under it can no longer commit. A value that no node of the run has written is deleted. Guard: the name
        is free. Event: ``NodeJoined``.

        Returns:
            The node, with the revision of its registration.

        Raises:
            NameTaken: Another node of this name is alive.
        """
        key, value = self.record.keys.node(node.name), value_of(node)
        while True:
            old = self.record.store.get(key)
            if old is not None and old.lease == lease and _registers(old, node):
                return node_of(old)
            holder = _node(old) if old is not None else None
            if holder is not None and holder.boot != node.boot:
                raise NameTaken(
                    f"a node {node.name!r} of run {self.record.keys.run!r} is alive on {holder.host}: give "
                    "this one another name (--rdzv-conf=node=NAME), or end that one first"
                )
            try:
                if old is not None:
                    self.record.store.txn([at_revision(key, old.mod_revision)], [Delete(key)])
                transact(self.record, [absent(key)], [Put(key, value, lease)], NodeJoined(0, node))
            except TxnUnknown:
                continue

    def mark_ready(self, name: str, boot: str, cached: Sequence[int] = ()) -> None:
        """The node's ranks can take units, and its cache has the training partitions ``cached``. Event:
        ``NodeReady``. Does nothing if the node is not registered with this ``boot``, or is ready."""
        key = self.record.keys.node(name)
        while (item := self.record.store.get(key)) is not None:
            node = self._registered(item)
            if node is None or node.boot != boot or not node.starting:
                return
            ready = Put(key, value_of(ready_node(node, cached)), item.lease)
            guard = [at_revision(key, item.mod_revision)]
            with suppress(TxnUnknown):
                transact(self.record, guard, [ready], NodeReady(0, name, tuple(cached)))

    def drain(self, name: str, grace: float, boot: str | None = None) -> bool:
        """Ask a node to leave within ``grace`` seconds. Event: ``NodeDraining``, unless it was asked before.
        Returns ``False`` if it is not registered, or not with this ``boot``."""
        key = self.record.keys.node(name)
        while True:
            item = self.record.store.get(key)
            node = self._registered(item) if item is not None else None
            if item is None or node is None or boot not in (None, node.boot):
                return False
            if node.drain is not None:
                return True
            draining = Put(key, value_of(replace(node, drain=grace)), item.lease)
            guard = [at_revision(key, item.mod_revision)]
            with suppress(TxnUnknown):
                transact(self.record, guard, [draining], NodeDraining(0, name, grace))

    def report_stall(self, name: str, boot: str, stall: Stall | None) -> None:
        """The node's ranks show no sign of life although its lease is kept, or they do again (``None``).
        Event: ``NodeStalled`` or ``NodeRecovered``. Does nothing if the record says so already, or if the
        node is not registered with this ``boot``."""
        key = self.record.keys.node(name)
        while (item := self.record.store.get(key)) is not None:
            node = self._registered(item)
            if node is None or node.boot != boot or (node.stalled is None) == (stall is None):
                return
            event = NodeRecovered(0, name) if stall is None else NodeStalled(0, name, stall.since, stall.why)
            put = Put(key, value_of(replace(node, stalled=stall)), item.lease)
            with suppress(TxnUnknown):
                transact(self.record, [at_revision(key, item.mod_revision)], [put], event)

    def _registered(self, item: KeyValue) -> Node | None:
        """The node that ``item`` registers, as it was written; ``None`` if no node wrote it."""
        node = _node(item)
        if node is None:
            self.record.unreadable(foreign_value(item, "it registers no node that lives"))
        return node


def _registers(item: KeyValue, node: Node) -> bool:
    """Whether the registration is this node's, perhaps asked to leave since, or ready, or stalled."""
    now = _node(item)
    changing = {name: getattr(node, name) for name in ("drain", "starting", "cached", "stalled")}
    return now is not None and replace(now, **changing) == node


def _node(item: KeyValue) -> Node | None:
    """The node that ``item`` registers, as it was written; ``None`` if no node wrote it."""
    try:
        return value_in(item, Node, lambda node: node.name) if item.lease else None
    except ForeignValue:
        return None
