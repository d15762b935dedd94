"""A run's history in a file: one event a line, in the store's order. ``verify``, ``replay`` and
``open_run`` read it when the store is gone.

Its order is that of the lines. It begins with a ``StateRead``, and has another where the store's history
could not be followed without a gap; behind one, revisions may be lower than before (a restored snapshot).
The lines are a chain (``store/ledger/chain.py``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from cerebro_elastic.core.model.codec import UnreadableValue, encode
from cerebro_elastic.core.model.events import Event, StateRead
from cerebro_elastic.core.model.units import RecordHead
from cerebro_elastic.errors import Rewound, RunError
from cerebro_elastic.files import as_its_folder
from cerebro_elastic.store.ledger.chain import joined, link, parted
from cerebro_elastic.store.ledger.history import decode_event


@dataclass(frozen=True, slots=True)
class Line:
    """A line: its ``event``, the JSON ``body`` that it has of it, and the ``digest`` that it bears (``None``
    in records of earlier versions)."""

    event: Event
    body: str
    digest: str | None


class Journal:
    """Appends events to ``path``; each once, whoever writes and however often it restarts."""

    def __init__(self, path: Path) -> None:
        self.path = path
        _drop_torn_line(path)
        lines = read_lines(path) if path.exists() else []
        self.revision = lines[-1].event.revision if lines else 0
        self._digest = digest_of(lines)
        self._last = _of_one_revision([line.event for line in lines])
        self._unproven: list[str] = []

    def __bool__(self) -> bool:
        """Whether it has begun."""
        return self.revision > 0

    @property
    def head(self) -> RecordHead:
        """Where it ends."""
        return RecordHead(self.revision, self._digest)

    def resume(self, read: StateRead, *, afresh: bool = False) -> int:
        """Go on in a store whose state is ``read``: the revision from which events are to be appended. If
        it cannot go on from its last line (which nobody knows but the caller: ``afresh``), it goes on from
        ``read``."""
        if afresh or not self or read.revision < self.revision:
            self._write([read], [encode(read)])
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
            self._write(events[len(known) :], lines[len(known) :])
            self._last = lines

    def _write(self, events: Sequence[Event], bodies: Sequence[str]) -> None:
        if events:
            with open(self.path, "a", encoding="utf-8", opener=as_its_folder) as file:
                for body in bodies:
                    self._digest = link(self._digest, body)
                    file.write(joined(body, self._digest) + "\n")
            self.revision = events[-1].revision


def read_lines(path: Path) -> list[Line]:
    """All lines of ``path``; ``RunError`` names the first one that is no event. A last line that has no end
    is being written."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as exc:
        raise RunError(f"{path} does not exist: this folder holds no run, or one that never began") from exc
    except UnicodeDecodeError as exc:
        raise RunError(f"{path}: the history is damaged: {exc}") from exc
    return list(_parsed(text[: text.rfind("\n") + 1], path))


def read_journal(path: Path) -> list[Event]:
    """All events in ``path``, as ``read_lines``."""
    return [line.event for line in read_lines(path)]


def read_head(path: Path) -> RecordHead | None:
    """Where the record in ``path`` ends; ``None`` if it has not begun, or bears no digests."""
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    if not lines:
        return None
    body, digest = parted(lines[-1].decode())
    return RecordHead(decode_event(body).revision, digest) if digest is not None else None


def digest_of(lines: Sequence[Line]) -> str:
    """The digest up to which ``lines`` come. Those that bear none are chained behind those that do."""
    digest = ""
    for line in lines:
        digest = line.digest or link(digest, line.body)
    return digest


def _parsed(text: str, path: Path) -> Iterator[Line]:
    for number, line in enumerate(text.split("\n")[:-1], start=1):
        body, digest = parted(line)
        try:
            yield Line(decode_event(body), body, digest)
        except UnreadableValue as exc:
            raise RunError(f"{path}:{number}: the history is damaged: {exc}") from exc


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
