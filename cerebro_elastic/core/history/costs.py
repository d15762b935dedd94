"""What has a run cost? The hours for which its nodes were registered, each times its price.

A node writes when it registered (``Node.joined``). When it leaves, its lease ends, and nobody records the
time: the leader notes it (``StayEnded``) as the end of the last visit of all nodes, which is the core's
"now". So the hours are in the record, whoever leads, and an idle run costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from math import fsum, inf

from cerebro_elastic.core.model.nodes import Stay
from cerebro_elastic.core.model.state import State

HOUR = 3600.0


def is_there(state: State, stay: Stay) -> bool:
    """Whether the stay's node has been registered since it began."""
    node = state.nodes.get(stay.node)
    return node is not None and node.joined == stay.joined


def stays_of(state: State) -> list[Stay]:
    """All stays; those whose node is gone have an end."""
    return [
        replace(stay, left=_end(state, stay)) if stay.left is None and not is_there(state, stay) else stay
        for stay in state.stays.values()
    ]


def cost(stays: Iterable[Stay], price: float, now: float) -> float:
    """The cost of the ``stays`` by ``now``; ``price`` is that of an hour of a node without its own price. The
    order of the stays does not change it."""
    return fsum(max(0.0, (now if s.left is None else s.left) - s.joined) * _rate(s, price) for s in stays)


def paused_seconds(stays: Iterable[Stay], began: float) -> float:
    """The seconds without any node since ``began``, up to the last return of one."""
    paused, until = 0.0, began
    for stay in sorted(stays, key=lambda stay: stay.joined):
        paused += max(0.0, stay.joined - until)
        until = max(until, inf if stay.left is None else stay.left)
    return paused


def cost_per_second(stays: Iterable[Stay], price: float) -> float:
    """The cost of the present nodes each second."""
    return fsum(_rate(stay, price) for stay in stays if stay.left is None)


def _end(state: State, stay: Stay) -> float:
    """When a node that is gone left: at the last visit's end, or at its return, if that was earlier."""
    later = (s.joined for s in state.stays.values() if s.node == stay.node and s.joined > stay.joined)
    return max(stay.joined, min([state.usage.until, *later]))


def _rate(stay: Stay, price: float) -> float:
    return (price if stay.price is None else stay.price) / HOUR
