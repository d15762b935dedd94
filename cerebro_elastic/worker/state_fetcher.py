"""The hop: input states come from storage, fetched ahead where the controller said what is next."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Event
from typing import Any

from cerebro_elastic import checkpoint
from cerebro_elastic.checkpoint import Part
from cerebro_elastic.core.model.attempts import Prefetch
from cerebro_elastic.core.model.units import CheckpointRef
from cerebro_elastic.errors import DamagedCheckpoint, StorageError

Fetch = Callable[[int, Callable[[], None]], object]
"""Brings a partition into the cache, calling again and again what may end that by raising something."""
Repair = Callable[[CheckpointRef, DamagedCheckpoint], Any]
"""Makes a checkpoint whole again that was found damaged; see ``worker/repair.py``."""


class StateFetcher:
    """Loads states; holds at most one that was fetched ahead."""

    def __init__(self, fetch_partition: Fetch, repair: Repair) -> None:
        self._fetch_partition = fetch_partition
        self._repair = repair
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="prefetch")
        self._copier = ThreadPoolExecutor(1, thread_name_prefix="replicas")
        self._closed = Event()
        self._copied: dict[int, Future[object]] = {}
        self._ahead: tuple[CheckpointRef, Part | None, Future[Any]] | None = None

    def prefetch(self, hint: Prefetch | None, part: Part | None = None) -> None:
        """Fetch behind the present unit what the next one will probably need, a ``part`` of it as the present
        one does, and a replica, unless the last one is still on its way. What fails is fetched again by
        whoever really needs it."""
        if hint is None:
            return
        self._thread.submit(self._fetch_partition, hint.partition, self._check)
        if hint.input is not None:
            self._ahead = (hint.input, part, self._thread.submit(checkpoint.load, hint.input, part))
        due = next((j for j in hint.replicas if j not in self._copied), None)
        if due is not None and all(copy.done() for copy in self._copied.values()):
            self._copied[due] = self._copier.submit(self._fetch_partition, due, self._check)

    def copied(self, hint: Prefetch | None) -> tuple[int, ...]:
        """The replicas of the hint that are here by now."""
        done = {j for j, copy in self._copied.items() if copy.done() and copy.exception() is None}
        return tuple(j for j in hint.replicas if j in done) if hint is not None else ()

    def load(
        self, ref: CheckpointRef | None, part: Part | None = None, wait: Callable[[], None] | None = None
    ) -> Any:
        """The state at ``ref``, or a ``part`` of it (``checkpoint.load``), checked by its digest; ``None``
        for a config's first unit. If it is damaged it is repaired; a rank that is given ``wait`` calls that
        until another one has done so."""
        ahead, self._ahead = self._ahead, None
        if ref is None:
            return None
        if ahead is not None and ahead[:2] == (ref, part) and ahead[2].exception() is None:
            return ahead[2].result()
        while True:
            try:
                return checkpoint.load(ref, part)
            except DamagedCheckpoint as damage:
                if wait is None:
                    self._repair(ref, damage)
                    return checkpoint.load(ref, part)
                wait()

    def _check(self) -> None:
        if self._closed.is_set():
            raise StorageError("the fetch was broken off: the rank ends")

    def close(self) -> None:
        """What is being fetched is broken off: a node that is to leave does not wait for it."""
        self._closed.set()
        self._thread.shutdown(cancel_futures=True)
        self._copier.shutdown(cancel_futures=True)
