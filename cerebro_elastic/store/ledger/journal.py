"""A run's history in a file: one event a line, in the store's order. Results are read from it, also when
the store is gone.

Its order is that of the lines. It begins with a state that was read, and has another where the
store's history could not be followed without a gap; behind one, revisions may be lower than before (a
restored snapshot).
The lines are a chain: each bears a digest of itself and of all lines before it. A digest that was noted
elsewhere shows whether any line before it was changed since. The digest is the last key of the line's JSON
object; it covers the rest of the line, byte for byte. Anything behind the last whole line is no part of the
record: a full disk, a kill or a power cut has torn it, and it is cut off before anything else is written.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from cerebro_elastic.core.model.codec import UnreadableValue, encode
from cerebro_elastic.core.model.events import Event
from cerebro_elastic.core.model.units import RecordHead
from cerebro_elastic.errors import Rewound, RunError
from cerebro_elastic.store.ledger.history import decode_event
from cerebro_elastic.system.files import append

_DIGEST = re.compile(r',\s*"chain":\s*"([0-9a-f]{64})"\s*}\s*$')


def chain_digest(previous: str, body: str) -> str:
    """The digest of a line with this ``body`` behind one with the digest ``previous`` ("" for the first)."""
    return hashlib.sha256(f"{previous}\n{body}".encode()).hexdigest()


def with_digest(body: str, digest: str) -> str:
    """The line for an event's JSON and its digest."""
    return f'{body[:-1]},"chain":"{digest}"}}'


def split_digest(line: str) -> tuple[str, str]:
    """The event's JSON and the digest of a line. Raises ``UnreadableValue`` if it bears none."""
    match = _DIGEST.search(line)
    if match is None:
        raise UnreadableValue("the line bears no digest")
    return line[: match.start()] + "}", match[1]


@dataclass(frozen=True, slots=True)
class Line:
    event: Event
    body: str
    """The event's JSON, as in the line."""
    digest: str


@dataclass(frozen=True, slots=True)
class _End:
    """Where a journal ends. One value, so that an interrupt cannot separate its parts."""

    size: int
    """The bytes up to there."""
    revision: int
    """The revision of the last line; 0 in an empty journal."""
    digest: str
    last: Sequence[str]
    """The lines of the last revision, as far as the store has them, too."""


class Journal:
    """Appends events to ``path``, each once, however often its writers restart."""

    def __init__(self, path: Path) -> None:
        self.path = path
        lines = read_lines(path) if path.exists() else []
        events = [line.event for line in lines]
        revision = events[-1].revision if events else 0
        digest = lines[-1].digest if lines else ""
        self._end = _End(_whole_bytes(path), revision, digest, _of_one_revision(events))
        self._unproven: Sequence[str] = ()

    def __bool__(self) -> bool:
        """Whether it has a line."""
        return self.revision > 0

    @property
    def revision(self) -> int:
        """The revision of the last line; 0 in an empty journal."""
        return self._end.revision

    @property
    def head(self) -> RecordHead:
        """Where the journal ends."""
        return RecordHead(self._end.revision, self._end.digest)

    def resume(self, read: Event, *, afresh: bool = False) -> int:
        """Continue in a store whose state was ``read``.

        Args:
            read: The event of that.
            afresh: Whether the store's history cannot be followed from the last line; only the caller can
                tell. Then ``read`` becomes a line, from which the journal continues.

        Returns:
            The revision from which to append events.
        """
        if afresh or not self or read.revision < self.revision:
            self._write(read.revision, [encode(read)], last=[])
        self._unproven = self._end.last
        return self.revision if self._unproven else self.revision + 1

    def append(self, events: list[Event]) -> None:
        """Add the events of one revision, unless the journal has them.

        Raises:
            Rewound: The first events after ``resume`` are not the journal's last: the store has another
                history.
            DiskFull: No space is left. The journal is as before.
        """
        if not events or events[0].revision < self.revision:
            return
        lines = [encode(event) for event in events]
        known = self._unproven
        if known and (events[0].revision > self.revision or lines[: len(known)] != known):
            raise Rewound(
                f"the store has another history than {self.path}, which ends at revision {self.revision}: "
                "it was restored from a snapshot"
            )
        if known or events[0].revision > self.revision:
            self._write(events[-1].revision, lines[len(known) :], last=lines)
        self._unproven = ()

    def _write(self, revision: int, bodies: Sequence[str], last: Sequence[str]) -> None:
        digest, text = self._end.digest, ""
        for body in bodies:
            digest = chain_digest(digest, body)
            text += with_digest(body, digest) + "\n"
        size = append(self.path, text.encode(), at=self._end.size)
        self._end = _End(size, revision, digest, last)


def read_lines(path: Path) -> list[Line]:
    """All lines of ``path`` except a last one without an end, which is being written. Raises ``RunError``
    that names the first line that is no event."""
    try:
        content = path.read_bytes()
        text = content[: content.rfind(b"\n") + 1].decode()
    except FileNotFoundError as exc:
        raise RunError(f"{path} does not exist: this folder holds no run, or one that never began") from exc
    except UnicodeDecodeError as exc:
        raise RunError(f"{path}: the history is damaged: {exc}") from exc
    return list(_parsed(text, path))


def read_journal(path: Path) -> list[Event]:
    """All events in ``path``. Raises as ``read_lines``."""
    return [line.event for line in read_lines(path)]


class JournalReader:
    """Reads each event of the journal at ``path`` once, while it grows."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def new_events(self) -> Iterator[Event]:
        """The events that the journal has gained since the last call, as far as their lines are whole."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._offset)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                self._offset += len(line)
                yield decode_event(split_digest(line.decode())[0])


def chained(events: Iterable[Event]) -> list[Line]:
    """The lines of a journal that has these events alone."""
    lines, digest = [], ""
    for event in events:
        body = encode(event)
        digest = chain_digest(digest, body)
        lines.append(Line(event, body, digest))
    return lines


def _parsed(text: str, path: Path) -> Iterator[Line]:
    for number, line in enumerate(text.split("\n")[:-1], start=1):
        try:
            body, digest = split_digest(line)
            yield Line(decode_event(body), body, digest)
        except UnreadableValue as exc:
            raise RunError(f"{path}:{number}: the history is damaged: {exc}") from exc


def _of_one_revision(events: list[Event]) -> list[str]:
    """The lines of the last revision, as far as the store has them, too."""
    last = events[-1].revision if events else 0
    ours = takewhile(lambda e: e.revision == last and not e.afresh, reversed(events))
    return [encode(event) for event in reversed(list(ours))]


def _whole_bytes(path: Path) -> int:
    """The bytes of all lines that have an end."""
    return path.read_bytes().rfind(b"\n") + 1 if path.exists() else 0
