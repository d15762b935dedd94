"""The store's news for a node's rank: its assignments, the request to leave, the end of the run."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Self

from cerebro_elastic.core.model.attempts import Attempt
from cerebro_elastic.core.model.events import RunEnded
from cerebro_elastic.core.model.nodes import Node
from cerebro_elastic.errors import Compacted
from cerebro_elastic.store.client.base import KeyValue, Watch
from cerebro_elastic.store.client.sealed import unsigned
from cerebro_elastic.store.ledger.nodes import NodeLedger
from cerebro_elastic.store.ledger.worker import WorkerLedger
from cerebro_elastic.worker.leaving import Leaving

Message = Attempt | BaseException | None
"""An assignment, or an error; ``None``: the run has ended, or the rank must leave."""


class AssignmentWatcher:
    """Watches the keys of the node of this name and ``boot`` id.

    Each assignment comes once, in order, whatever happens to the connection. A drained node sets ``leaving``,
    and ``leaving`` drains the node.
    """

    def __init__(self, ledger: WorkerLedger, node: str, boot: str, leaving: Leaving) -> None:
        self._ledger = ledger
        self._record = ledger.record
        self._node = node
        self._boot = boot
        self._leaving = leaving
        self._messages: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._last = 0
        self._threads: list[threading.Thread] = []
        self._watches: dict[str, Watch] = {}
        self._closed = threading.Event()
        self.registered: Node | None = None
        """The node as it was last seen in the store."""
        self.on_queued: Callable[[Attempt], None] = lambda _attempt: None
        """Called with each attempt that is queued behind another, as soon as it is seen."""

    def __enter__(self) -> Self:
        keys = self._record.keys
        first, second = keys.assign(self._node), keys.assign(self._node, second=True)
        readers = {
            (first, second): self._assigned,
            (keys.node(self._node),): self._registered,
            (keys.outcome,): self._ended,
        }
        for watched, read in readers.items():
            self._start(partial(self._follow, watched, read), watched[0])
        self._start(self._drain, "leaving")
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        self._leaving.close()
        for watch in list(self._watches.values()):
            watch.close()
        for thread in self._threads:
            thread.join(timeout=1.0)  # a request to a store that is away may take longer

    def next(self) -> Attempt | None:
        """Wait for the next assignment.

        Returns:
            The attempt; ``None`` when the run has ended or the rank must leave.

        Raises:
            BaseException: The exception of one of the threads.
        """
        if self._leaving.asked:
            return None
        message = self._messages.get()
        if isinstance(message, BaseException):
            raise message
        return message

    def waits(self) -> bool:
        """Whether ``next`` would return at once."""
        return not self._messages.empty()

    def give_up(self) -> None:
        """Give up the queue of a rank that leaves: other nodes need not wait for the end of its lease."""
        while self.waits():
            message = self._messages.get()
            if isinstance(message, Attempt) and message.may_queue and self._leaving.asked:
                # The history must have the reason: the thread that drains the node may be slower.
                NodeLedger(self._record).drain(self._node, max(0.0, self._leaving.left), self._boot)
                self._ledger.give_up(message)

    def alarm(self, error: BaseException) -> None:
        """Let ``next`` raise ``error``."""
        self._messages.put(error)

    def _start(self, work: Callable[[], None], name: str) -> None:
        def guarded() -> None:
            try:
                work()
            except Exception as error:  # next() raises it
                self._messages.put(error)

        thread = threading.Thread(target=guarded, name=f"assignment-watcher {name}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _follow(self, keys: Sequence[str], read: Callable[[KeyValue], None]) -> None:
        while not self._closed.is_set():
            try:
                self._read_and_watch(keys, read)
            except Compacted:
                continue

    def _read_and_watch(self, keys: Sequence[str], read: Callable[[KeyValue], None]) -> None:
        """Read the keys as they are, then their changes. The first is a prefix of all."""
        snapshot = self._record.store.range(keys[0])
        items: list[KeyValue | None] = [*sorted(snapshot.items, key=lambda item: item.mod_revision)]
        with self._record.store.watch(keys[0], snapshot.revision + 1) as watch:
            self._watches[keys[0]] = watch
            while not self._closed.is_set():
                for item in items:
                    # ``node-1`` is a prefix of ``node-10``.
                    if item is not None and item.key in keys:
                        self._accept(item, read)
                batch = watch.next()
                items = [change.item for change in batch.changes] if batch else []

    def _accept(self, item: KeyValue, read: Callable[[KeyValue], None]) -> None:
        """Read a signed value, and refuse an unsigned one. An unsigned registration is ignored: the node
        keeps the one that it made."""
        if not unsigned(item):
            read(item)
        elif item.key != self._record.keys.node(self._node):
            self._ledger.delete_unsigned(item)

    def _assigned(self, item: KeyValue) -> None:
        """A key may be read twice: pass on a new assignment only."""
        if item.mod_revision > self._last:
            self._last = item.mod_revision
            attempt = self._record.value_in(item, Attempt)
            if attempt is not None:
                self._messages.put(attempt)
                if attempt.queued_behind:
                    self.on_queued(attempt)

    def _registered(self, item: KeyValue) -> None:
        node = self._record.value_in(item, Node)
        self.registered = node
        if node is not None and node.boot == self._boot and node.drain is not None:
            self._leaving.ask(node.drain)

    def _ended(self, item: KeyValue) -> None:
        if self._record.value_in(item, RunEnded) is not None:
            self._messages.put(None)

    def _drain(self) -> None:
        """End the wait of an idle rank at once; announce that the node takes no more units."""
        grace = self._leaving.wait()
        if grace is None:
            return
        self._messages.put(None)
        NodeLedger(self._record).drain(self._node, grace, self._boot)
