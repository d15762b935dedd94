"""An exception of the user's code, told to the user: what, and where in her own files."""

from __future__ import annotations

import traceback
from pathlib import Path

from cerebro_elastic.errors import CerebroError
from cerebro_elastic.registry import is_own

_FRAMES = 3


def told(error: BaseException, root: Path) -> str:
    """The error, and the innermost frames that lie below ``root``, nearest first. Ours explain themselves."""
    if isinstance(error, CerebroError):
        return str(error)
    text = str(error) or "without a message"
    frames = [f for f in traceback.extract_tb(error.__traceback__) if is_own(Path(f.filename), root)]
    lines = [
        f"\n  {Path(frame.filename).resolve().relative_to(root.resolve())}:{frame.lineno} in {frame.name}: "
        f"{frame.line}"
        for frame in reversed(frames[-_FRAMES:])
    ]
    return f"{type(error).__name__}: {text}{''.join(lines)}"
