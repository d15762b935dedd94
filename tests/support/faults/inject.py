"""Faults from inside: a process checks at each of its points whether a fault waits for it there.

The folder that ``$CEREBRO_FAULTS`` names is how the storm and the processes talk: ``armed/`` has the faults
that wait, each under the name of its process and point; a process that meets one moves it to ``struck/``
first, so that it strikes once. ``ranks/`` has a file for each rank that was ever started.
"""

from __future__ import annotations

import errno
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from cerebro_elastic.core.model.codec import decode, encode
from cerebro_elastic.errors import TxnUnknown
from support.faults.plan import Fault, Point, What, Whom

FOLDER = "CEREBRO_FAULTS"
CONTROLLER = "controller"


class FaultFolder:
    """The folder of waiting and struck faults."""

    def __init__(self, path: Path) -> None:
        self._armed, self._struck, self._ranks = (path / name for name in ("armed", "struck", "ranks"))

    def make(self) -> None:
        """The storm's part, before there is any process."""
        for folder in (self._armed, self._struck, self._ranks):
            folder.mkdir(parents=True)

    def arm(self, process: str, fault: Fault) -> None:
        """Let ``fault`` wait for ``process``: a node's name, or the controller."""
        temporary = self._struck / f".{process}"
        temporary.write_text(encode(fault))
        temporary.replace(self._armed / f"{process}.{fault.point}")

    def disarm(self, process: str, fault: Fault) -> bool:
        """Whether ``fault`` still waited: it will not strike any more."""
        try:
            os.unlink(self._armed / f"{process}.{fault.point}")
        except FileNotFoundError:
            return False
        return True

    def take(self, process: str, point: Point, attempt: int) -> Fault | None:
        """The fault that waits for ``process`` at ``point``; only the first caller gets it. The caller is in
        ``attempt`` (0: in none)."""
        struck = self._struck / f"{process}.{point}.{attempt}"
        try:
            os.rename(self._armed / f"{process}.{point}", struck)
        except FileNotFoundError:
            return None
        return decode(struck.read_bytes(), Fault)

    def struck(self, process: str, fault: Fault) -> int | None:
        """The attempt in which the fault has met its process, ``None`` if it has not; the storm polls it."""
        for path in self._struck.glob(f"{process}.{fault.point}.*"):
            path.unlink()
            return int(path.suffix[1:])
        return None

    def rank_started(self, node: str) -> None:
        """This process is a rank of ``node``, ready for units."""
        (self._ranks / f"{time.time_ns()}.{os.getpid()}.{node}").touch()

    def ranks(self, node: str) -> list[int]:
        """The pids of all ranks that ``node`` has had, in order."""
        files = sorted(path.name.split(".", 2) for path in self._ranks.iterdir())
        return [int(pid) for _, pid, name in files if name == node]


@contextmanager
def entered(attempt: int) -> Iterator[None]:
    """This thread is in ``attempt`` as long as the block lasts. The thread knows it, not this file: variables
    of files below a recipe's folder hop with the config."""
    me = vars(threading.current_thread())
    before = me.get(_ATTEMPT, 0)
    me[_ATTEMPT] = attempt
    try:
        yield
    finally:
        me[_ATTEMPT] = before


_ATTEMPT = "attempt_of_cerebro"


def _attempt() -> int:
    """The attempt of this thread, else that of the main thread; 0: none."""
    threads = (threading.current_thread(), threading.main_thread())
    return next(filter(None, (vars(thread).get(_ATTEMPT, 0) for thread in threads)), 0)


def reach(point: Point) -> None:
    """Be at ``point``: meet the fault that waits here, if there is one (and a storm)."""
    path = os.environ.get(FOLDER)
    if path is None:
        return
    process = os.environ.get("CEREBRO_NODE", CONTROLLER)
    fault = FaultFolder(Path(path)).take(process, point, _attempt())
    if fault is not None:
        _strike(fault)


def _strike(fault: Fault) -> None:
    match fault.what:
        case What.KILL:
            _signal(fault.whom, signal.SIGKILL)
        case What.PAUSE:  # until the storm says SIGCONT
            _signal(fault.whom, signal.SIGSTOP)
        case What.TERMINATE:
            _signal(fault.whom, signal.SIGTERM)
        case What.RAISE:
            raise RuntimeError("a fault, injected into the user's code")
        case What.DISK_FULL:
            raise OSError(errno.ENOSPC, "a fault, injected: no space left on device")
        case What.FLIP:
            _flip(Path(os.environ["CEREBRO_CACHE"]))
        case What.LOSE:
            raise TxnUnknown(f"a fault, injected: lost ({fault.point})")
        case What.DELAY:
            time.sleep(fault.seconds)


def _flip(cache: Path) -> None:
    """A bit of a partition, in place: another one each time, or it would be as it was."""
    files = sorted(cache.glob("*/train-*/000.npy"))
    with files[_attempt() % len(files)].open("r+b") as file:
        file.seek(-1 - _attempt() % 256, os.SEEK_END)
        (byte,) = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 1]))


def _signal(whom: Whom, number: signal.Signals) -> None:
    """To the agent first, for this process may not outlast the next line. SIGTERM is for the agent alone:
    it passes it on."""
    if whom in (Whom.AGENT, Whom.NODE):
        # An agent that is gone already shall not turn the fault into an error of the user's code.
        with suppress(ProcessLookupError):
            os.kill(int(os.environ["CEREBRO_AGENT"]), number)
    if whom is Whom.NODE and number == signal.SIGTERM:
        return
    if whom is not Whom.AGENT:
        os.kill(os.getpid(), number)
