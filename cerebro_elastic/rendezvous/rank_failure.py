"""Why a node's ranks died: their agent reads the dumps that their watchdogs have left.

A dump begins with a line ``main 0x...`` with the main thread's id. Lines ``watched 0x... ATTEMPT SECONDS``
follow: the last of them names the thread whose time ran out first. The rest is what Python's ``faulthandler``
writes.
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
    """The kind of failure that the attempt gets."""
    story: str
    """The explanation for users."""
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
