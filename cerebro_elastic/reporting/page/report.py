"""The page of a run as HTML: the live page, and a report that needs neither network nor this package. A
report is the page with its style, its scripts and its board inside."""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from cerebro_elastic.core.model.codec import UnreadableValue, decode, encode
from cerebro_elastic.core.model.events import Event
from cerebro_elastic.core.model.run import Spec
from cerebro_elastic.core.model.units import RecordHead
from cerebro_elastic.data.manifest import Manifest
from cerebro_elastic.reporting.page.board import Board
from cerebro_elastic.reporting.page.run_page import RunPage, spans_together
from cerebro_elastic.reporting.results import curves_text, leaderboard, leaderboard_text
from cerebro_elastic.reporting.timeline import timeline

ASSETS = Path(__file__).parent / "assets"
_MOST_SPANS = 20_000
"""A report of more attempts merges those that are shorter than a pixel of a wide chart."""
_PIXELS = 2000
_METADATA = re.compile(r'<meta name="cerebro-colophon" content="([^"]*)">')


@dataclass(frozen=True, slots=True)
class ReportMetadata:
    """Facts about the writing of a report. The page contains them, so that ``verify`` can rewrite it."""

    written: str
    """The date and time, as shown on the page."""
    version: str
    versions: Mapping[str, str]
    """The versions of the packages that training depends on, by name."""
    dataset: bool = False
    """Whether the dataset's manifest could be read."""
    record: RecordHead | None = None
    """The end of the run's record at that time; ``None`` if the run was read from the store."""
    notes: tuple[str, ...] = ()
    """Sentences for the top of the page."""
    exactness: str = ""
    """The known facts about exactness, in a line; empty on the page of a simulation."""


def render(spec: Spec, events: Sequence[Event], manifest: Manifest | None, metadata: ReportMetadata) -> str:
    """Write the report of a run.

    Args:
        spec: The run's spec.
        events: Its history, up to the report's last event.
        manifest: The manifest of its dataset, if it can be read.
        metadata: The facts of its writing.
    """
    board = Board()
    page = RunPage(board, spec)
    for event in events:
        page.take(event)
    line = timeline(page)
    page.publish_recipe()
    page.publish(live=False)
    page.publish_details(line, manifest, logs=None)
    if len(line.spans) <= _MOST_SPANS:
        page.publish_spans()
    else:
        board.put("run", "lost", None)
        board.put("run", "together", spans_together(line, line.seconds / _PIXELS))
    for name, value in {**asdict(metadata), "versions": dict(sorted(metadata.versions.items()))}.items():
        board.put("report", name, value)
    shown = board.since(-1, between="\n")[1]
    inside = {
        "metadata": encode(metadata),
        "board": f'[{shown},\n{{"tables":{json.dumps(tables(page))}}}]'.replace("<", "\\u003c"),
        "modules": {"imports": _modules()},
    }
    return page_html(spec.plan.run, metadata.version, report=inside)


def tables(page: RunPage) -> dict[str, str]:
    """The leaderboard and the metrics of all epochs as CSV, by the names of their files."""
    metric = page.objective.metric
    rows = leaderboard(page, page.objective)
    return {"leaderboard": leaderboard_text(rows, metric), "metrics": curves_text(rows)}


def page_html(run: str, version: str, **values: Any) -> str:
    """The page of a run, of all runs if ``run`` is empty, or a report.

    Args:
        run: The run's id.
        version: The version of this package that writes the page.
        values: Further content of the page: ``report`` with the inside of a report; ``missing`` with the
            reason why no such run exists; the others are those of a server.
    """
    absent = dict.fromkeys(("report", "missing", "token", "read_only", "person", "known", "home", "etcd"), "")
    template = page_environment().get_template("page.html.j2")
    return template.render(**absent | values, run=run, version=version)


@cache
def page_environment() -> Environment:
    """The environment of the pages' templates: users' names are text, and an unknown name is an error."""
    return Environment(
        loader=FileSystemLoader(ASSETS),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def read_metadata(page: str) -> ReportMetadata | None:
    """The metadata that a page contains; ``None`` if it has no readable ones."""
    match = _METADATA.search(page)
    try:
        return decode(html.unescape(match[1]), ReportMetadata) if match is not None else None
    except UnreadableValue:
        return None


@cache
def _modules() -> dict[str, str]:
    """The scripts in the form of an import map. A script inside a page has no address by which another one
    could import it: each gets a name."""
    scripts = {file.name: file.read_text(encoding="utf-8") for file in sorted(ASSETS.glob("*.js"))}
    return {
        f"page/{name}": f"data:text/javascript;base64,{base64.b64encode(named.encode()).decode()}"
        for name, script in scripts.items()
        for named in [script.replace('from "./', 'from "page/')]
    }
