"""Explains an exception of the user's code: the error, and its place in the user's files. Records and logs
keep the full explanation, with the frames of libraries. People see the shortened one."""

from __future__ import annotations

import re
import sys
import traceback
from pathlib import Path

from cerebro_elastic.errors import CerebroError
from cerebro_elastic.registry import users_name

_OWN_FRAMES, _FRAMES = 3, 6
_LINES, _COLUMNS = 4, 300
"""The most lines of a message, and letters of a line, that people see."""
_DEEP = "\n  raised at "
_FRAME = re.compile(r"  \S.*:\d+ in ")
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_RULE = "-" * 20
"""Jax puts it above a note on its own frames."""


def explain_error(error: BaseException, root: Path) -> str:
    """The error, its cause, the innermost frames of both in the user's files, nearest first, and the place in
    the library that raised it.

    Errors of this package explain themselves: they come without frames."""
    if isinstance(error, CerebroError):
        return str(error)
    text = message_of(error)
    if text == "EOF when reading a line" or type(error).__name__ == "BdbQuit":
        text = f"{text} (nobody can type here: remove breakpoint() and input() from the code)"
    cause = error.__cause__
    raised = [
        frame
        for each in (cause, error)
        for frame in traceback.extract_tb(None if each is None else each.__traceback__)
    ]
    named = [(_name_of(Path(frame.filename), root), frame) for frame in raised]
    frames = [
        f"\n  {name}:{frame.lineno} in {frame.name}: {frame.line}"
        for name, frame in named
        if name is not None
    ][: -_OWN_FRAMES - 1 : -1]
    if named and named[-1][0] is None and (name := _name_in_library(Path(raised[-1].filename))) is not None:
        frames.append(f"\n  {name}:{raised[-1].lineno} in {raised[-1].name}: {raised[-1].line}")
    notes = "".join(f"\n{note}" for note in getattr(error, "__notes__", ()) if not note.startswith(_RULE))
    source = f"\nraised from {type(cause).__name__}: {message_of(cause)}" if cause is not None else ""
    return f"{type(error).__name__}: {text}{source}{notes}{''.join(frames)}"


def message_of(error: BaseException) -> str:
    """The error's message, also if a user's class has none or fails to make it."""
    try:
        return _COLOURS.sub("", str(error)) or "without a message"
    except Exception as exc:  # a user's exception may have a __str__ that fails
        return f"without a message: its __str__ raises {type(exc).__name__}"


def _name_of(file: Path, root: Path) -> str | None:
    """The name of a file of the user's; in an archive with the module's."""
    name = users_name(file, root)
    return name if name is None or name.endswith(file.name) else f"{name}/{file.name}"


def _name_in_library(file: Path) -> str | None:
    """A library's path below the folder of libraries; ``None`` of this package and its plugins."""
    if any(part.startswith("cerebro_") for part in file.parts):
        return None
    for folder in ("site-packages", "dist-packages", f"python3.{sys.version_info.minor}"):
        _, found, path = str(file).rpartition(f"/{folder}/")
        if found:
            return path
    return str(file)


def has_frames(explanation: str) -> bool:
    """Whether an explanation has lines of the user's files, or of a library."""
    return any(map(_FRAME.match, explanation.splitlines()))


def frames_first(explanation: str) -> str:
    """An explanation for people that begins with where in the user's files it happened."""
    lines = explanation.splitlines()
    frames = [line.strip() for line in lines if _FRAME.match(line)]
    return "\n".join([*frames, *(line for line in lines if not _FRAME.match(line))])


def explain_error_with_frames(error: BaseException, root: Path) -> str:
    """As ``explain_error``, with one more line: the innermost frames, libraries included."""
    if isinstance(error, CerebroError):
        return str(error)
    frames = traceback.extract_tb(error.__traceback__)[-_FRAMES:]
    where = " <- ".join(f"{frame.filename}:{frame.lineno} in {frame.name}" for frame in reversed(frames))
    return f"{explain_error(error, root)}{_DEEP}{where or 'an unknown place'}"


def shortened(explanation: str) -> str:
    """An explanation for people: without the frames of libraries. Of a long message, which may begin with the
    whole text of a model, it has the beginning and the last line."""
    shown: list[str] = []
    left_out: list[str] = []
    for line in re.sub(rf"{_DEEP}[^\n]*", "", explanation).splitlines():
        if _FRAME.match(line) or len(shown) < _LINES:
            shown += [*_last(left_out), line]
            left_out = []
        else:
            left_out.append(line)
    shown += _last(left_out)
    return "\n".join(line if len(line) <= _COLUMNS else f"{line[:_COLUMNS]} ..." for line in shown)


def _last(left_out: list[str]) -> list[str]:
    return ["  ...", left_out[-1]] if left_out[1:] else left_out
