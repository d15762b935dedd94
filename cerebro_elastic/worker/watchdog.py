"""The watchdog: a rank that hangs ends itself, and leaves the stacks of its threads to its agent.

It may watch two threads: one that trains, and one that saves the last unit. It then waits for the one whose
time ends first, and the dump names it.

Python's ``faulthandler`` does both in a thread that needs no interpreter: also a rank that hangs in native
code, or holds the interpreter's lock, is ended. ``rendezvous/heartbeats.py`` reads the dumps, and finds a
rank that is stopped and cannot even write one.
"""

from __future__ import annotations

import faulthandler
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TextIO

from cerebro_elastic.system.clock import Clock
from cerebro_elastic.worker.rendezvous.heartbeats import RankActivity

_REARM_SECONDS = 1.0
"""A beat rearms at most this often, as that starts a thread; at least four times before the end."""

_EARLY_SECONDS = 0.5
"""The process may end by so much too early, or by an eighth of its time, so that short units rearm
nothing."""


@dataclass
class _Watched:
    attempt: int
    """The token of its attempt."""
    seconds: float
    """The process ends after this many seconds without a beat."""
    at: float
    """When its last beat was, by the clock."""

    @property
    def ends(self) -> float:
        return self.at + self.seconds


class Watchdog:
    """Watches over the threads of one rank; dumps go to the file ``dump``."""

    def __init__(self, dump: TextIO, clock: Clock) -> None:
        self._dump = dump
        self._clock = clock
        self._lock = threading.Lock()
        self._watched: dict[int, _Watched] = {}
        self._announced: _Watched | None = None
        self._armed_until: float | None = None
        """When the process ends, by the clock, as things are."""
        # The reader needs it to find the main thread's stack.
        self._write(f"main {threading.main_thread().ident:#018x}")

    @contextmanager
    def catching_crashes(self) -> Iterator[None]:
        """Within the block: dump the stacks at fatal signals, too."""
        faulthandler.enable(self._dump)
        try:
            yield
        finally:
            faulthandler.disable()

    @contextmanager
    def watching(self, seconds: float, attempt: int = 0) -> Iterator[None]:
        """End this process if ``seconds`` pass in the block without a ``beat`` of this thread, which works on
        ``attempt``."""
        me = threading.get_ident()
        with self._lock:
            if me == threading.main_thread().ident:
                # If the process dies now, that is this attempt's failure, not that of the one being saved.
                self._write(f"begun {attempt}")
            self._watched[me] = _Watched(attempt, seconds, self._clock.now())
            self._arm()
        try:
            yield
        finally:
            with self._lock:
                del self._watched[me]
                self._arm()

    def activity(self) -> RankActivity:
        """The activity of the thread whose time ends first. It takes no lock: the heartbeat must not wait."""
        watched = min(list(self._watched.values()), key=lambda thread: thread.ends, default=None)
        if watched is None:
            return RankActivity()
        return RankActivity(watched.attempt, self._clock.now() - watched.at, watched.seconds)

    def beat(self) -> None:
        """This thread makes progress."""
        with self._lock:
            watched, now = self._watched.get(threading.get_ident()), self._clock.now()
            if watched is not None and now - watched.at >= min(_REARM_SECONDS, watched.seconds / 4):
                watched.at = now
                self._arm()

    def _arm(self) -> None:
        if not self._watched:
            self._armed_until = None
            faulthandler.cancel_dump_traceback_later()
            return
        thread, first = min(self._watched.items(), key=lambda item: item[1].ends)
        if first is not self._announced:
            self._announced = first
            self._write(f"watched {thread:#018x} {first.attempt} {first.seconds:g}")
        early = min(_EARLY_SECONDS, first.seconds / 8)
        if self._armed_until is not None and 0 <= first.ends - self._armed_until <= early:
            return
        self._armed_until = first.ends
        left = first.seconds - (self._clock.now() - first.at)
        faulthandler.dump_traceback_later(max(left, 0.001), exit=True, file=self._dump)

    def _write(self, line: str) -> None:
        self._dump.write(line + "\n")
        self._dump.flush()
