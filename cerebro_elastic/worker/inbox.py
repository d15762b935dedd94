"""What a node's rank is told: its assignments, and the end of the run."""

from __future__ import annotations

import queue
import threading
from contextlib import ExitStack
from typing import Self

from cerebro_elastic.core.values import Attempt
from cerebro_elastic.errors import Compacted
from cerebro_elastic.store.base import KeyValue
from cerebro_elastic.store.history import attempt_of
from cerebro_elastic.store.ledger import Ledger


class Ended:
    """The run has ended."""


Message = Attempt | Ended | Exception


class Inbox:
    """Assignments of one node, each once, in order, whatever happens to the connection."""

    def __init__(self, ledger: Ledger, node: str) -> None:
        self._ledger = ledger
        self._node = node
        self._messages: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._last = 0
        self._stack = ExitStack()
        self._closed = threading.Event()

    def __enter__(self) -> Self:
        for key in (self._ledger.keys.assign(self._node), self._ledger.keys.outcome):
            thread = threading.Thread(target=self._follow, args=(key,), name=f"inbox {key}", daemon=True)
            thread.start()
            self._stack.callback(thread.join)
        self._stack.callback(self._closed.set)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def next(self) -> Attempt | None:
        """The next assignment, ``None`` when the run has ended; raises what the threads met."""
        message = self._messages.get()
        if isinstance(message, Exception):
            raise message
        return message if isinstance(message, Attempt) else None

    def _follow(self, key: str) -> None:
        try:
            while not self._closed.is_set():
                self._read_and_watch(key)
        except Exception as error:  # whatever it is, it belongs to who waits in next()
            self._messages.put(error)

    def _read_and_watch(self, key: str) -> None:
        """The key as it is, then its changes; afresh if they were compacted away."""
        snapshot = self._ledger.store.range(key)
        for item in snapshot.items:
            self._take(key, item)
        try:
            with self._ledger.store.watch(key, snapshot.revision + 1) as watch:
                while not self._closed.is_set():
                    batch = watch.next(0.5)
                    for change in batch.changes if batch else ():
                        if change.item is not None:
                            self._take(key, change.item)
        except Compacted:
            return

    def _take(self, key: str, item: KeyValue) -> None:
        """Pass on what is new: a key may be read twice, and ``node-1`` is a prefix of ``node-10``."""
        if item.key != key:
            return
        if key == self._ledger.keys.outcome:
            self._messages.put(Ended())
        elif item.mod_revision > self._last:
            self._last = item.mod_revision
            self._messages.put(attempt_of(item))
