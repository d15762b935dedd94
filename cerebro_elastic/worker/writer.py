"""The writer: a thread that saves what a unit has left, while the rank goes on.

It has one state at a time, so that a rank holds two at most: that of the unit it trains, and the last one's.
Who has trained the next unit waits until the last one's visit is committed.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")

_BEAT_SECONDS = 1.0


class Writer:
    """Calls ``alarm`` with what the thread meets, but for errors of a save, which are its unit's."""

    def __init__(self, alarm: Callable[[BaseException], None]) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="writer")
        self._alarm = alarm
        self._left: Future[None] | None = None

    def begin(self, save: Callable[[], T]) -> Future[T]:
        """Begin to save; the last state must be saved."""
        assert not self.busy
        return self._thread.submit(save)

    def leave(self, end: Callable[[], None]) -> None:
        """Leave to the thread what is to be done behind the save."""
        self._left = self._thread.submit(end)
        self._left.add_done_callback(self._look)

    @property
    def busy(self) -> bool:
        """Whether something that was left to it is not done yet."""
        return self._left is not None and not self._left.done()

    def wait(self, beat: Callable[[], None]) -> None:
        """Wait until all that was left to it is done; raises what it has met."""
        while self._left is not None and not wait([self._left], _BEAT_SECONDS).done:
            beat()
        if self._left is not None:
            left, self._left = self._left, None
            left.result()

    def close(self) -> None:
        """Wait until it is done. What it has met was told."""
        with suppress(BaseException):
            self.wait(lambda: None)
        self._thread.shutdown()

    def _look(self, left: Future[None]) -> None:
        error = left.exception()
        if error is not None:
            self._alarm(error)
