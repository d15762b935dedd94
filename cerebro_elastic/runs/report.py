"""Writing a run's report."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from cerebro_elastic.core.events import Event
from cerebro_elastic.core.values import Spec
from cerebro_elastic.data.manifest import Manifest, read_manifest
from cerebro_elastic.errors import DataError, RunError, StorageError
from cerebro_elastic.files import in_a_hurry, locate, translated, write
from cerebro_elastic.report.page.page import Subject, render
from cerebro_elastic.report.picture import picture
from cerebro_elastic.report.results import Objective
from cerebro_elastic.report.timeline import timeline
from cerebro_elastic.runs.beside import known
from cerebro_elastic.runs.result import RunResult

_PACKAGES = ("cerebro-elastic", "torch", "lightning", "deepspeed", "numpy")


def write_report(result: RunResult, output: str | Path | None = None) -> str:
    """Write the report of a run, as far as it has come: one HTML page that needs no network. ``output`` is a
    file or URL, by default ``report.html`` in the run's folder, or ``RUN.html`` here where there is none;
    where it is then."""
    folder = result.folder
    where = output or (folder.report if folder.path.is_dir() else f"{result.run}.html")
    notes = [f"check of {each.text}" for each in known(folder) if not each.exactness.outcome.good]
    return write_page(result.spec, result.events, result.recipe.objective, where, notes)


def write_page(
    spec: Spec, events: Sequence[Event], objective: Objective, output: str | Path, notes: Sequence[str] = ()
) -> str:
    """Write the report of the run with this history to a file or URL; where it is then."""
    where = str(output)
    page = render(
        Subject(
            spec=spec,
            events=events,
            metric=objective.metric,
            mode=objective.mode,
            manifest=_manifest(spec.data),
            versions=_versions(),
            written=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
            notes=notes,
        )
    )
    with translated(RunError, f"cannot write the report {where}"):
        write(locate(where), [page.encode()])
    return where


def write_gantt(events: Sequence[Event], output: str | Path) -> str:
    """Write the Gantt chart of the run with this history as a PNG (extra ``plots``) to a file or URL;
    where it is then."""
    where = str(output)
    image = picture(timeline(events))
    with translated(RunError, f"cannot write the Gantt chart {where}"):
        write(locate(where), [image])
    return where


def _manifest(url: str) -> Manifest | None:
    """The dataset may be gone, or not be in reach from here."""
    try:
        with in_a_hurry():
            return read_manifest(url)
    except (DataError, StorageError):
        return None


def _versions() -> dict[str, str]:
    found = {"Python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return {**found, platform.system(): platform.release()}
