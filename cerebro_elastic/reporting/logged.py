"""The rows logged by visits, one for each step at which the task logged something, and the interface of the
loggers that get them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, TypeAlias

from cerebro_elastic.core.history.view import RunView
from cerebro_elastic.core.model.attempts import Visit
from cerebro_elastic.core.model.configs import Config, HParams, Status
from cerebro_elastic.system.files import locate, read

EndStatus: TypeAlias = Literal["finished", "stopped", "pruned", "failed"]
"""How a config has ended: ``stopped`` by a person, ``pruned`` by the search."""


_MOST_POINTS = 2000
"""A longer curve is thinned out: a chart has no more pixels."""


def read_rows(url: str) -> list[dict[str, float]]:
    """The rows of one visit. Any error with the file is raised."""
    return [json.loads(line) for line in read(locate(url)).splitlines()]


def step_curves(visits: Iterable[Visit]) -> dict[str, list[tuple[int, float]]]:
    """The curves of a config with these visits: by metric, steps and values. Rows that this machine cannot
    read are missing: they are for people only."""
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


@dataclass(frozen=True, slots=True)
class Logged:
    """The rows of one visit."""

    config: str
    hparams: HParams
    rows: Sequence[Mapping[str, float]]
    """Metrics by name, in the order in which they were logged. ``step`` counts the config's steps over all
    nodes, ``epoch`` its epochs."""
    start: float
    """When the visit began, in seconds of wall-clock time."""
    end: float
    """When it ended, in seconds of wall-clock time."""
    parent: str = ""
    """The config from which it was cloned; "" for one that started from scratch."""

    def timed_rows(self) -> Iterator[tuple[float, int, dict[str, float]]]:
        """For each row: its approximate time, its step, and its metrics without the step."""
        for number, row in enumerate(self.rows, start=1):
            time = self.start + (self.end - self.start) * number / len(self.rows)
            yield time, int(row["step"]), {name: value for name, value in row.items() if name != "step"}


@dataclass(frozen=True, slots=True)
class ConfigEnd:
    """A config gets no more units, unless it is resumed or the run is extended."""

    config: str
    hparams: HParams
    status: EndStatus
    reason: str
    """Why it has this status, for people; empty without a reason."""
    time: float | None
    """When its last visit ended, in seconds of wall-clock time; ``None`` without a visit."""
    revision: int
    """The revision of the store at which it ended. A config that ends again has a higher one."""
    parent: str = ""
    """As in ``Logged``."""
    checkpoint: str = ""
    """The URL of its last state; empty without one."""


def config_end(view: RunView, config: Config) -> ConfigEnd:
    """The end of a config that gets no more units."""
    visits = view.visits.get(config.id, ())
    return ConfigEnd(
        config.id,
        config.hparams,
        _end_status(config),
        config.reason,
        visits[-1].ended if visits else None,
        config.revision,
        parent_of(config),
        config.head.url if config.head is not None else "",
    )


def _end_status(config: Config) -> EndStatus:
    match config.status:
        case Status.FAILED:
            return "failed"
        case Status.STOPPED:
            return "stopped" if config.by_hand else "pruned"
        case _:
            return "finished"


def parent_of(config: Config) -> str:
    """The id of the config from which it continues; "" if it started from scratch or from outside the run."""
    return config.parent.config if config.parent is not None else ""


class Logger(Protocol):
    """Writes rows for a program that shows curves. It gets the visits of each config in their order."""

    def write(self, logged: Logged) -> None:
        """Write a visit's rows. If it raises, the run continues without this logger."""

    def end(self, end: ConfigEnd) -> None:
        """Note that a config has ended. Later rows mean that it was resumed."""

    def close(self) -> None:
        """Finish: no more rows will come."""


class Tracker(Logger, Protocol):
    """A logger that keeps runs and configs (entry-point group ``cerebro.trackers``). It is made with the id
    of the run, an ``identity`` that sets the run apart from another one of this id, a ``folder`` for files,
    and the ``args`` of the recipe."""

    Arguments: ClassVar[Any]
    """The schema of its ``args``: a ``Section``."""
    environment: ClassVar[Mapping[str, str]]
    """Variables for the environment of its process, unless set there already."""
    buffers: ClassVar[bool]
    """Whether a kill may lose rows of a config until the config ends, or the tracker is closed."""
