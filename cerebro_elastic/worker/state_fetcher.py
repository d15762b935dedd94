"""The input side of a hop: states are loaded from storage, ahead of their unit where that is queued or the
controller has hinted at it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from threading import Event, Lock
from typing import Any

from cerebro_elastic.core.model.attempts import Attempt, Prefetch
from cerebro_elastic.core.model.units import CheckpointRef
from cerebro_elastic.errors import CerebroError, DamagedCheckpoint, StorageError
from cerebro_elastic.hop import checkpoint
from cerebro_elastic.hop.checkpoint import Part
from cerebro_elastic.system.cache_space import Room

Fetch = Callable[[int, Callable[[], None], Room], object]
"""Fetches a partition into the cache, if it has room, and returns an object that keeps it there. It calls the
given function often, which may raise to end the fetch."""
Repair = Callable[[CheckpointRef, DamagedCheckpoint], Any]
"""Restores a damaged checkpoint; see ``worker/offline/repair.py``."""


class StateFetcher:
    """Loads states; it holds at most one that was loaded ahead by a hint, and one for a queued unit."""

    def __init__(self, fetch_partition: Fetch, repair: Repair) -> None:
        self._fetch_partition = fetch_partition
        self._repair = repair
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="prefetch")
        self._loader = ThreadPoolExecutor(1, thread_name_prefix="states")
        self._copier = ThreadPoolExecutor(1, thread_name_prefix="replicas")
        self._closed = Event()
        self._next: tuple[int, Future[object]] | None = None
        self._copied: dict[int, Future[None]] = {}
        self._ahead: tuple[CheckpointRef, Part | None, Future[Any]] | None = None
        self._queued: dict[int, tuple[CheckpointRef, Future[Any]]] = {}
        self._lock = Lock()

    def queued(self, attempt: Attempt) -> None:
        """Load the state of a queued unit in the background. May be called in any thread, and before the unit
        ahead has taken its own state."""
        if attempt.input is None:
            return
        with self._lock:
            current = {t: s for t, s in self._queued.items() if t >= attempt.queued_behind}
            state = self._loader.submit(checkpoint.load, attempt.input)
            self._queued = {**current, attempt.token: (attempt.input, state)}

    def prefetch(self, hint: Prefetch | None, part: Part | None = None) -> None:
        """Fetch in the background the data that the next unit will probably need, and one replica; of its
        state the ``part`` of the present unit.

        A replica waits until the last one is fetched. A failure has no effect: needed data are fetched again.
        """
        self._next = None
        if hint is None:
            return
        fetch = self._thread.submit(self._fetch_partition, hint.partition, self._check, "next")
        self._next = (hint.partition, fetch)
        if hint.input is not None and not self._is_queued(hint.input):
            self._ahead = (hint.input, part, self._thread.submit(checkpoint.load, hint.input, part))
        due = next((j for j in hint.replicas if j not in self._copied), None)
        if due is not None and all(copy.done() for copy in self._copied.values()):
            self._copied[due] = self._copier.submit(self._copy, due)

    def begin(self, partition: int) -> None:
        """A unit on ``partition`` begins: a different partition fetched ahead is no longer kept."""
        if self._next is not None and self._next[0] != partition:
            self._next = None

    def copied(self, hint: Prefetch | None) -> tuple[int, ...]:
        """The replicas of the hint that have come by now."""
        present = {j for j, copy in self._copied.items() if copy.done() and copy.exception() is None}
        return tuple(j for j in hint.replicas if j in present) if hint is not None else ()

    def load(
        self, ref: CheckpointRef | None, part: Part | None = None, wait: Callable[[], None] | None = None
    ) -> Any:
        """Load a state, checked by its digest.

        Args:
            ref: The checkpoint; ``None`` for a config's first unit.
            part: The part of it to load; ``None``: the whole (``checkpoint.load``).
            wait: Called instead of a repair, until another rank has repaired a damaged checkpoint.
        """
        ahead = self._loaded_ahead(ref, part)
        if ref is None:
            return None
        if ahead is not None and ref.base_bytes and not ahead.done():
            with suppress(CerebroError):  # the same that the load ahead raises
                checkpoint.fetch_bases(ref)  # so that the caller's thread gives signs of life
        if ahead is not None and ahead.exception() is None:
            return ahead.result()
        while True:
            try:
                return checkpoint.load(ref, part)
            except DamagedCheckpoint as damage:
                if wait is None:
                    self._repair(ref, damage)
                    return checkpoint.load(ref, part)
                wait()

    def _loaded_ahead(self, ref: CheckpointRef | None, part: Part | None) -> Future[Any] | None:
        """Take the load of this state that was begun ahead; any other one begun by a hint is dropped."""
        hinted, self._ahead = self._ahead, None
        with self._lock:
            for token, (queued, state) in self._queued.items():
                if (queued, None) == (ref, part):
                    del self._queued[token]
                    return state
        return hinted[2] if hinted is not None and hinted[:2] == (ref, part) else None

    def _is_queued(self, ref: CheckpointRef) -> bool:
        with self._lock:
            return any(queued == ref for queued, _ in self._queued.values())

    def _copy(self, partition: int) -> None:
        """Fetch a replica, which the cache may drop again."""
        self._fetch_partition(partition, self._check, "spare")

    def _check(self) -> None:
        if self._closed.is_set():
            raise StorageError("the fetch was broken off: the rank ends")

    def close(self) -> None:
        """Break off all fetches: a node that must leave does not wait for them."""
        self._closed.set()
        self._thread.shutdown(cancel_futures=True)
        self._loader.shutdown(cancel_futures=True)
        self._copier.shutdown(cancel_futures=True)
