"""Does the memory of this process and all below it grow?"""

from __future__ import annotations

import statistics
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psutil

SECONDS = 0.5


@contextmanager
def watched() -> Iterator[list[int]]:
    """Bytes of all processes together (PSS), each half second until the block ends."""
    over, seen = threading.Event(), list[int]()

    def watch() -> None:
        while not over.wait(SECONDS):
            together = 0
            for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
                with suppress(psutil.Error):
                    together += process.memory_full_info().pss
            seen.append(together)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()


def growth(seen: list[int]) -> float:
    """Bytes from the second quarter of the time to the last."""
    quarter = len(seen) // 4
    return statistics.median(seen[-quarter:]) - statistics.median(seen[quarter : 2 * quarter])
