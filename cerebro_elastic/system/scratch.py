"""Folders that live as long as their process. The next process removes those of killed ones."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import IO, Self

SCRATCH = "CEREBRO_SCRATCH"
"""The variable with the place of such folders. A run's agents get one in the run's folder."""

_LOCK = "lock"


class Scratch:
    """An empty folder ``path``, removed by ``close``, at the end of a ``with``, or of the process.

    If that is killed the next process that asks for a folder of this ``kind`` in the same place removes it.
    It is known by its lock, which nobody holds any more.
    """

    def __init__(self, kind: str) -> None:
        parent = Path(os.environ.get(SCRATCH) or tempfile.gettempdir())
        parent.mkdir(parents=True, exist_ok=True)
        prefix = f"cerebro-{kind}-"
        for folder in parent.glob(f"{prefix}*"):
            _remove_if_left(folder)
        self._folder = tempfile.TemporaryDirectory(prefix=prefix, dir=parent, ignore_cleanup_errors=True)
        self.path = Path(self._folder.name, "files")
        self.path.mkdir()
        self._lock = _locked(Path(self._folder.name))

    def __repr__(self) -> str:
        return f"<Scratch {self.path}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove it."""
        self._folder.cleanup()
        self._lock.close()


def _locked(folder: Path) -> IO[str]:
    """Lock the folder. The lock file gets its name only once it is locked, so that no process takes the
    folder for one that a killed process left."""
    lock = (folder / f".{_LOCK}").open("w")
    # Where files cannot be locked the folder is left if this process is killed.
    with suppress(OSError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.rename(lock.name, folder / _LOCK)
    return lock


def _remove_if_left(folder: Path) -> None:
    # One without a lock is just being made, or removed.
    with suppress(OSError):
        status = folder.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
            return  # another user's; its lock may be a pipe, which would never open
        with open(os.open(folder / _LOCK, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
