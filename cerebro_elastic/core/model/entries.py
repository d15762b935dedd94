"""A state's mapping that knows its changes since an earlier one.

States never change: an event makes a new state, whose mapping differs from the previous one in one entry.
Decisions cache values derived from thousands of entries. The changes lead them to the few new ones, without a
scan of all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

V = TypeVar("V")

_LONGEST = 1000
"""A chain of this many changes starts over, so that the past is not kept for ever."""


@dataclass(frozen=True, slots=True, eq=False)
class _Change:
    """One change of a mapping, behind the one before it."""

    name: str = ""
    before: _Change | None = None
    number: int = 0
    """The number of changes before it."""


class Entries(dict[str, V]):
    """A mapping that never changes; ``with_entry`` makes the next one. A copy is a plain dict."""

    __slots__ = ("last",)
    last: _Change

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)


def with_entry(entries: Mapping[str, V], name: str, value: V) -> Entries[V]:
    """``entries`` with another value of ``name``; a new name comes last."""
    last = entries.last if isinstance(entries, Entries) else _Change()
    after = Entries(entries)
    after.last = _Change(name, last, last.number + 1) if last.number < _LONGEST else _Change()
    after[name] = value
    return after


def changed_since(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str] | None:
    """The names whose entries ``with_entry`` changed between ``before`` and ``now``, in order; ``None`` if
    ``now`` does not derive from ``before``, or if that was long ago."""
    if before is now:
        return []
    if not (isinstance(before, Entries) and isinstance(now, Entries)):
        return None
    names, change = list[str](), now.last
    while change is not before.last:
        if change.before is None:
            return None
        names.append(change.name)
        change = change.before
    return names[::-1]
