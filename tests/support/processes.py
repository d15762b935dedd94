"""Processes that are not this one's children, or that others reap: each may end while it is looked at."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

from cerebro_elastic.system.process import state_and_parent
from support.waiting import wait_for


def is_running(pid: int) -> bool:
    """Whether a process runs. One that nobody has waited for (a zombie) does not."""
    known = state_and_parent(pid)
    return known is not None and known[0] not in "ZX"


def pause(pid: int) -> None:
    """Stop a process, and wait until each of its threads has stopped: on a busy machine some run on for a
    while."""
    os.kill(pid, signal.SIGSTOP)
    threads = list(Path(f"/proc/{pid}/task").iterdir())
    wait_for(lambda: all(_state(thread) == "T" for thread in threads), "all threads to stop")


def _state(thread: Path) -> str:
    return (thread / "stat").read_text().rpartition(")")[2].split()[0]


def ranks_of(agent: int) -> list[int]:
    """The process ids of the ranks of an agent, in their order."""
    found = []
    for task in Path(f"/proc/{agent}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread or a child
            for pid in (task / "children").read_text().split():
                if b"cerebro_elastic.worker" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    found.append(int(pid))
    return sorted(found)
