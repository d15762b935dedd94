"""The ranks of one node: whether one of them has died.

torchrun sends SIGTERM in two cases: the node is to leave, or a rank has died and all are started anew. A rank
that lives has a file with its process's id, and takes it away when it leaves; so a file without a process is
a rank that has died.
"""

from __future__ import annotations

import os
from pathlib import Path


class Siblings:
    """The ranks whose files are in ``folder``; this one is ``local_rank``. Its agent empties the folder
    before it starts ranks."""

    def __init__(self, folder: Path, local_rank: int) -> None:
        self._folder = folder
        self._own = folder / f"{local_rank}.pid"

    def come(self) -> None:
        """This rank lives."""
        self._own.write_text(str(os.getpid()))

    def leave(self) -> None:
        """This rank ends as it should."""
        self._own.unlink(missing_ok=True)

    def died(self) -> bool:
        """Whether a rank of the node ended without leaving."""
        return any(not _lives(file) for file in self._folder.glob("*.pid") if file != self._own)


def _lives(file: Path) -> bool:
    try:
        os.kill(int(file.read_text() or os.getpid()), 0)  # empty: it is just coming
    except FileNotFoundError:
        return True  # it has left since
    except ProcessLookupError:
        return False
    return True
