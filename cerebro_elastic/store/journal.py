"""A run's history in a file: one event a line, in the store's order. ``verify``, ``replay`` and
``open_run`` read it when the store is gone.

Its order is that of the lines. It begins with a ``StateRead``, and has another where the store's history
could not be followed without a gap; behind one, revisions may be lower than before (a restored snapshot).
"""

from __future__ import annotations

from itertools import takewhile
from pathlib import Path

from cerebro_elastic.core.codec import UnreadableValue, encode
from cerebro_elastic.core.events import Event, StateRead
from cerebro_elastic.errors import Rewound, RunError
from cerebro_elastic.files import as_its_folder
from cerebro_elastic.store.history import decode_event


class Journal:
    """Appends events to ``path``; each once, whoever writes and however often it restarts."""

    def __init__(self, path: Path) -> None:
        self.path = path
        _drop_torn_line(path)
        events = read_journal(path) if path.exists() else []
        self.revision = events[-1].revision if events else 0
        self._last = _of_one_revision(events)
        self._unproven: list[str] = []

    def __bool__(self) -> bool:
        """Whether it has begun."""
        return self.revision > 0

    def resume(self, read: StateRead, *, afresh: bool = False) -> int:
        """Go on in a store whose state is ``read``: the revision from which events are to be appended. If
        it cannot go on from its last line (which nobody knows but the caller: ``afresh``), it goes on from
        ``read``."""
        if afresh or not self or read.revision < self.revision:
            self._write([read])
            self._last = []
        self._unproven = self._last
        return self.revision if self._unproven else self.revision + 1

    def append(self, events: list[Event]) -> None:
        """Add the events of one revision, unless they are there already. Raises ``Rewound`` if the first
        ones after ``resume`` are not the last ones here: the store's history is another."""
        if not events or events[0].revision < self.revision:
            return
        lines = [encode(event) for event in events]
        known, self._unproven = self._unproven, []
        if known and (events[0].revision > self.revision or lines[: len(known)] != known):
            raise Rewound(
                f"the store has another history than {self.path}, which ends at revision {self.revision}: "
                "it was restored from a snapshot"
            )
        if known or events[0].revision > self.revision:
            self._write(events[len(known) :])
            self._last = lines

    def _write(self, events: list[Event]) -> None:
        if events:
            with open(self.path, "a", encoding="utf-8", opener=as_its_folder) as file:
                file.writelines(encode(event) + "\n" for event in events)
            self.revision = events[-1].revision


def read_journal(path: Path) -> list[Event]:
    """All events in ``path``; ``RunError`` names the first line that is not one. A last line that has no end
    is being written."""
    events = []
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as exc:
        raise RunError(f"{path} does not exist: this folder holds no run, or one that never began") from exc
    for number, line in enumerate(text[: text.rfind("\n") + 1].splitlines(), start=1):
        try:
            events.append(decode_event(line))
        except UnreadableValue as exc:
            raise RunError(f"{path}:{number}: the history is damaged: {exc}") from exc
    return events


def _of_one_revision(events: list[Event]) -> list[str]:
    """The lines of the last revision, as far as the store has them, too."""
    last = events[-1].revision if events else 0
    ours = takewhile(lambda e: e.revision == last and not isinstance(e, StateRead), reversed(events))
    return [encode(event) for event in reversed(list(ours))]


def _drop_torn_line(path: Path) -> None:
    """A power cut may leave half a line; the store still has the event, and it is appended anew."""
    if not path.exists():
        return
    content = path.read_bytes()
    if content and not content.endswith(b"\n"):
        path.write_bytes(content[: content.rfind(b"\n") + 1])
