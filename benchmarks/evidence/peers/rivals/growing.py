"""Does the memory of this process and all below it grow?"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psutil

SECONDS = 0.5


@contextmanager
def watched() -> Iterator[list[tuple[float, int]]]:
    """The time, and the bytes of all processes together (PSS), each half second until the block ends."""
    over, seen = threading.Event(), list[tuple[float, int]]()

    def watch() -> None:
        while not over.wait(SECONDS):
            together = 0
            for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
                with suppress(psutil.Error):
                    together += process.memory_full_info().pss
            seen.append((time.time(), together))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()


def growth(seen: list[tuple[float, int]], began: float, ended: float) -> float:
    """Bytes from the second quarter of the time between the first pause and the last to its last quarter."""
    quarter = (ended - began) / 4

    def middle(number: int) -> float:
        since = began + number * quarter
        return statistics.median(size for at, size in seen if since <= at <= since + quarter)

    return middle(3) - middle(1)
