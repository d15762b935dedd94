"""Leaving on request: until when this rank may stay, and whether the rest of its unit fits into that time."""

from __future__ import annotations

import os
import queue
from collections.abc import Callable, Mapping
from pathlib import Path

from cerebro_elastic.config import seconds_from
from cerebro_elastic.core.history.estimates import fits
from cerebro_elastic.system.clock import Clock
from cerebro_elastic.system.forkserver import STAND_IN
from cerebro_elastic.system.process import is_alive

_TORCHRUN_NOTICE = 30.0


def grace_of(env: Mapping[str, str], wall: float) -> float:
    """Seconds that remain after a SIGTERM at ``wall`` (wall-clock time).

    They are ``CEREBRO_GRACE``, else a bit less than torchrun waits until it kills its ranks. The end of a
    Slurm job cuts them short.
    """
    grace = seconds_from(env, "CEREBRO_GRACE")
    if grace is None:
        notice = seconds_from(env, "TORCH_ELASTIC_SHUTDOWN_TIMEOUT")
        notice = _TORCHRUN_NOTICE if notice is None else notice
        grace = notice - max(1.0, notice / 10)
    end = seconds_from(env, "SLURM_JOB_END_TIME")
    return max(0.0, grace if end is None else min(grace, end - wall))


class Leaving:
    """Whether this rank must leave. ``ask`` takes no lock, so that a signal handler may call it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._deadline: float | None = None
        self._notices: queue.SimpleQueue[float | None] = queue.SimpleQueue()

    def ask(self, grace: float) -> None:
        """Leave within ``grace`` seconds. Of several calls the earliest deadline counts."""
        deadline = self._clock.now() + grace
        if self._deadline is None or deadline < self._deadline:
            self._deadline = deadline
        self._notices.put(grace)

    @property
    def asked(self) -> bool:
        return self._deadline is not None

    @property
    def left(self) -> float:
        """Seconds until the deadline; infinite without one."""
        return float("inf") if self._deadline is None else self._deadline - self._clock.now()

    def wait(self) -> float | None:
        """Wait for the request: its grace in seconds, or ``None`` after ``close``."""
        return self._notices.get()

    def close(self) -> None:
        """End all waits."""
        self._notices.put(None)

    def stop(self, total: int, skip: int, save: Callable[[], float]) -> Callable[[int], bool]:
        """``UnitJob.stop`` for a unit that begins now.

        Args:
            total: How many batches the unit has, skipped ones included.
            skip: How many of them were trained before.
            save: Returns the seconds that the save of its state will take.
        """
        began = self._clock.now()

        def stop(done: int) -> bool:
            if not self.asked:
                return False
            seconds_per_batch = (self._clock.now() - began) / max(1, done - skip)
            return not fits((total - done) * seconds_per_batch, save(), self.left)

        return stop


class Siblings:
    """The ranks of one node, by their files in ``folder``; this one is ``local_rank``. Their agent empties
    the folder before it starts them."""

    def __init__(self, folder: Path, local_rank: int) -> None:
        self._folder = folder
        self._own = folder / f"{local_rank}.pid"

    def come(self) -> None:
        """Register this rank as alive, and the process that stands in for it."""
        self._own.write_text(f"{os.getpid()} {os.getppid()} {os.environ.get(STAND_IN, '')}")

    def leave(self) -> None:
        """Record that this rank ends normally."""
        self._own.unlink(missing_ok=True)

    def died(self) -> bool:
        """Whether a rank of the node ended without leaving."""
        return any(not _lives(file) for file in self._folder.glob("*.pid") if file != self._own)


def _lives(file: Path) -> bool:
    try:
        pid, _, *stand_in = (file.read_text() or f"{os.getpid()} 0").split()  # empty: it is being written
    except FileNotFoundError:
        return True  # it has left since
    return all(is_alive(int(process)) for process in (pid, *stand_in))
