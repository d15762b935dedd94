"""Signs of life of a node's ranks, between them and their agent.

A rank that is stopped (SIGSTOP), waits in the kernel for a driver or a disk, or holds the interpreter's lock
for ever cannot end itself: the thread of its watchdog may stand, too. So each rank beats its pulse into a
file, once a second, from a thread that does nothing else; its agent looks there whenever it renews the node's
lease.

A line of the file has a number that grows, whether the rank is ready (1), the seconds without a pulse after
which it is to be killed, and, of what it does: the attempt's token, the seconds since its last sign of
progress, and those it may take without one (zeros if it does nothing).
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from cerebro_elastic.clock import Clock
from cerebro_elastic.core.model.values import FailureKind, Stall
from cerebro_elastic.rendezvous.dumps import Death, take_death

START_SECONDS = 300.0
"""Without a pulse, for ranks that are not ready: imports from a cold disk hold the interpreter's lock."""
_BEAT_SECONDS = 1.0
_MARGIN_SECONDS = 3.0
"""Pulse and look are each so much apart at most, together."""
_TOLD_SECONDS = 10.0
"""After so long without a pulse people are told, and the node gets no more units."""
_LOOK_SECONDS = 5.0
"""Longer ago was the last look only if the agent stood itself: who stood with it is given time to go on."""
_END_SECONDS = 30.0
"""An agent that has not started its killed ranks anew by then cannot: they do not die, or it stands
itself."""
_WIDTH = 80

_STATES = {
    "T": "it is stopped (SIGSTOP)",
    "t": "it is stopped by a debugger",
    "D": "it waits in the kernel, for a driver or a disk",
    "Z": "it has died, and its agent does not start it anew",
}


class Doing(NamedTuple):
    """What a rank does: ``attempt`` is the token, ``silent`` the seconds since the last sign of progress, and
    ``seconds`` those that it may take without one."""

    attempt: int = 0
    silent: float = 0.0
    seconds: float = 0.0


class Pulse:
    """The pulse of rank ``local_rank``, in ``folder``, from ``ready`` on with what that says."""

    def __init__(self, folder: Path, local_rank: int) -> None:
        self._path = folder / f"{local_rank}.pulse"
        self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT, 0o600)
        self._ready, self._limit = False, START_SECONDS
        self._doing: Callable[[], Doing] = Doing
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="pulse", daemon=True)
        self._thread.start()

    def ready(self, limit: float, doing: Callable[[], Doing]) -> None:
        """From now on the rank stands if it has no pulse for ``limit`` seconds, or for those of its
        attempt."""
        self._doing, self._limit, self._ready = doing, limit, True

    def stop(self) -> None:
        """The rank ends as it should."""
        self._ended.set()
        self._thread.join()
        self._path.unlink(missing_ok=True)
        os.close(self._file)

    def _beat(self) -> None:
        number = 0
        while True:
            doing, number = self._doing(), number + 1
            limit = max(self._limit, doing.seconds)
            line = (
                f"{number} {self._ready:d} {limit:.3f} {doing.attempt} {doing.silent:.1f} {doing.seconds:.3f}"
            )
            with suppress(OSError):  # a full disk: the next one may get through
                os.pwrite(self._file, line.ljust(_WIDTH - 1).encode() + b"\n", 0)
            if self._ended.wait(_BEAT_SECONDS):
                return


@dataclass
class _Rank:
    """What an agent knows of a rank: its last ``line`` (none yet: it did not come), and for how long it has
    shown none that is new."""

    line: str = ""
    silent: float = 0.0
    left: bool = False

    @property
    def ready(self) -> bool:
        return self.line.split()[1:2] == ["1"]

    @property
    def limit(self) -> float:
        return float(self.line.split()[2]) if self.line else START_SECONDS

    @property
    def doing(self) -> Doing:
        if not self.line:
            return Doing()
        attempt, silent, seconds = self.line.split()[3:]
        return Doing(int(attempt), float(silent), float(seconds))


class Ranks:
    """The ranks of this agent, ``count`` of them, by what they leave in ``folder``."""

    def __init__(self, folder: Path, count: int, clock: Clock) -> None:
        self._folder = folder
        self._count = count
        self._clock = clock
        self._death: Death | None = None
        self.begin()

    def begin(self) -> None:
        """They are about to be started, for the first time or anew."""
        self._ranks = {number: _Rank() for number in range(self._count)}
        self._looked = self._clock.now()
        self._killed = 0.0

    def take_death(self) -> Death:
        """Why they died. What they said themselves tells more than what was seen from here."""
        seen, self._death = self._death, None
        told = take_death(self._folder)
        return told if seen is None or told.kind is FailureKind.HANG else seen

    def look(self) -> Stall | None:
        """Whether one of them shows no sign of life, or of progress; who does so for too long is killed."""
        elapsed = min(self._clock.now() - self._looked, _LOOK_SECONDS)
        self._looked = self._clock.now()
        self._killed += elapsed if self._death is not None else 0.0
        stalls = [stall for number in self._ranks if (stall := self._look_at(number, elapsed))]
        return min(stalls, default=None, key=lambda stall: stall.since)

    @property
    def dead(self) -> Death | None:
        """Why a rank was killed, if that has not led to a new start for long."""
        return self._death if self._killed > _END_SECONDS else None

    def _look_at(self, number: int, elapsed: float) -> Stall | None:
        rank = self._ranks[number]
        try:
            line = (self._folder / f"{number}.pulse").read_text()
        except FileNotFoundError:
            line, rank.left = "", rank.left or bool(rank.line)
        except OSError:  # a disk that does not answer is no sign of life
            line = ""
        if rank.left:
            return None
        rank.silent = rank.silent + elapsed if line == rank.line or len(line) != _WIDTH else 0.0
        rank.line = line if len(line) == _WIDTH else rank.line
        if rank.silent > rank.limit + _MARGIN_SECONDS:
            self._kill(number, rank)
        if rank.silent > (min(_TOLD_SECONDS, rank.limit) if rank.ready else START_SECONDS / 2):
            return self._stall(rank.silent, f"rank {number} shows no sign of life: {self._state(number)}")
        doing = rank.doing
        if doing.attempt and doing.silent > max(_TOLD_SECONDS, doing.seconds / 2):
            return self._stall(doing.silent, f"rank {number} makes no progress in its unit")
        return None

    def _stall(self, silent: float, why: str) -> Stall:
        return Stall(round(self._clock.wall() - silent, 1), why)

    def _kill(self, number: int, rank: _Rank) -> None:
        if self._death is None:
            self._death = Death(
                FailureKind.HANG,
                f"rank {number} showed no sign of life for {rank.silent:.0f} s ({self._state(number)}) and "
                "was killed by its agent; if it was only slow, raise limits.hang_seconds",
            )
        pid = self._pid(number)
        if pid is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _state(self, number: int) -> str:
        pid = self._pid(number)
        stat = _stat(pid) if pid is not None else None
        if stat is None:
            return "its process is not to be seen"
        return _STATES.get(stat[0], "it runs, but not its Python threads")

    def _pid(self, number: int) -> int | None:
        """The rank's process, by the file that it has left, else by its environment."""
        with suppress(FileNotFoundError, ValueError):
            pid, parent = map(int, (self._folder / f"{number}.pid").read_text().split())
            stat = _stat(pid)
            return pid if stat is None or stat[1] == parent else None
        return next((pid for pid in _children() if _local_rank(pid) == number), None)


def _stat(pid: int) -> tuple[str, int] | None:
    """A process's state and parent; ``None`` where that cannot be known."""
    try:
        state, parent, *_ = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return state, int(parent)


def _children() -> Iterator[int]:
    if sys.platform == "linux":
        for file in Path("/proc/self/task").glob("*/children"):
            with suppress(OSError):
                yield from map(int, file.read_text().split())


def _local_rank(pid: int) -> int | None:
    with suppress(OSError):
        for entry in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            name, _, value = entry.partition(b"=")
            if name == b"LOCAL_RANK":
                return int(value)
    return None
