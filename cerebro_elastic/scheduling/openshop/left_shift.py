"""Schedules as orders of units: each unit starts as early as it can."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

T = TypeVar("T", int, float)


def left_shifted(
    units: Iterable[tuple[int, int, int, T]], configs: Sequence[T], nodes: Sequence[Sequence[T]]
) -> Iterator[T]:
    """When each of ``units`` starts, if they are begun in this order, each as early as its config and its
    node's devices allow.

    Args:
        units: Config, node, how many of the node's devices it takes, and its length.
        configs: By config: when it is free.
        nodes: By node: when each of its devices is free, the first one first.
    """
    config_free = list(configs)
    node_free = [list(devices) for devices in nodes]
    for config, node, width, length in units:
        free = node_free[node]
        start = max(config_free[config], free[width - 1])
        end: T = start + length
        config_free[config] = end
        if len(free) == 1:
            free[0] = end
        else:
            node_free[node] = sorted(free[width:] + [end] * width)
        yield start
