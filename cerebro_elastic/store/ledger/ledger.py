"""The ledger: every change of a run as one guarded transaction. Only it writes the run's keys.

The controller's verbs (``leading``) are fenced by its leadership, the worker's (``working``) by assignment,
config revision and registration (design, section 5); people's are in ``asking``; those that start a run and
register its nodes are here. A verb whose guard does not hold changes nothing and returns ``None`` or
``False``: the world has moved on, and the watch will tell how. A transaction whose answer was lost
(``TxnUnknown``) is sent again only where its guard lets it through once, whatever became of the first; the
controller's verbs raise it, and the controller waits for what its watch shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from cerebro_elastic.core.history.tallies import ready_node
from cerebro_elastic.core.model.events import (
    NodeDraining,
    NodeJoined,
    NodeReady,
    NodeRecovered,
    NodeStalled,
    RunOpened,
)
from cerebro_elastic.core.model.nodes import Node, Stall
from cerebro_elastic.core.model.run import Spec
from cerebro_elastic.errors import LeaseLost, NameTaken, TxnUnknown
from cerebro_elastic.store.client.base import Delete, KeyValue, Put, absent, at_revision
from cerebro_elastic.store.ledger.changes import value_of
from cerebro_elastic.store.ledger.foreign import ForeignValue, foreign, value_in
from cerebro_elastic.store.ledger.history import node_of
from cerebro_elastic.store.ledger.leader import LeaderVerbs
from cerebro_elastic.store.ledger.operator import OperatorVerbs
from cerebro_elastic.store.ledger.worker import WorkerVerbs


class Ledger(LeaderVerbs, OperatorVerbs, WorkerVerbs):
    """One run's ledger in a store: its record, and the verbs of all hands."""

    def open(self, spec: Spec) -> bool:
        """Write the spec, once; ``False`` if the run exists (perhaps by a try of ours without an answer)."""
        key, event = self.keys.spec, RunOpened(0, spec.plan)
        while True:
            try:
                return self._do([absent(key)], [Put(key, value_of(spec))], event) is not None
            except TxnUnknown:
                continue

    def renew(self, spec: Spec) -> None:
        """Write the spec of a run that goes on with changed code: no event, for the plan is as it was."""
        key, value = self.keys.spec, value_of(spec)
        while (known := self.store.get(key)) is not None and known.value != value:
            with suppress(TxnUnknown):
                self.store.txn([at_revision(key, known.mod_revision)], [Put(key, value)])

    def sign(self) -> None:
        """Sign what a run of before there were keys has written, in the order in which it was; the spec last,
        so that this can be done again."""
        items = sorted(self.store.bare.range(self.keys.prefix).items, key=lambda item: item.mod_revision)
        for item in sorted(items, key=lambda item: item.key == self.keys.spec):
            if self.keys.has_value(item.key) and self.store.signed(item) is False:
                with suppress(LeaseLost):  # the key goes with it
                    guard = at_revision(item.key, item.mod_revision)
                    self.store.txn([guard], [Put(item.key, item.value, item.lease)])

    def register(self, node: Node, lease: int) -> Node:
        """Register a node under ``lease``. An older registration of its own (of the same boot) is ended
        first, so that what was begun under it can no longer commit; another node's of the same name stands,
        and raises ``NameTaken``. What no node has written is taken away."""
        key, value = self.keys.node(node.name), value_of(node)
        while True:
            old = self.store.get(key)
            if old is not None and old.lease == lease and _registers(old, node):
                return node_of(old)
            holder = _node(old) if old is not None else None
            if holder is not None and holder.boot != node.boot:
                raise NameTaken(
                    f"a node {node.name!r} of run {self.keys.run!r} is alive on {holder.host}: give this one "
                    "another name (--rdzv-conf=node=NAME), or end that one first"
                )
            try:
                if old is not None:
                    self.store.txn([at_revision(key, old.mod_revision)], [Delete(key)])
                self._do([absent(key)], [Put(key, value, lease)], NodeJoined(0, node))
            except TxnUnknown:
                continue

    def ready(self, name: str, boot: str, cached: Sequence[int] = ()) -> None:
        """The ranks of the node are ready, and its cache has these training partitions. Nothing happens if it
        is not registered with this ``boot``."""
        key = self.keys.node(name)
        while (item := self.store.get(key)) is not None:
            node = self._registered(item)
            if node is None or node.boot != boot or not node.starting:
                return
            ready = Put(key, value_of(ready_node(node, cached)), item.lease)
            with suppress(TxnUnknown):
                self._do([at_revision(key, item.mod_revision)], [ready], NodeReady(0, name, tuple(cached)))

    def drain(self, name: str, grace: float, boot: str | None = None) -> bool:
        """Ask a node to leave within ``grace`` seconds; ``False`` if it is not registered, or not with this
        ``boot``. Nothing changes for one that was asked before."""
        key = self.keys.node(name)
        while True:
            item = self.store.get(key)
            node = self._registered(item) if item is not None else None
            if item is None or node is None or boot not in (None, node.boot):
                return False
            if node.drain is not None:
                return True
            asked = Put(key, value_of(replace(node, drain=grace)), item.lease)
            with suppress(TxnUnknown):
                self._do([at_revision(key, item.mod_revision)], [asked], NodeDraining(0, name, grace))

    def stalled(self, name: str, boot: str, stall: Stall | None) -> None:
        """The node shows no sign of life but its lease, or it does again (``None``). Nothing happens if that
        is known, or if it is not registered with this ``boot``."""
        key = self.keys.node(name)
        while (item := self.store.get(key)) is not None:
            node = self._registered(item)
            if node is None or node.boot != boot or (node.stalled is None) == (stall is None):
                return
            event = NodeRecovered(0, name) if stall is None else NodeStalled(0, name, stall.since, stall.why)
            put = Put(key, value_of(replace(node, stalled=stall)), item.lease)
            with suppress(TxnUnknown):
                self._do([at_revision(key, item.mod_revision)], [put], event)

    def forgive(self) -> None:
        """Let all nodes that are set aside work again now: somebody has mended what was wrong."""
        for item in self.store.range(self.keys.quarantined("")).items:
            self.store.revoke(item.lease)

    def _registered(self, item: KeyValue) -> Node | None:
        """The node that ``item`` registers, as it was written; ``None`` if it is no node's work."""
        node = _node(item)
        if node is None:
            self._unreadable(foreign(item, "it registers no node that lives"))
        return node

    def holds(self, name: str, lease: int) -> bool:
        """Whether the node's registration is there, under this ``lease``."""
        item = self.store.get(self.keys.node(name))
        return item is not None and item.lease == lease


def _registers(item: KeyValue, node: Node) -> bool:
    """Whether the registration is this node's, perhaps asked to leave since, or ready, or stalled."""
    now = _node(item)
    changing = {name: getattr(node, name) for name in ("drain", "starting", "cached", "stalled")}
    return now is not None and replace(now, **changing) == node


def _node(item: KeyValue) -> Node | None:
    """The node that ``item`` registers, as it was written; ``None`` if it is no node's work."""
    try:
        return value_in(item, Node, lambda node: node.name) if item.lease else None
    except ForeignValue:
        return None
