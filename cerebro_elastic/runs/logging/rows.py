"""The rows that visits have logged: one for each step at which the task logged something."""

from __future__ import annotations

import json
from collections.abc import Iterable

from cerebro_elastic.core.model.attempts import Visit
from cerebro_elastic.system.files import locate, read

_MOST_POINTS = 2000
"""A longer curve is thinned out: a chart has no more pixels."""


def read_rows(url: str) -> list[dict[str, float]]:
    """The rows of one visit. Whatever is wrong with the file is raised."""
    return [json.loads(line) for line in read(locate(url)).splitlines()]


def step_curves(visits: Iterable[Visit]) -> dict[str, list[tuple[int, float]]]:
    """The curves of a config with these visits: by metric, steps and values. Rows that cannot be read from
    this machine are missing: they are for people only."""
    curves: dict[str, list[tuple[int, float]]] = {}
    for visit in visits:
        if visit.log is None:
            continue
        try:
            rows = read_rows(visit.log)
        except Exception:  # out of reach, damaged or deleted: the curve lacks it
            continue
        for row in rows:
            for name, value in row.items():
                if name not in ("step", "epoch"):
                    curves.setdefault(name, []).append((int(row["step"]), value))
    return {name: _thinned(points) for name, points in curves.items()}


def _thinned(points: list[tuple[int, float]]) -> list[tuple[int, float]]:
    every = -(-len(points) // _MOST_POINTS)
    return points if every <= 1 else [*points[:-1:every], points[-1]]
