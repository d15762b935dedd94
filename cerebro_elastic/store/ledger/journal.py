"""A run's history in a file: one event a line, in the store's order. ``verify``, ``replay`` and
``open_run`` read it when the store is gone.

Its order is that of the lines. It begins with a ``StateRead``, and has another where the store's history
could not be followed without a gap; behind one, revisions may be lower than before (a restored snapshot).
The lines are a chain: each bears a digest of itself and of all lines before it. A digest that was noted
elsewhere shows whether any line before it was changed since. The digest is the last key of the line's JSON
object; it covers the rest of the line, byte for byte.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from cerebro_elastic.core.model.codec import UnreadableValue, encode
from cerebro_elastic.core.model.events import Event, StateRead
from cerebro_elastic.core.model.units import RecordHead
from cerebro_elastic.errors import Rewound, RunError
from cerebro_elastic.files import as_its_folder
from cerebro_elastic.store.ledger.history import decode_event

_DIGEST = re.compile(r',\s*"chain":\s*"([0-9a-f]{64})"\s*}\s*$')


def chain_digest(previous: str, body: str) -> str:
    """The digest of a line with this ``body`` behind one with the digest ``previous`` ("" for the first)."""
    return hashlib.sha256(f"{previous}\n{body}".encode()).hexdigest()


def with_digest(body: str, digest: str) -> str:
    """The line for an event's JSON and its digest."""
    return f'{body[:-1]},"chain":"{digest}"}}'


def split_digest(line: str) -> tuple[str, str | None]:
    """The event's JSON and the digest of a line; lines of earlier versions of this package have none."""
    match = _DIGEST.search(line)
    return (line, None) if match is None else (line[: match.start()] + "}", match[1])


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a journal."""

    event: Event
    """What it records."""
    body: str
    """The event's JSON, as it stands in the line."""
    digest: str | None
    """The digest that it bears; ``None`` in records of earlier versions."""


class Journal:
    """Appends events to ``path``, each once, however often its writers restart."""

    def __init__(self, path: Path) -> None:
        self.path = path
        _drop_torn_line(path)
        lines = read_lines(path) if path.exists() else []
        self.revision = lines[-1].event.revision if lines else 0
        self._digest = digest_of(lines)
        self._last = _of_one_revision([line.event for line in lines])
        self._unproven: list[str] = []

    def __bool__(self) -> bool:
        """Whether it has a line."""
        return self.revision > 0

    @property
    def head(self) -> RecordHead:
        """Where it ends."""
        return RecordHead(self.revision, self._digest)

    def resume(self, read: StateRead, *, afresh: bool = False) -> int:
        """Go on in a store whose state is ``read``.

        Args:
            read: The state of the store.
            afresh: Whether the store's history cannot be followed from the last line; only the caller knows.
                Then ``read`` becomes a line, from which the journal goes on.

        Returns:
            The revision from which events are to be appended.
        """
        if afresh or not self or read.revision < self.revision:
            self._write([read], [encode(read)])
            self._last = []
        self._unproven = self._last
        return self.revision if self._unproven else self.revision + 1

    def append(self, events: list[Event]) -> None:
        """Add the events of one revision, unless the journal has them.

        Raises:
            Rewound: The first events after ``resume`` are not the journal's last: the store has another
                history.
        """
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
                    self._digest = chain_digest(self._digest, body)
                    file.write(with_digest(body, self._digest) + "\n")
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
    body, digest = split_digest(lines[-1].decode())
    return RecordHead(decode_event(body).revision, digest) if digest is not None else None


def digest_of(lines: Sequence[Line]) -> str:
    """The digest up to which ``lines`` come. Those that bear none are chained behind those that do."""
    digest = ""
    for line in lines:
        digest = line.digest or chain_digest(digest, line.body)
    return digest


def _parsed(text: str, path: Path) -> Iterator[Line]:
    for number, line in enumerate(text.split("\n")[:-1], start=1):
        body, digest = split_digest(line)
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
