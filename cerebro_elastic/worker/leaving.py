"""Leaving on purpose: until when this rank may stay, and whether what is left of its unit fits."""

from __future__ import annotations

import os
import queue
from collections.abc import Callable, Mapping
from pathlib import Path

from cerebro_elastic.clock import Clock
from cerebro_elastic.config import seconds_from
from cerebro_elastic.core.history.estimates import fits

_TORCHRUN_NOTICE = 30.0


def grace_of(env: Mapping[str, str], wall: float) -> float:
    """Seconds that a SIGTERM which comes at ``wall`` leaves: ``CEREBRO_GRACE``, else a bit less than
    torchrun's own time until it kills its ranks; a Slurm job's end, which is wall-clock time, cuts it short.
    """
    grace = seconds_from(env, "CEREBRO_GRACE")
    if grace is None:
        notice = seconds_from(env, "TORCH_ELASTIC_SHUTDOWN_TIMEOUT")
        notice = _TORCHRUN_NOTICE if notice is None else notice
        grace = notice - max(1.0, notice / 10)
    end = seconds_from(env, "SLURM_JOB_END_TIME")
    return max(0.0, grace if end is None else min(grace, end - wall))


class Leaving:
    """Whether this rank was asked to leave. Who asks may be a signal handler: ``ask`` takes no lock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._deadline: float | None = None
        self._notices: queue.SimpleQueue[float | None] = queue.SimpleQueue()

    def ask(self, grace: float) -> None:
        """Leave within ``grace`` seconds. Asked several times, the earliest deadline counts."""
        deadline = self._clock.now() + grace
        if self._deadline is None or deadline < self._deadline:
            self._deadline = deadline
        self._notices.put(grace)

    @property
    def asked(self) -> bool:
        return self._deadline is not None

    @property
    def left(self) -> float:
        """Seconds until the deadline; infinite if there is none."""
        return float("inf") if self._deadline is None else self._deadline - self._clock.now()

    def wait(self) -> float | None:
        """Wait until asked: the grace; ``None`` after ``close``."""
        return self._notices.get()

    def close(self) -> None:
        """Let go who waits."""
        self._notices.put(None)

    def stop(self, total: int, skip: int, save: Callable[[], float]) -> Callable[[int], bool]:
        """What a unit asks at each batch boundary (``UnitJob.stop``), from its beginning on: it has ``total``
        batches to do, without the ``skip`` first, and then needs as many seconds as ``save`` says."""
        began = self._clock.now()

        def stop(done: int) -> bool:
            if not self.asked:
                return False
            seconds_per_batch = (self._clock.now() - began) / max(1, done - skip)
            return not fits((total - done) * seconds_per_batch, save(), self.left)

        return stop


class Siblings:
    """The ranks whose files are in ``folder``; this one is ``local_rank``. Its agent empties the folder
    before it starts ranks."""

    def __init__(self, folder: Path, local_rank: int) -> None:
        self._folder = folder
        self._own = folder / f"{local_rank}.pid"

    def come(self) -> None:
        """This rank lives."""
        self._own.write_text(f"{os.getpid()} {os.getppid()}")

    def leave(self) -> None:
        """This rank ends as it should."""
        self._own.unlink(missing_ok=True)

    def died(self) -> bool:
        """Whether a rank of the node ended without leaving."""
        return any(not _lives(file) for file in self._folder.glob("*.pid") if file != self._own)


def _lives(file: Path) -> bool:
    try:
        os.kill(int((file.read_text() or str(os.getpid())).split()[0]), 0)  # empty: it is just coming
    except FileNotFoundError:
        return True  # it has left since
    except ProcessLookupError:
        return False
    return True
