"""The deadline of a process that was asked to leave: one for all its remaining work. Code that waits for
another process takes its limit from here."""

from __future__ import annotations

import math
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_deadline = math.inf
_REST_SECONDS = 0.5
"""How long after its grace a process that still works is interrupted."""


def leave_within(seconds: float) -> None:
    """This process must end within ``seconds``. Of several requests the earliest deadline counts. It takes no
    lock, so that a signal handler may call it."""
    global _deadline
    _deadline = min(_deadline, time.monotonic() + seconds)


def seconds_to_leave() -> float:
    """Seconds until the deadline, negative after it; infinite without a request to leave."""
    return _deadline - time.monotonic()


def stay() -> None:
    """Forget the request: the work that had to end is over, and the process continues with other work."""
    global _deadline
    _deadline = math.inf


def within(seconds: float, least: float = 0.0) -> float:
    """``seconds``, or the time until the deadline, but at least ``least``: how long to wait for something
    that this process does not need."""
    return max(least, min(seconds, seconds_to_leave()))


@contextmanager
def interrupts_at_rest(
    grace: float, at_once: Callable[[], None] = lambda: None
) -> Iterator[Callable[[], None]]:
    """In the block, Ctrl-C and SIGTERM have their effect where the function that is yielded is called.

    An exception that a signal raises between a lock and its ``with`` block leaves the lock taken for ever: so
    a run that was asked to stop could hang in its connections to etcd. From the signal on the process has
    ``grace`` seconds; ``at_once`` is called in the signal's handler. A second signal has its effect at once,
    and so has the first where its grace has passed without a call. An error that follows a signal, such as
    that of a store that was not waited for any longer, gives way to the signal's effect.
    """
    noted: list[int] = []
    before: dict[int, Any] = {}
    signals: queue.SimpleQueue[int | None] = queue.SimpleQueue()
    main = threading.get_ident()

    def note(number: int, frame: FrameType | None) -> None:
        leave_within(0.0 if noted else grace)
        noted.append(number)
        if len(noted) > 1:
            before[number](number, frame)
        at_once()
        signals.put(number)

    def look() -> None:
        if len(noted) == 1:
            noted.append(noted[0])
            before[noted[0]](noted[0], None)

    def repeat() -> None:
        number = signals.get()
        try:
            signals.get(timeout=0.0 if number is None else grace + _REST_SECONDS)
        except queue.Empty:
            if number is not None and len(noted) == 1:
                signal.pthread_kill(main, number)

    repeater = threading.Thread(target=repeat, name="repeat a signal", daemon=True)
    repeater.start()
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            if callable(handler := signal.getsignal(number)):
                before[number] = handler
                signal.signal(number, note)
    try:
        yield look
        look()
    except Exception:
        look()
        raise
    finally:
        signals.put(None)
        repeater.join()
        for handled, handler in before.items():
            signal.signal(handled, handler)
