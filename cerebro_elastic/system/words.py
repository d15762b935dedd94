"""Numbers, foreign text and the names of options in messages."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

# Characters that move the cursor, colour, or turn the direction of writing, and so would show false text.
_UNSEEN = re.compile(
    r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)

_commanded: ContextVar[bool] = ContextVar("commanded", default=False)
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


_NUMBER = r"\d+(?:\.\d+)?"
_DURATION = re.compile("".join(rf"(?:({_NUMBER}){unit})?" for unit in "wdhms"))
_SECONDS = (604_800.0, 86_400.0, 3600.0, 60.0, 1.0)


def duration_seconds(text: str) -> float | None:
    """The seconds of ``90s``, ``2h30m``, ``1.5d`` or ``2w``; ``None`` for another text."""
    match = _DURATION.fullmatch(text.strip())
    if match is None or not any(match.groups()):
        return None
    return sum(float(number) * unit for number, unit in zip(match.groups("0"), _SECONDS, strict=True))


@contextmanager
def for_commands() -> Iterator[None]:
    """Messages within are for the user of a command, not of a Python function."""
    before = _commanded.set(True)
    try:
        yield
    finally:
        _commanded.reset(before)


def for_reader(command: str, python: str) -> str:
    """The text for the user of a command, or that for the user of a function."""
    return command if _commanded.get() else python


def option(name: str, argument: str | None = None) -> str:
    """``--run-id`` for the user of a command, else the argument in Python, by default ``run_id``."""
    return for_reader(f"--{name}", argument or name.replace("-", "_"))


def with_name(reason: str, by: str) -> str:
    """A reason for the record, on one line, with the name of its author."""
    text = one_line(reason.strip())
    return f"{text} (by {one_line(by.strip())})" if by.strip() else text


def counted(number: int, what: str, many: str | None = None) -> str:
    """``1 node``, ``2 nodes``; ``many`` is the plural if it is not made by an s."""
    return f"{number} {what if number == 1 else many or what + 's'}"


def some_of(names: Sequence[object], most: int) -> str:
    """``1, 2, 3, ...``: up to ``most`` of the names."""
    return ", ".join(map(str, names[:most])) + (", ..." if len(names) > most else "")


def byte_count(text: str) -> int | None:
    """The bytes that ``800M`` or ``2.5GB`` are; ``None`` for another text."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGT]?)B?", text)
    return None if match is None else int(float(match[1]) * _UNITS[match[2]])


def visible(text: str) -> str:
    """Foreign text, safe to show: each control character becomes a sign of one column. Lines stay lines."""
    return _UNSEEN.sub(_sign, text)


def one_line(text: str) -> str:
    """``visible`` text on one line."""
    return visible(text).replace("\n", "\N{SYMBOL FOR NEWLINE}")


def _sign(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code == 0x7F:
        return "\N{SYMBOL FOR DELETE}"
    return chr(0x2400 + code) if code < 0x20 else "\N{REPLACEMENT CHARACTER}"


def number(value: Any) -> str:
    """For people: four digits of a float, anything else as it is."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def hparams_text(hparams: Mapping[str, Any]) -> str:
    """``lr=0.01 width=64``. Of a dotted name only the last part, if no other name ends so."""
    last = [name.rpartition(".")[2] for name in hparams]
    names = [short if last.count(short) == 1 else name for name, short in zip(hparams, last, strict=True)]
    return one_line(
        " ".join(f"{name}={number(value)}" for name, value in zip(names, hparams.values(), strict=True))
    )
