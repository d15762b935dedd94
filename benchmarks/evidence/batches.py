"""What the batches that two nodes trained say of a kill: for ``kills.py``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, NamedTuple

GAP_SECONDS = 0.5
"""A node that trains no batch for so long waits."""


class Batch(NamedTuple):
    """A batch that a node trained."""

    time: float
    node: str
    config: int
    number: str
    """Its epoch and place; the same for all hopped batches, which do not say."""
    rows: int


def costs(batches: Sequence[Batch], killed: float, back: float) -> dict[str, float]:
    """What the loss of ``b`` cost, in seconds."""
    first = batches[0].time
    struck = next(batch for batch in reversed(batches) if batch.node == "b" and batch.time <= killed)
    again = [b.time for b in batches if b.config == struck.config and b.time > killed + 0.1]
    left = [killed, *(batch.time for batch in batches if batch.node == "a" and batch.time > killed)]
    gaps = [later - earlier for earlier, later in pairwise(left)]
    returned = [batch.time - back for batch in batches if batch.node == "b" and batch.time > back]
    found = {
        "killed": killed - first,
        "back": back - first,
        "resumed": again[0] - killed,
        "survivor_idle": sum(gap for gap in gaps if gap > GAP_SECONDS),
    }
    return found | ({"returned": returned[0]} if returned else {})


@dataclass
class Bar:
    """A time in which a node trained batches of one config."""

    node: str
    config: int
    start: float
    end: float
    lost: bool


def bars(batches: Sequence[Batch], flags: Sequence[bool], first: float) -> list[dict[str, Any]]:
    """The batches of each node, joined where no gap is between them, as JSON has them."""
    found: list[Bar] = []
    last: dict[str, Bar] = {}
    for batch, lost in zip(batches, flags, strict=True):
        bar, at = last.get(batch.node), round(batch.time - first, 3)
        if bar is not None and at - bar.end <= GAP_SECONDS:
            bar.end = at
            if (bar.config, bar.lost) == (batch.config, lost):
                continue
        last[batch.node] = Bar(batch.node, batch.config, at, at, lost)
        found.append(last[batch.node])
    return [asdict(bar) for bar in found]
