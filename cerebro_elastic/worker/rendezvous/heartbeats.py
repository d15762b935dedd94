"""Heartbeats of a node's ranks: written by each rank, read by their agent. And why ranks died, by the dumps
that their watchdogs have left.

A rank cannot end itself while it is stopped (SIGSTOP), waits in the kernel for a driver or a disk, or holds
the interpreter's lock: the thread of its watchdog may be stopped, too. So each rank writes a heartbeat into a
file once a second, from a thread that does nothing else. Its agent reads the file whenever it renews the
node's lease, and kills a rank whose heartbeat has stopped.

A line of the file holds, in this order:

- a number that grows;
- whether the rank is ready (1);
- the seconds without a heartbeat after which it is killed;
- its activity (``RankActivity``): the attempt's token, the seconds since its last progress, and the seconds
  that it may take without progress; zeros if it is idle.

A dump begins with a line ``main 0x...`` with the main thread's id. Lines ``watched 0x... ATTEMPT SECONDS``
follow: the last of them names the thread whose time ran out first. The rest is the output of Python's
``faulthandler``.
"""

from __future__ import annotations

import os
import re
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from cerebro_elastic.core.model.attempts import FailureKind
from cerebro_elastic.core.model.nodes import Stall
from cerebro_elastic.system.clock import Clock
from cerebro_elastic.system.process import children, environment_of, state_and_parent

START_SECONDS = 300.0
"""Seconds without a heartbeat for ranks that are not ready: imports from a cold disk hold the interpreter's
lock."""
_BEAT_SECONDS = 1.0
_MARGIN_SECONDS = 3.0
"""Seconds between two heartbeats and between two looks at them, together, at most."""
_REPORT_SECONDS = 10.0
"""The seconds without a heartbeat after which the stall is reported, and the node gets no more units."""
_LOOK_SECONDS = 5.0
"""If the last look is longer ago, the agent itself has stood still. Its ranks may have stood still with it,
and get time to continue."""
_END_SECONDS = 30.0
"""An agent that has not restarted its killed ranks within this time cannot: they do not die, or it is stopped
itself."""
_WIDTH = 80

_STATES = {
    "T": "it is stopped (SIGSTOP)",
    "t": "it is stopped by a debugger",
    "D": "it waits in the kernel, for a driver or a disk",
    "Z": "it has died, and its agent does not restart it",
}


class RankActivity(NamedTuple):
    """A rank's activity."""

    attempt: int = 0
    """The attempt's token; 0 if the rank is idle."""
    silent_seconds: float = 0.0
    """Seconds since the last sign of progress."""
    limit_seconds: float = 0.0
    """Seconds that the rank may take without progress."""


class Heartbeat:
    """The heartbeat of rank ``local_rank``, which a thread writes into ``folder``."""

    def __init__(self, folder: Path, local_rank: int) -> None:
        self._path = folder / f"{local_rank}.heartbeat"
        self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT, 0o600)
        self._ready, self._limit = False, START_SECONDS
        self._activity: Callable[[], RankActivity] = RankActivity
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)
        self._thread.start()

    def ready(self, limit: float, activity: Callable[[], RankActivity]) -> None:
        """From now on the agent kills the rank after ``limit`` seconds without a heartbeat, or after its
        attempt's limit if that is longer. ``activity`` returns the rank's activity."""
        self._activity, self._limit, self._ready = activity, limit, True

    def stop(self) -> None:
        """The rank ends normally."""
        self._ended.set()
        self._thread.join()
        self._path.unlink(missing_ok=True)
        os.close(self._file)

    def _beat(self) -> None:
        number = 0
        while True:
            activity, number = self._activity(), number + 1
            limit = max(self._limit, activity.limit_seconds)
            doing = f"{activity.attempt} {activity.silent_seconds:.1f} {activity.limit_seconds:.3f}"
            line = f"{number} {self._ready:d} {limit:.3f} {doing}"
            with suppress(OSError):  # a full disk: the next one may get through
                os.pwrite(self._file, line.ljust(_WIDTH - 1).encode() + b"\n", 0)
            if self._ended.wait(_BEAT_SECONDS):
                return


@dataclass
class _Rank:
    """An agent's view of a rank."""

    line: str = ""
    """Its last heartbeat; empty before the first."""
    silent_seconds: float = 0.0
    """The seconds without a new heartbeat."""
    left: bool = False
    """Whether it has ended normally."""

    @property
    def ready(self) -> bool:
        return self.line.split()[1:2] == ["1"]

    @property
    def limit(self) -> float:
        return float(self.line.split()[2]) if self.line else START_SECONDS

    @property
    def activity(self) -> RankActivity:
        if not self.line:
            return RankActivity()
        attempt, silent, seconds = self.line.split()[3:]
        return RankActivity(int(attempt), float(silent), float(seconds))


class RankMonitor:
    """Watches this agent's ``count`` ranks by the files that they write into ``folder``."""

    def __init__(self, folder: Path, count: int, clock: Clock) -> None:
        self._folder = folder
        self._count = count
        self._clock = clock
        self._failure: RankFailure | None = None
        self.begin()

    def begin(self) -> None:
        """The ranks are about to be started or restarted."""
        self._ranks = {number: _Rank() for number in range(self._count)}
        self._looked_at = self._clock.now()
        self._killed_seconds = 0.0

    def take_rank_failure(self) -> RankFailure:
        """Why the ranks died. Their own dumps say more than their agent's observations."""
        seen, self._failure = self._failure, None
        dumped = take_rank_failure(self._folder)
        return dumped if seen is None or dumped.kind is FailureKind.HANG else seen

    def look(self) -> Stall | None:
        """Whether a rank shows no heartbeat or no progress. A rank without a heartbeat is killed in the
        end."""
        elapsed = min(self._clock.now() - self._looked_at, _LOOK_SECONDS)
        self._looked_at = self._clock.now()
        self._killed_seconds += elapsed if self._failure is not None else 0.0
        stalls = [stall for number in self._ranks if (stall := self._look_at(number, elapsed))]
        return min(stalls, default=None, key=lambda stall: stall.began)

    @property
    def dead(self) -> RankFailure | None:
        """Why a rank was killed, if it was not restarted for long since."""
        return self._failure if self._killed_seconds > _END_SECONDS else None

    def _look_at(self, number: int, elapsed: float) -> Stall | None:
        rank = self._ranks[number]
        try:
            line = (self._folder / f"{number}.heartbeat").read_text()
        except FileNotFoundError:
            line, rank.left = "", rank.left or bool(rank.line)
        except OSError:  # a disk that does not answer is no sign of life
            line = ""
        if rank.left:
            return None
        if line != rank.line and len(line) == _WIDTH:
            rank.line, rank.silent_seconds = line, 0.0
        else:
            rank.silent_seconds += elapsed
        if rank.silent_seconds > rank.limit + _MARGIN_SECONDS:
            self._kill(number, rank)
        if rank.silent_seconds > (min(_REPORT_SECONDS, rank.limit) if rank.ready else START_SECONDS / 2):
            return self._stall(
                rank.silent_seconds, f"rank {number} shows no sign of life: {self._state(number)}"
            )
        activity = rank.activity
        if activity.attempt and activity.silent_seconds > max(_REPORT_SECONDS, activity.limit_seconds / 2):
            return self._stall(activity.silent_seconds, f"rank {number} makes no progress in its unit")
        return None

    def _stall(self, silent_seconds: float, reason: str) -> Stall:
        return Stall(round(self._clock.wall() - silent_seconds, 1), reason)

    def _kill(self, number: int, rank: _Rank) -> None:
        if self._failure is None:
            silence = f"showed no sign of life for {rank.silent_seconds:.0f} s ({self._state(number)})"
            self._failure = RankFailure(
                FailureKind.HANG,
                f"rank {number} {silence} and was killed by its agent; if it was only slow, raise "
                "limits.hang_seconds",
            )
        pid = self._pid(number)
        if pid is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _state(self, number: int) -> str:
        pid = self._pid(number)
        stat = state_and_parent(pid) if pid is not None else None
        if stat is None:
            return "its process is not to be seen"
        return _STATES.get(stat[0], "it runs, but not its Python threads")

    def _pid(self, number: int) -> int | None:
        """The rank's process, by the file that it has written, else by its environment."""
        with suppress(FileNotFoundError, ValueError):
            pid, parent, *_ = map(int, (self._folder / f"{number}.pid").read_text().split())
            stat = state_and_parent(pid)
            return pid if stat is None or stat[1] == parent else None
        return next((pid for pid in children() if _local_rank(pid) == number), None)


def _local_rank(pid: int) -> int | None:
    for entry in environment_of(pid):
        name, _, value = entry.partition(b"=")
        if name == b"LOCAL_RANK":
            return int(value)
    return None


_FRAMES = 6
_HANG = re.compile(r"^Timeout \((?:(\d+) days?, )?(\d+):(\d+):(\d+)", re.MULTILINE)
_CRASH = re.compile(r"^Fatal Python error: (.+)$", re.MULTILINE)
_MAIN = re.compile(r"^main (0x[0-9a-f]+)$", re.MULTILINE)
_WATCHED = re.compile(r"^watched (0x[0-9a-f]+) (\d+) (\S+)$", re.MULTILINE)
_BEGUN = re.compile(r"^begun (\d+)$", re.MULTILINE)
_STACK = re.compile(r"^(Current thread|Thread) (0x[0-9a-f]+).*\n((?:  .*\n?)*)", re.MULTILINE)
_FRAME = re.compile(r'^  File "(.+)", line (\d+|\?+) in (.+)$', re.MULTILINE)

_SILENT = (
    "the rank ended without a word: killed from outside, perhaps by the kernel's out-of-memory killer (see "
    "dmesg), or by an exit in native code; see the node's log"
)


class RankFailure(NamedTuple):
    """Why a node's ranks died."""

    kind: FailureKind
    story: str
    attempt: int | None = None
    """The token of the attempt in which they died, if it is known."""


def take_rank_failure(folder: Path) -> RankFailure:
    """Why a node's ranks died, by the dumps in ``folder``, which are removed."""
    dumps = []
    for file in sorted(folder.iterdir()):
        dumps.append(file.read_text(errors="replace"))
        file.unlink()
    begun = next((int(tokens[-1]) for dump in dumps if (tokens := _BEGUN.findall(dump))), None)
    unknown = RankFailure(FailureKind.CRASH, _SILENT, begun)
    return next((failure for dump in dumps if (failure := parse_dump(dump))), unknown)


def parse_dump(dump: str) -> RankFailure | None:
    """The failure that a dump shows; ``None`` if it shows none."""
    main = _MAIN.search(dump)
    if crash := _CRASH.search(dump):
        where = _where(dump, main[1] if main else "")
        begun = _BEGUN.findall(dump)
        attempt = int(begun[-1]) if begun else None
        return RankFailure(FailureKind.CRASH, f"the rank crashed: {crash[1]} (at {where})", attempt)
    if hang := _HANG.search(dump):
        days, hours, minutes, seconds = (int(part or 0) for part in hang.groups())
        silence: float = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
        thread, attempt = main[1] if main else "", None
        if watched := _WATCHED.findall(dump):
            thread, attempt, silence = watched[-1][0], int(watched[-1][1]), float(watched[-1][2])
        where = f"no progress for {silence:g} s (at {_where(dump, thread)})"
        story = f"{where}; if it was only slow, raise limits.hang_seconds"
        return RankFailure(FailureKind.HANG, story, attempt)
    return None


def _where(dump: str, thread: str) -> str:
    """The innermost frames of the thread that crashed, else of ``thread``."""
    stacks = {thread: frames for _, thread, frames in _STACK.findall(dump)}
    crashed = [frames for kind, _, frames in _STACK.findall(dump) if kind == "Current thread"]
    stack = crashed[0] if crashed else stacks.get(thread, "")
    frames = [f"{file}:{line} in {name}" for file, line, name in _FRAME.findall(stack)]
    return " <- ".join(frames[:_FRAMES]) or "an unknown place"
