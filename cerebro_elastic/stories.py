"""An exception of the user's code as a story: what was raised, and where in her own files. The whole story,
with the frames of libraries, is for records and logs; people are shown the short one."""

from __future__ import annotations

import re
import traceback
from pathlib import Path

from cerebro_elastic.errors import CerebroError
from cerebro_elastic.registry import is_own

_OWN_FRAMES, _FRAMES = 3, 6
_LINES, _COLUMNS = 4, 300
"""So much of a message is shown."""
_DEEP = "\n  raised at "
_FRAME = re.compile(r"  \S.*:\d+ in ")


def told(error: BaseException, root: Path) -> str:
    """The error, and the innermost frames that lie below ``root``, nearest first. Ours explain themselves."""
    if isinstance(error, CerebroError):
        return str(error)
    text = str(error) or "without a message"
    frames = [f for f in traceback.extract_tb(error.__traceback__) if is_own(Path(f.filename), root)]
    lines = [
        f"\n  {Path(frame.filename).resolve().relative_to(root.resolve())}:{frame.lineno} in {frame.name}: "
        f"{frame.line}"
        for frame in reversed(frames[-_OWN_FRAMES:])
    ]
    return f"{type(error).__name__}: {text}{''.join(lines)}"


def whole(error: BaseException, root: Path) -> str:
    """The same, and the innermost frames of all, in one line more."""
    if isinstance(error, CerebroError):
        return str(error)
    frames = traceback.extract_tb(error.__traceback__)[-_FRAMES:]
    where = " <- ".join(f"{frame.filename}:{frame.lineno} in {frame.name}" for frame in reversed(frames))
    return f"{told(error, root)}{_DEEP}{where or 'an unknown place'}"


def short(story: str) -> str:
    """A story as people are shown it: without the frames of libraries, and with no more of a long message
    than says what it is about."""
    kept: list[str] = []
    more = 0
    for line in re.sub(rf"{_DEEP}[^\n]*", "", story).splitlines():
        if _FRAME.match(line) or len(kept) < _LINES:
            kept.append(line if len(line) <= _COLUMNS else f"{line[:_COLUMNS]} ...")
        else:
            more += 1
            if more == 1:
                kept.append("  ...")
    return "\n".join(kept)
