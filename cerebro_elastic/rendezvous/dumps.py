"""What a rank that died has left: the dump of its ``Watchdog``, read by its agent.

A dump is what Python's ``faulthandler`` writes, behind a line ``main 0x...`` with the main thread's id.
"""

from __future__ import annotations

import re
from pathlib import Path

from cerebro_elastic.core.values import FailureKind

_FRAMES = 6
_HANG = re.compile(r"^Timeout \((?:(\d+) days?, )?(\d+):(\d+):(\d+)", re.MULTILINE)
_CRASH = re.compile(r"^Fatal Python error: (.+)$", re.MULTILINE)
_MAIN = re.compile(r"^main (0x[0-9a-f]+)$", re.MULTILINE)
_STACK = re.compile(r"^(Current thread|Thread) (0x[0-9a-f]+).*\n((?:  .*\n?)*)", re.MULTILINE)
_FRAME = re.compile(r'^  File "(.+)", line (\d+|\?+) in (.+)$', re.MULTILINE)

_SILENT = (
    "the rank ended without a word: killed from outside, perhaps by the kernel's out-of-memory killer (see "
    "dmesg), or by an exit in native code; see the node's log"
)


def take_death(folder: Path) -> tuple[FailureKind, str]:
    """Why a node's ranks died, by the dumps in ``folder``, which are removed: kind and story."""
    texts = []
    for file in sorted(folder.iterdir()):
        texts.append(file.read_text(errors="replace"))
        file.unlink()
    return next((death for text in texts if (death := death_of(text))), (FailureKind.CRASH, _SILENT))


def death_of(dump: str) -> tuple[FailureKind, str] | None:
    """Kind and story of the death that a dump tells of; ``None`` if it tells of none."""
    if crash := _CRASH.search(dump):
        return FailureKind.CRASH, f"the rank crashed: {crash[1]} (at {_where(dump)})"
    if hang := _HANG.search(dump):
        days, hours, minutes, seconds = (int(part or 0) for part in hang.groups())
        silence = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
        where = f"no progress for {silence} s (at {_where(dump)})"
        return FailureKind.HANG, f"{where}; if it was only slow, raise limits.hang_seconds"
    return None


def _where(dump: str) -> str:
    """The innermost frames of the thread that crashed, else of the main thread."""
    main = _MAIN.search(dump)
    stacks = {thread: frames for _, thread, frames in _STACK.findall(dump)}
    crashed = [frames for kind, _, frames in _STACK.findall(dump) if kind == "Current thread"]
    stack = crashed[0] if crashed else stacks.get(main[1] if main else "", "")
    frames = [f"{file}:{line} in {name}" for file, line, name in _FRAME.findall(stack)]
    return " <- ".join(frames[:_FRAMES]) or "an unknown place"
