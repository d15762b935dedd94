"""The Gantt chart: a row for each node, a bar for each attempt, and marks for faults and other events."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from cerebro_elastic.reporting.page.scale import Scale, Tick
from cerebro_elastic.reporting.tables import unit_text
from cerebro_elastic.reporting.timeline import Mark, QuarantineSpan, Span, Timeline
from cerebro_elastic.system.words import counted

WIDTH = 1000
LEFT, RIGHT, TOP = 110, 970, 26
ROW, BAR = 22, 14
_UNITS = ((3600, "h"), (60, "min"))
_LEAST = 1.0
"""Pixels below which neighbouring bars become one."""


@dataclass(frozen=True, slots=True)
class Bar:
    """An attempt, or several that are too short to be drawn one by one."""

    x: float
    """Its left end in pixels."""
    width: float
    """Its width in pixels."""
    config: str
    """The config's id; empty for attempts of several configs."""
    lost: bool
    """Whether work was lost."""
    tip: str
    """The text that appears when the mouse points at it."""


@dataclass(frozen=True, slots=True)
class Band:
    """A time in which a node was in quarantine."""

    x: float
    """Its left end in pixels."""
    width: float
    """Its width in pixels."""
    tip: str
    """The text that appears when the mouse points at it."""


@dataclass(frozen=True, slots=True)
class Flag:
    """A mark on a node's row."""

    x: float
    """Its place in pixels."""
    fault: bool
    """Whether it marks a fault."""
    tip: str
    """The text that appears when the mouse points at it."""


@dataclass(frozen=True, slots=True)
class Lane:
    """A node's row."""

    node: str
    y: float
    """Its upper edge in pixels."""
    bands: Sequence[Band]
    """The node's quarantines."""
    bars: Sequence[Bar]
    """The node's attempts."""
    flags: Sequence[Flag]
    """Events on the node."""


@dataclass(frozen=True, slots=True)
class Gantt:
    """The chart."""

    height: float
    """Its height in pixels."""
    across: Sequence[Tick]
    """The marks of the time axis."""
    lanes: Sequence[Lane]
    """The rows of all nodes."""
    flags: Sequence[Flag] = field(default=())
    """Events that concern no single node; they lie above the rows."""


def gantt(line: Timeline) -> Gantt | None:
    """The chart of a timeline; ``None`` without a visit."""
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
    """The bars in the order of time. Neighbouring attempts that are too short to be seen share a bar. A bar
    never covers idle time, and attempts of visible length have bars of their own."""
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
