"""Kills workers as a benchmark of Ray Tune kills nodes: with 3 % each 10 s, here each sixth of a second."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

import psutil

SECONDS, PROBABILITY, WARM_SECONDS = 10 / 60, 0.03, 45 / 60
"""Theirs in minutes, ours in seconds."""
MOST = 9
"""Kills, as many as 50 of theirs' minutes have in the mean: a worker takes as long to start as ever."""


@contextmanager
def struck(workers: Callable[[], Sequence[psutil.Process]]) -> Iterator[list[int]]:
    """Kill one of the workers now and then, from when there are any until the block ends; the process ids of
    those that were killed."""
    over, killed, draw = threading.Event(), list[int](), random.Random(0)

    def strike() -> None:
        while not workers() and not over.wait(SECONDS):
            pass
        over.wait(WARM_SECONDS)
        while len(killed) < MOST and not over.wait(SECONDS):
            if draw.random() < PROBABILITY and (there := workers()):
                with suppress(psutil.NoSuchProcess):
                    worker = draw.choice(list(there))
                    worker.kill()
                    killed.append(worker.pid)

    thread = threading.Thread(target=strike)
    thread.start()
    try:
        yield killed
    finally:
        over.set()
        thread.join()


def children(mark: str, but: str = "\n") -> list[psutil.Process]:
    """The processes below this one whose command contains ``mark``, and not ``but``."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            command = " ".join(process.cmdline())
            if mark in command and but not in command:
                found.append(process)
    return found
