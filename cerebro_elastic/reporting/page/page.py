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
from jinja2 import Environment

from cerebro_elastic.core.history.view import RunView
from cerebro_elastic.core.model.codec import UnreadableValue, decode, encode
from cerebro_elastic.core.model.events import Event
from cerebro_elastic.core.model.run import Spec
from cerebro_elastic.core.model.state import State
from cerebro_elastic.core.model.units import RecordHead
from cerebro_elastic.data.manifest import Manifest
from cerebro_elastic.recipes import Objective
from cerebro_elastic.reporting.curves import curves_text, leaderboard_text
from cerebro_elastic.reporting.gap import gap
from cerebro_elastic.reporting.page import curves, gantt, parallel
from cerebro_elastic.reporting.page.environment import page_environment
from cerebro_elastic.reporting.page.scale import number
from cerebro_elastic.reporting.results import leaderboard
from cerebro_elastic.reporting.tables import brief, bytes_text, clock_text, hparams_text
from cerebro_elastic.reporting.timeline import timeline
from cerebro_elastic.reporting.traffic import summarize_traffic

COLOURED = 8
"""The number of best configs that have colours of their own, the same in all charts."""
_MOST_MARKS = 300
_METADATA = re.compile(r'<meta name="cerebro-colophon" content="([^"]*)">')


@dataclass(frozen=True, slots=True)
class ReportMetadata:
    """How a report was written. The page contains it, so that ``verify`` can write the page again."""

    written: str
    """The date and time, as the page shows it."""
    version: str
    versions: Mapping[str, str]
    """The versions of the packages that training depends on, by name."""
    dataset: bool = False
    """Whether the dataset's manifest could be read."""
    record: RecordHead | None = None
    """Where the run's record ended then; ``None`` if the run was read from the store."""
    notes: tuple[str, ...] = ()
    """Sentences that the page shows on top."""
    exactness: str = ""
    """What is known of it, in a line; empty on the page of a simulation."""


@dataclass(frozen=True, slots=True)
class Report:
    """The contents of a report."""

    spec: Spec
    events: Sequence[Event]
    """Its history, so far as the report goes."""
    objective: Objective
    """The metric by which configs are ranked."""
    manifest: Manifest | None
    """The manifest of its dataset, if it can be read."""
    metadata: ReportMetadata


def render(report: Report) -> str:
    """Write the page."""
    view = RunView(report.events)
    rows = leaderboard(view, report.objective.metric, report.objective.mode)
    line = timeline(report.events)
    return (
        _environment()
        .get_template("page.html.j2")
        .render(
            objective=report.objective,
            metadata=report.metadata,
            encoded_metadata=encode(report.metadata),
            spec=report.spec,
            state=view.state,
            rows=rows,
            colours={row.config: place for place, row in enumerate(rows[:COLOURED], start=1)},
            leaderboard_csv=leaderboard_text(rows, report.objective.metric),
            metrics_csv=curves_text(rows),
            groups=curves.groups(rows, report.objective.metric),
            trained=curves.trained(rows),
            curves=curves,
            coordinates=parallel.coordinates(rows, report.objective.metric, logarithmic(report.spec)),
            parallel=parallel,
            line=line,
            marks=line.marks[:_MOST_MARKS],
            chart=gantt.gantt(line),
            gantt=gantt,
            gap=gap(view.state),
            traffic=summarize_traffic(view, report.manifest),
            nodes=dict(sorted(view.nodes.items())),
            recipe=yaml.safe_dump(dict(report.spec.recipe), sort_keys=False, allow_unicode=True, width=100),
            outcome=_outcome(view.state),
        )
    )


def read_metadata(page: str) -> ReportMetadata | None:
    """The metadata that a page contains; ``None`` for the pages of early versions, which have none."""
    match = _METADATA.search(page)
    try:
        return decode(html.unescape(match[1]), ReportMetadata) if match is not None else None
    except UnreadableValue:
        return None


def logarithmic(spec: Spec) -> dict[str, bool]:
    """The hyper-parameters that are drawn from a range, and whether it is by their logarithm."""
    space = spec.recipe.get("search", {}).get("space", {})
    return {n: "loguniform" in domain for n, domain in space.items() if {"uniform", "loguniform"} & {*domain}}


def _outcome(state: State) -> str:
    """How the run stood when the report was written."""
    return "has ended" if state.outcome is not None else "had not ended when this was written"


@cache
def _environment() -> Environment:
    return page_environment(
        {
            "number": number,
            "brief": brief,
            "bytes": bytes_text,
            "clock": clock_text,
            "hparams": hparams_text,
            "percent": _percent,
            "cut": _cut,
            "csv_url": _csv_url,
        }
    )


def _percent(part: Any, whole: float) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "-"


def _cut(text: str, most: int) -> str:
    """A text of at most ``most`` letters."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _csv_url(text: str) -> str:
    """A table within the page: it may be sent without the run's folder."""
    return f"data:text/csv;charset=utf-8,{quote(text, errors='replace')}"
