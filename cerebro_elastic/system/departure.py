"""The time until which this process may stay, once it was asked to leave: one deadline for all that it still
does. Code that waits for another process takes its limit from here."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_deadline = math.inf


def leave_within(seconds: float) -> None:
    """This process is to end within ``seconds``. Of several requests the earliest deadline counts. It takes
    no lock, so that a signal handler may call it."""
    global _deadline
    _deadline = min(_deadline, time.monotonic() + seconds)


def seconds_to_leave() -> float:
    """Seconds until the deadline, negative behind it; infinite if nobody has asked this process to leave."""
    return _deadline - time.monotonic()


def stay() -> None:
    """Forget the request: what was asked to leave is over, and the process goes on with something else."""
    global _deadline
    _deadline = math.inf


@contextmanager
def interrupts_at_rest(grace: float) -> Iterator[Callable[[], None]]:
    """In the block, Ctrl-C and SIGTERM have their effect where the function that is yielded is called.

    An exception that a signal raises between a lock and its ``with`` block leaves the lock taken for ever: so
    a run that was asked to stop could stand still in its connections to etcd. From the signal on the process
    has ``grace`` seconds. A second signal has its effect at once.
    """
    noted: list[int] = []
    before: dict[int, Any] = {}

    def note(number: int, frame: FrameType | None) -> None:
        leave_within(grace)
        noted.append(number)
        if len(noted) > 1:
            before[number](number, frame)

    def look() -> None:
        if len(noted) == 1:
            noted.append(noted[0])
            before[noted[0]](noted[0], None)

    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            if callable(handler := signal.getsignal(number)):
                before[number] = handler
                signal.signal(number, note)
    try:
        yield look
        look()
    finally:
        for handled, handler in before.items():
            signal.signal(handled, handler)
