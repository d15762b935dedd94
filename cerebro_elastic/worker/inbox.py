"""What a node's rank is told: its assignments, and the end of the run."""

from __future__ import annotations

import queue
import threading
from contextlib import ExitStack
from typing import Self

from cerebro_elastic.core.values import Attempt
from cerebro_elastic.errors import Compacted, StoreError
from cerebro_elastic.store.history import attempt_of
from cerebro_elastic.store.ledger import Ledger


class Ended:
    """The run has ended."""


Message = Attempt | Ended | StoreError


class Inbox:
    """Assignments of one node, each once, in order, whatever happens to the connection."""

    def __init__(self, ledger: Ledger, node: str) -> None:
        self._ledger = ledger
        self._node = node
        self._messages: queue.SimpleQueue[Message] = queue.SimpleQueue()
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
        """The next assignment, ``None`` when the run has ended; raises what the store raised."""
        message = self._messages.get()
        if isinstance(message, StoreError):
            raise message
        return message if isinstance(message, Attempt) else None

    def _follow(self, key: str) -> None:
        try:
            while not self._closed.is_set():
                self._read_and_watch(key)
        except StoreError as error:
            self._messages.put(error)

    def _read_and_watch(self, key: str) -> None:
        """The key as it is, then its changes; afresh if they were compacted away."""
        snapshot = self._ledger.store.range(key)
        for item in (i for i in snapshot.items if i.key == key):
            self._messages.put(self._message(key, item))
        try:
            with self._ledger.store.watch(key, snapshot.revision + 1) as watch:
                while not self._closed.is_set():
                    batch = watch.next(0.5)
                    for change in batch.changes if batch else ():
                        if change.key == key and change.item is not None:
                            self._messages.put(self._message(key, change.item))
        except Compacted:
            return

    def _message(self, key: str, item: object) -> Message:
        return Ended() if key == self._ledger.keys.outcome else attempt_of(item)  # type: ignore[arg-type]
