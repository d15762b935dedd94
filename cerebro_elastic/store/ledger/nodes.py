"""Writes to a node's registration: by its agent, its ranks, and an operator that drains it.

Every verb changes the registration that it has read (its guard), under the lease that this has, and is sent
again when its answer was lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from cerebro_elastic.core.history.rows import Writer
from cerebro_elastic.core.model.events import (
    Event,
    NodeDraining,
    NodeJoined,
    NodeReady,
    NodeRecovered,
    NodeStalled,
)
from cerebro_elastic.core.model.nodes import Node, Stall
from cerebro_elastic.core.model.state import State
from cerebro_elastic.errors import IllegalEvent, NameTaken, TxnUnknown
from cerebro_elastic.store.client.base import Delete, KeyValue, at_revision
from cerebro_elastic.store.ledger.foreign import ForeignValue, foreign_value, value_in
from cerebro_elastic.store.ledger.record import Record
from cerebro_elastic.store.ledger.transactions import write


@dataclass(frozen=True)
class NodeLedger:
    """The verbs of a node."""

    record: Record

    def register(self, node: Node, lease: int) -> Node:
        """Register a node under ``lease``.

        An older registration of the node's own (of the same boot) is ended first, so that attempts under it
        can no longer commit. A value that no node of the run has written is deleted. Guard: the name is free.
        Event: ``NodeJoined``.

        Returns:
            The node, with the revision of its registration.

        Raises:
            NameTaken: Another node of this name is alive.
        """
        key = self.record.keys.node(node.name)
        while True:
            old = self.record.store.get(key)
            holder = self._node(old) if old is not None else None
            if old is not None and old.lease == lease and holder is not None and _is(holder, node):
                return holder
            if holder is not None and holder.boot != node.boot:
                raise NameTaken(
                    f"a node {node.name!r} of run {self.record.keys.run!r} is alive on {holder.host}: give "
                    "this one another name (--rdzv-conf=node=NAME), or end that one first"
                )
            try:
                if old is not None:
                    self.record.store.txn([at_revision(key, old.mod_revision)], [Delete(key)])
                if write(self.record, Writer.NODE, State(), NodeJoined(0, node), [], lease=lease) is None:
                    # The stay of an earlier try may be there.
                    node = replace(node, joined=node.joined + _NEXT_STAY)
            except TxnUnknown:
                continue

    def mark_ready(self, name: str, boot: str, cached: Sequence[int] = ()) -> None:
        """The node's ranks can take units, and its cache has the training partitions ``cached``. Event:
        ``NodeReady``. Does nothing if the node is not registered with this ``boot``, or is ready."""
        self._update(name, boot, NodeReady(0, name, tuple(cached)))

    def drain(self, name: str, grace: float, boot: str | None = None) -> bool:
        """Request a node to leave within ``grace`` seconds. Event: ``NodeDraining``, unless it is leaving
        already. Returns ``False`` if it is not registered, or not with this ``boot``."""
        return self._update(name, boot, NodeDraining(0, name, grace))

    def report_stall(self, name: str, boot: str, stall: Stall | None) -> None:
        """The node's ranks show no sign of life although its lease is kept, or they do again (``None``).
        Event: ``NodeStalled`` or ``NodeRecovered``. Does nothing if the record says so already, or if the
        node is not registered with this ``boot``."""
        stalled = NodeStalled(0, name, stall.began, stall.why) if stall is not None else None
        self._update(name, boot, stalled or NodeRecovered(0, name))

    def _update(self, name: str, boot: str | None, event: Event) -> bool:
        """Let the ``event`` happen to the registration, unless it says so already. Returns whether the
        registration exists."""
        key = self.record.keys.node(name)
        while (item := self.record.store.get(key)) is not None:
            node = self._registered(item)
            if node is None or boot not in (None, node.boot):
                return False
            seen, guard = State(nodes={name: node}), [at_revision(key, item.mod_revision)]
            try:
                if write(self.record, Writer.NODE, seen, event, guard, lease=item.lease):
                    return True
            except IllegalEvent:
                return True
            except TxnUnknown:
                continue
        return False

    def _registered(self, item: KeyValue) -> Node | None:
        node = self._node(item)
        if node is None:
            self.record.unreadable(foreign_value(item, "it registers no node that lives"))
        return node

    def _node(self, item: KeyValue) -> Node | None:
        """The node that ``item`` registers; ``None`` if no node wrote it."""
        try:
            return value_in(item, self.record.keys, Node) if item.lease else None
        except ForeignValue:
            return None


_NEXT_STAY = 0.001
"""Seconds after which another stay of a node may begin: the names of stays have milliseconds."""


def _is(holder: Node, node: Node) -> bool:
    """Whether the registration is this node's, perhaps draining, ready or stalled since."""
    changing = ("registration", "drain", "starting", "cached", "stalled", "joined")
    return replace(holder, **{name: getattr(node, name) for name in changing}) == node
