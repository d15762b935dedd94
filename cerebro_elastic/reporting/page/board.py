"""The content of a page, as named values, so that a browser gets only the changed ones."""

from __future__ import annotations

import json
import math
import secrets
import threading
from collections import OrderedDict
from collections.abc import Collection, Mapping
from typing import Any

from cerebro_elastic.system.words import one_line

_EXACT = 2**53
"""From here on a browser cannot represent all integers: they are sent as text."""


class Board:
    """Values by section and key, with the version at which each was last changed.

    A thread writes; the server's threads read. ``since`` gives the changes after a version, so a browser that
    was away gets the ones it missed.
    """

    def __init__(self) -> None:
        self.id = secrets.token_hex(4)
        """Another board has another id: their versions are unrelated."""
        self._lock = threading.Lock()
        self._version = 0
        self._items: OrderedDict[tuple[str, str], tuple[int, str | None]] = OrderedDict()

    @property
    def version(self) -> int:
        """The number of the last change."""
        return self._version

    def put(self, section: str, key: str, value: Any) -> None:
        """Set a value; an equal one changes nothing. ``None`` removes it."""
        text = None if value is None else json_text(value)
        with self._lock:
            before = self._items.get((section, key), (0, None))[1]
            if before != text:
                self._version += 1
                self._items[section, key] = (self._version, text)
                self._items.move_to_end((section, key))

    def keep(self, section: str, keys: Collection[str]) -> None:
        """Remove the values of a section whose keys are not among ``keys``."""
        with self._lock:
            present = [key for of, key in self._items if of == section]
        for key in present:
            if key not in keys:
                self.put(section, key, None)

    def since(self, version: int, between: str = "") -> tuple[int, str]:
        """The present version, and the changes after ``version``, as a JSON object of sections. A removed
        value is ``null``. White space may be put ``between`` the values."""
        sections: dict[str, list[str]] = {}
        with self._lock:
            for (section, key), (at, text) in reversed(self._items.items()):
                if at <= version:
                    break
                sections.setdefault(section, []).append(f"{json.dumps(key)}:{text or 'null'}")
            now = self._version
        comma = f",{between}"
        parts = (
            f"{json.dumps(name)}:{{{comma.join(reversed(items))}}}"
            for name, items in sorted(sections.items())
        )
        return now, f"{{{comma.join(parts)}}}"


def json_text(value: Any) -> str:
    """``value`` as JSON for a browser: numbers that are not finite become ``null``, and text has no control
    characters."""
    return json.dumps(_plain(value), allow_nan=False, separators=(",", ":"))


def _plain(value: Any) -> Any:
    match value:
        case Mapping():
            return {one_line(str(name)): _plain(item) for name, item in value.items()}
        case str():
            return "\n".join(map(one_line, value.split("\n")))
        case list() | tuple():
            return [_plain(item) for item in value]
        case float() if not math.isfinite(value):
            return None
        case int() if not isinstance(value, bool) and abs(value) >= _EXACT:
            return str(value)
    return value
