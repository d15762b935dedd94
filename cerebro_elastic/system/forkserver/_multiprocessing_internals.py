"""What is private to ``multiprocessing`` and used in this folder. Tried with Python 3.11."""

from __future__ import annotations

from multiprocessing import resource_tracker, spawn


def use_tracker(file: int) -> None:
    """Report to the resource tracker of another process, by the open ``file``."""
    resource_tracker._resource_tracker._fd = file  # type: ignore[attr-defined]


def run_spawned(file: int, parent: int) -> int:
    """Unpickle from the open ``file`` what is to run, as a process that was spawned does, and run it.

    ``parent`` can be read once the parent has ended. Returns the exit status.
    """
    return spawn._main(file, parent)
