"""What a rank that died has left: the dump of its ``Watchdog``, read by its agent.

A dump is what Python's ``faulthandler`` writes, behind a line ``main 0x...`` with the main thread's id and
lines ``watched 0x... ATTEMPT SECONDS``, the last of which tells whose time was over first.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from cerebro_elastic.core.model.attempts import FailureKind

_FRAMES = 6
_HANG = re.compile(r"^Timeout \((?:(\d+) days?, )?(\d+):(\d+):(\d+)", re.MULTILINE)
_CRASH = re.compile(r"^Fatal Python error: (.+)$", re.MULTILINE)
_MAIN = re.compile(r"^main (0x[0-9a-f]+)$", re.MULTILINE)
_WATCHED = re.compile(r"^watched (0x[0-9a-f]+) (\d+) (\S+)$", re.MULTILINE)
_STACK = re.compile(r"^(Current thread|Thread) (0x[0-9a-f]+).*\n((?:  .*\n?)*)", re.MULTILINE)
_FRAME = re.compile(r'^  File "(.+)", line (\d+|\?+) in (.+)$', re.MULTILINE)

_SILENT = (
    "the rank ended without a word: killed from outside, perhaps by the kernel's out-of-memory killer (see "
    "dmesg), or by an exit in native code; see the node's log"
)


class Death(NamedTuple):
    """Why a node's ranks died; if it is known, in which ``attempt`` (its token)."""

    kind: FailureKind
    story: str
    attempt: int | None = None


def take_death(folder: Path) -> Death:
    """Why a node's ranks died, by the dumps in ``folder``, which are removed."""
    texts = []
    for file in sorted(folder.iterdir()):
        texts.append(file.read_text(errors="replace"))
        file.unlink()
    return next((death for text in texts if (death := death_of(text))), Death(FailureKind.CRASH, _SILENT))


def death_of(dump: str) -> Death | None:
    """The death that a dump tells of; ``None`` if it tells of none."""
    main = _MAIN.search(dump)
    if crash := _CRASH.search(dump):
        where = _where(dump, main[1] if main else "")
        return Death(FailureKind.CRASH, f"the rank crashed: {crash[1]} (at {where})")
    if hang := _HANG.search(dump):
        days, hours, minutes, seconds = (int(part or 0) for part in hang.groups())
        silence: float = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
        thread, attempt = main[1] if main else "", None
        if watched := _WATCHED.findall(dump):
            thread, attempt, silence = watched[-1][0], int(watched[-1][1]), float(watched[-1][2])
        where = f"no progress for {silence:g} s (at {_where(dump, thread)})"
        story = f"{where}; if it was only slow, raise limits.hang_seconds"
        return Death(FailureKind.HANG, story, attempt)
    return None


def _where(dump: str, thread: str) -> str:
    """The innermost frames of the thread that crashed, else of ``thread``."""
    stacks = {thread: frames for _, thread, frames in _STACK.findall(dump)}
    crashed = [frames for kind, _, frames in _STACK.findall(dump) if kind == "Current thread"]
    stack = crashed[0] if crashed else stacks.get(thread, "")
    frames = [f"{file}:{line} in {name}" for file, line, name in _FRAME.findall(stack)]
    return " <- ".join(frames[:_FRAMES]) or "an unknown place"
