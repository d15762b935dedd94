"""Checks that a record is unchanged: its lines are a chain, and assignments and checkpoints bear its heads.

Each line bears a digest over itself and all lines before it, so a changed line is named. A change with all
later digests recomputed is found by the heads noted elsewhere: with each assignment the leader notes the head
of its record, and the unit's checkpoint bears that head, too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from cerebro_elastic.core.model.events import Event, LeaderChanged, UnitAssigned
from cerebro_elastic.core.model.origin import Origin
from cerebro_elastic.core.model.units import RecordHead
from cerebro_elastic.store.ledger.journal import Line, chain_digest
from cerebro_elastic.system.words import counted


def chain(lines: Sequence[Line]) -> Iterator[str]:
    """The first line whose digest is not that of itself and the lines before it, and the number of others."""
    broken, previous = [], ""
    for number, line in enumerate(lines, start=1):
        if line.digest != chain_digest(previous, line.body):
            broken.append(
                f"line {number} ({type(line.event).__name__} at revision {line.event.revision}) is not as it "
                "was written, or lines before it were taken out, put in or exchanged"
            )
        previous = line.digest
    if broken:
        more = f"; and so {counted(len(broken) - 1, 'line')} behind it" if len(broken) > 1 else ""
        yield f"{broken[0]}{more}"


def assignments(lines: Sequence[Line]) -> tuple[list[str], list[str]]:
    """The lines that differ from the leader's, by the heads noted in the record; and the lines that no such
    head covers.

    A head of this record covers all lines before it. A head of another machine, the leader at that time,
    covers the lines from its first one on: both records have the same lines there.
    """
    walk = _walked(lines)
    return walk.wrong, walk.uncovered


@dataclass(frozen=True, slots=True)
class Heads:
    """The heads of a record, and those of the leader's record at the same lines."""

    last: str
    """The leader's head after the last line: the same on all machines that took part. This record's own if it
    has no head of the leader's."""
    lines: Mapping[str, int]
    """By head, the number of the line."""


def heads(lines: Sequence[Line]) -> Heads:
    """The heads of a record."""
    walk = _walked(lines)
    own = {line.digest: number for number, line in enumerate(lines, start=1)}
    return Heads(walk.theirs_at(len(lines)) or (lines[-1].digest if lines else ""), {**walk.leaders, **own})


def checkpoints(lines: Sequence[Line], origins: Sequence[Origin], *, grows: bool) -> Iterator[str]:
    """The checkpoints whose head differs from that of their recorded assignment, or that have no such
    assignment. The record ``grows`` if the run is live."""
    events = [line.event for line in lines]
    attempts = {event.revision: event.attempt for event in events if isinstance(event, UnitAssigned)}
    end = lines[-1].event.revision if lines else 0
    for origin in origins:
        attempt = attempts.get(origin.attempt)
        what = f"the checkpoint of {origin.unit.config} that attempt {origin.attempt} wrote"
        if origin.attempt > end:
            if not grows:
                yield (
                    f"the record ends at revision {end}, and {what} is of later: its end is missing (or this "
                    "machine was killed or has left: then the records of those that stayed are whole)"
                )
        elif attempt is None:
            if not _forgotten(events, origin.attempt):
                yield f"{what} has no assignment on record"
        elif origin.record not in (None, attempt.record):
            had = attempt.record.digest[:16] if attempt.record else "none"
            yield (
                f"{what} says that the record had the head {origin.record.digest[:16]} at revision "
                f"{origin.record.revision}, on record is {had}: lines up to there are not as written"
            )


def rewound(events: Sequence[Event]) -> bool:
    """Whether the store was restored to an earlier revision in the course of the record, so that earlier
    attempts may bear the tokens of later ones."""
    revisions = [event.revision for event in events]
    return any(after < before for before, after in pairwise(revisions))


def _forgotten(events: Sequence[Event], revision: int) -> bool:
    """Whether the record may have no event of this revision, because the state was read afresh after it."""
    known = 0
    for event in events:
        if event.afresh and (known < revision <= event.revision or event.revision < known):
            return True
        known = event.revision
    return False


@dataclass(slots=True)
class _Step:
    """A line of a record, with the digests of the chain up to it."""

    number: int
    revision: int
    body: str
    """The event as JSON."""
    own: str
    """The digest in this record."""
    theirs: str | None
    """The digest in the leader's record, if different."""


def _walked(lines: Sequence[Line]) -> _Walk:
    walk = _Walk()
    for number, line in enumerate(lines, start=1):
        walk.take(number, line)
        if isinstance(line.event, LeaderChanged) and line.event.record is not None:
            walk.meet(line.event.record, begins=True)
        elif isinstance(line.event, UnitAssigned) and line.event.attempt.record is not None:
            walk.meet(line.event.attempt.record, begins=False)
    return walk


class _Walk:
    """Walks through the lines of a record, from head to head."""

    def __init__(self) -> None:
        self.leaders: dict[str, int] = {}
        """By digest in the leader's record, the number of the line."""
        self.wrong: list[str] = []
        self.uncovered: list[str] = []
        self._steps: list[_Step] = []
        self._covered = 0
        self._read_at = 0
        """The revision at which the state was read."""
        self._free = True
        """Whether the next head may be another record's: none came since the state was read or the lead
        changed."""

    def take(self, number: int, line: Line) -> None:
        if line.event.afresh:
            self._steps, self._read_at, self._free = [], line.event.revision, True
        before = self._steps[-1].theirs if self._steps else None
        theirs = chain_digest(before, line.body) if before is not None else None
        self._steps.append(self._noted(_Step(number, line.event.revision, line.body, line.digest, theirs)))

    def theirs_at(self, number: int) -> str | None:
        """The digest of the last line, ``number``, in the leader's record, if different."""
        return self._steps[-1].theirs if self._steps and self._steps[-1].number == number else None

    def _noted(self, step: _Step) -> _Step:
        if step.theirs is not None:
            self.leaders[step.theirs] = step.number
        return step

    def meet(self, head: RecordHead, *, begins: bool) -> None:
        """The last line bears this head; if it ``begins`` a lead, the head may be of another record. The
        leader may have had less than the state read here: such a head says nothing about these lines."""
        if head.revision < self._read_at:
            return
        behind = [self._steps.pop()]  # the line that bears the head
        while self._steps and self._steps[-1].revision > head.revision:
            behind.append(self._steps.pop())
        at = self._steps[-1] if self._steps else None
        here = at is not None and at.revision == head.revision
        first, last = self._covered + 1, max(self._covered, at.number if at is not None else 0)
        if at is not None and here and head.digest == at.own:
            at.theirs = None
        elif at is None or not here or head.digest != at.theirs:
            span = f"line {first}" if first == last else f"lines {first} to {last}"
            if not (begins or self._free):
                self.wrong.append(
                    f"{span}: not as whoever led had them, whose record had the digest {head.digest[:16]} at "
                    f"revision {head.revision}"
                )
            elif first <= last:
                self.uncovered.append(span)
            self._steps.append(_Step(last, head.revision, "", "", head.digest))
        for step in reversed(behind):
            before = self._steps[-1].theirs
            step.theirs = chain_digest(before, step.body) if before is not None else None
            self._steps.append(self._noted(step))
        self._covered, self._free = last, False
