"""The Gantt chart: a row for each node, a bar for each attempt, marks for what was out of the ordinary."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from cerebro_elastic.reporting.page.scale import Scale, Tick
from cerebro_elastic.reporting.tables import unit_text
from cerebro_elastic.reporting.timeline import Mark, QuarantineSpan, Span, Timeline
from cerebro_elastic.words import counted

WIDTH = 1000
LEFT, RIGHT, TOP = 110, 970, 26
ROW, BAR = 22, 14
_UNITS = ((3600, "h"), (60, "min"))
_LEAST = 1.0
"""Pixels below which neighbouring bars become one."""


@dataclass(frozen=True, slots=True)
class Bar:
    """An attempt; or several that are too short to be seen one by one, of which ``config`` is empty if they
    are of different configs."""

    x: float
    width: float
    config: str
    lost: bool
    tip: str


@dataclass(frozen=True, slots=True)
class Band:
    """A time in which a node was in quarantine."""

    x: float
    width: float
    tip: str


@dataclass(frozen=True, slots=True)
class Flag:
    """A mark on a node's row."""

    x: float
    fault: bool
    tip: str


@dataclass(frozen=True, slots=True)
class Lane:
    """A node's row."""

    node: str
    y: float
    bands: Sequence[Band]
    bars: Sequence[Bar]
    flags: Sequence[Flag]


@dataclass(frozen=True, slots=True)
class Gantt:
    """All rows; ``flags`` lie above them and concern no node."""

    height: float
    across: Sequence[Tick]
    lanes: Sequence[Lane]
    flags: Sequence[Flag] = field(default=())


def gantt(line: Timeline) -> Gantt | None:
    """Nothing if no unit was done yet."""
    if not line.spans:
        return None
    x = Scale(0.0, line.seconds, LEFT, RIGHT)
    spans = {node: list(group) for node, group in groupby(line.spans, key=lambda span: span.node)}
    lanes = [
        Lane(
            share.node,
            TOP + index * ROW,
            [_band(q, x, line.begin) for q in line.quarantines if q.node == share.node],
            list(_bars(spans.get(share.node, []), x, line.begin)),
            _flags([mark for mark in line.marks if mark.node == share.node], x, line.begin),
        )
        for index, share in enumerate(line.shares)
    ]
    return Gantt(
        height=TOP + len(lanes) * ROW + 24,
        across=_hours(line.seconds),
        lanes=lanes,
        flags=_flags([mark for mark in line.marks if mark.node is None], x, line.begin),
    )


def _hours(seconds: float) -> list[Tick]:
    """Marks at round numbers of seconds, minutes or hours."""
    unit, name = next(((n, name) for n, name in _UNITS if seconds >= 2 * n), (1, "s"))
    return [Tick(tick.at, f"{tick.text} {name}") for tick in Scale(0.0, seconds / unit, LEFT, RIGHT).ticks()]


def _bars(spans: Sequence[Span], x: Scale, begin: float) -> Iterator[Bar]:
    """In the order of time. What is too short to be seen is drawn together with what is beside it, as far as
    that is as short: no bar covers a time in which nothing was done, or calls another's work lost."""
    together: list[Span] = []
    for span in spans:
        if together and x(span.end - begin) - x(together[0].start - begin) >= _LEAST:
            yield _bar(together, x, begin)
            together = []
        together.append(span)
    if together:
        yield _bar(together, x, begin)


def _bar(spans: Sequence[Span], x: Scale, begin: float) -> Bar:
    start, end = x(spans[0].start - begin), x(max(span.end for span in spans) - begin)
    configs = {span.unit.config for span in spans}
    several = f"{len(spans)} attempts at {counted(len(configs), 'config')}"
    return Bar(
        x=start,
        width=max(end - start - 0.4, 0.6),
        config=spans[0].unit.config if len(configs) == 1 else "",
        lost=any(span.lost for span in spans),
        tip=_tip(spans[0], begin) if len(spans) == 1 else several,
    )


def _tip(span: Span, begin: float) -> str:
    what = f"{unit_text(span.unit)} on {span.node}, {span.start - begin:.2f} s to {span.end - begin:.2f} s"
    if span.visit is None:
        return f"{what}: {span.why}"
    parts = [f"{span.visit.strategy}", f"{span.visit.seconds:.3g} s", f"hop {span.visit.hop_seconds:.3g} s"]
    if span.visit.fetch_seconds:
        parts.append(f"fetch {span.visit.fetch_seconds:.3g} s")
    if span.visit.save_seconds:
        parts.append(f"saved {span.visit.save_seconds:.3g} s behind it")
    if not span.visit.whole:
        parts.append(f"left after {counted(span.visit.skip + span.visit.batches, 'batch', 'batches')}")
    return f"{what}: {', '.join(parts)}"


def _band(quarantine: QuarantineSpan, x: Scale, begin: float) -> Band:
    start, end = x(quarantine.start - begin), x(quarantine.end - begin)
    tip = f"{quarantine.node} in quarantine for about {quarantine.seconds:.1f} s: {quarantine.why}"
    return Band(start, max(end - start, 0.6), tip)


def _flags(marks: Sequence[Mark], x: Scale, begin: float) -> list[Flag]:
    return [Flag(x(m.at - begin), m.fault, f"about {m.at - begin:.1f} s: {m.text}") for m in marks]
