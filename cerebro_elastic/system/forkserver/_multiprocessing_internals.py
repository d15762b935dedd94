"""Private names of ``multiprocessing`` that this folder uses. Tried with Python 3.11."""

from __future__ import annotations

from multiprocessing import resource_tracker, spawn


def use_tracker(file: int) -> None:
    """Report to the resource tracker of another process, by the open ``file``."""
    resource_tracker._resource_tracker._fd = file  # type: ignore[attr-defined]


def run_spawned(file: int, parent: int) -> int:
    """Unpickle a process object from the open ``file``, as a spawned process does, and run it.

    ``parent`` can be read once the parent has ended. Returns the exit status.
    """
    return spawn._main(file, parent)
