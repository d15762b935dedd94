"""A run's report: one HTML page that needs nothing else, neither network nor this package."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any
from urllib.parse import quote

import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined

from cerebro_elastic.core.model.codec import UnreadableValue, decode, encode
from cerebro_elastic.core.model.events import Event
from cerebro_elastic.core.model.run import Spec
from cerebro_elastic.core.model.state import State
from cerebro_elastic.core.model.units import RecordHead
from cerebro_elastic.data.manifest import Manifest
from cerebro_elastic.reporting.curves import curves_text, leaderboard_text
from cerebro_elastic.reporting.gap import gap
from cerebro_elastic.reporting.page import curves, gantt, parallel
from cerebro_elastic.reporting.page.scale import number
from cerebro_elastic.reporting.results import gather, leaderboard, nodes_of
from cerebro_elastic.reporting.tables import brief, bytes_text, clock_text, hparams_text
from cerebro_elastic.reporting.timeline import timeline
from cerebro_elastic.reporting.traffic import traffic

COLOURED = 8
"""The best so many configs have colours of their own, the same in all charts."""
_MOST_MARKS = 300
_COLOPHON = re.compile(r'<meta name="cerebro-colophon" content="([^"]*)">')


@dataclass(frozen=True, slots=True)
class Colophon:
    """How a report came about, which it says itself, so that ``verify`` can write it again: when it was
    ``written``, for people, by which ``version`` of this package and with which ``versions`` of others,
    whether the ``dataset`` was in reach, where the ``record`` ended that it is of, and the ``notes`` on
    it."""

    written: str
    version: str
    versions: Mapping[str, str]
    dataset: bool = False
    record: RecordHead | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Subject:
    """What a report is about: the run's spec and history, the objective, its dataset's manifest if it is in
    reach, and how it comes about."""

    spec: Spec
    events: Sequence[Event]
    metric: str
    mode: str
    manifest: Manifest | None
    colophon: Colophon


def render(subject: Subject) -> str:
    """The page."""
    rows = leaderboard(subject.events, subject.metric, subject.mode)
    state, visits = gather(subject.events)
    nodes = nodes_of(subject.events)
    line = timeline(subject.events)
    return (
        _environment()
        .get_template("page.html.j2")
        .render(
            subject=subject,
            colophon=subject.colophon,
            told=encode(subject.colophon),
            spec=subject.spec,
            state=state,
            rows=rows,
            colours={row.config: place for place, row in enumerate(rows[:COLOURED], start=1)},
            leaderboard_csv=leaderboard_text(rows, subject.metric),
            metrics_csv=curves_text(rows),
            groups=curves.groups(rows, subject.metric),
            trained=curves.trained(rows),
            curves=curves,
            coordinates=parallel.coordinates(rows, subject.metric, _logarithmic(subject.spec)),
            parallel=parallel,
            line=line,
            marks=line.marks[:_MOST_MARKS],
            chart=gantt.gantt(line),
            gantt=gantt,
            gap=gap(state),
            traffic=traffic(visits, subject.manifest, {name: node.host for name, node in nodes.items()}),
            nodes=nodes,
            recipe=yaml.safe_dump(dict(subject.spec.recipe), sort_keys=False, allow_unicode=True, width=100),
            outcome=_outcome(state),
        )
    )


def colophon_of(page: str) -> Colophon | None:
    """What a report says of how it came about; those of earlier versions say nothing."""
    found = _COLOPHON.search(page)
    try:
        return decode(html.unescape(found[1]), Colophon) if found is not None else None
    except UnreadableValue:
        return None


def _logarithmic(spec: Spec) -> dict[str, bool]:
    """The hyper-parameters that are drawn from a range, and whether it is by their logarithm."""
    space = spec.recipe.get("search", {}).get("space", {})
    return {n: "loguniform" in domain for n, domain in space.items() if {"uniform", "loguniform"} & {*domain}}


def _outcome(state: State) -> str:
    """How the run stood when the report was written."""
    return "has ended" if state.outcome is not None else "had not ended when this was written"


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("cerebro_elastic.reporting.page", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "number": number,
        "brief": brief,
        "bytes": bytes_text,
        "clock": clock_text,
        "hparams": hparams_text,
        "percent": _percent,
        "cut": _cut,
        "csv_url": _csv_url,
    }
    return environment


def _percent(part: Any, whole: float) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "-"


def _cut(text: str, most: int) -> str:
    """A text of at most ``most`` letters."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _csv_url(text: str) -> str:
    """A table within the page: it may be sent without the run's folder."""
    return f"data:text/csv;charset=utf-8,{quote(text, errors='replace')}"
