"""The watchdog: a rank that hangs ends itself, and leaves the stacks of its threads to its agent.

Python's ``faulthandler`` does both in a thread of its own that needs no interpreter: also a rank that hangs
in native code, or holds the interpreter's lock, is ended. ``rendezvous/dumps.py`` reads what is written here.
"""

from __future__ import annotations

import faulthandler
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from cerebro_elastic.clock import Clock

_REARM_SECONDS = 1.0
"""A sign of life arms anew at most this often, as it starts a thread; four times at least before the end."""


class Watchdog:
    """Watches over one unit at a time; dumps go to the file ``dump``."""

    def __init__(self, dump: TextIO, clock: Clock) -> None:
        self._dump = dump
        self._clock = clock
        self._seconds: float | None = None
        self._armed = 0.0
        # So that the reader can tell the main thread's stack from the others'.
        dump.write(f"main {threading.main_thread().ident:#018x}\n")
        dump.flush()

    @contextmanager
    def catching_crashes(self) -> Iterator[None]:
        """Dump the stacks at fatal signals, too, as long as the block lasts."""
        faulthandler.enable(self._dump)
        try:
            yield
        finally:
            faulthandler.disable()

    @contextmanager
    def watching(self, seconds: float) -> Iterator[None]:
        """End this process if ``seconds`` pass in the block without a ``beat``."""
        self._seconds = seconds
        self._arm(seconds)
        try:
            yield
        finally:
            self._seconds = None
            faulthandler.cancel_dump_traceback_later()

    def beat(self) -> None:
        """A sign of life."""
        if self._seconds is None:
            return
        if self._clock.now() - self._armed >= min(_REARM_SECONDS, self._seconds / 4):
            self._arm(self._seconds)

    def _arm(self, seconds: float) -> None:
        self._armed = self._clock.now()
        faulthandler.dump_traceback_later(seconds, exit=True, file=self._dump)
