"""Writing a run's report."""

from __future__ import annotations

import platform
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from cerebro_elastic.data.manifest import Manifest, read_manifest
from cerebro_elastic.errors import DataError, RunError, StorageError
from cerebro_elastic.files import locate, translated, write
from cerebro_elastic.report.page.page import Subject, render
from cerebro_elastic.runs.result import RunResult

_PACKAGES = ("cerebro-elastic", "torch", "lightning", "deepspeed", "numpy")


def write_report(result: RunResult, output: str | Path | None = None) -> str:
    """Write the report of a run, as far as it has come: one HTML page that needs no network. ``output`` is a
    file or URL, by default in the run's folder; where it is then."""
    where = str(output or result.folder.report)
    objective = result.recipe.objective
    page = render(
        Subject(
            spec=result.spec,
            events=result.events,
            metric=objective.metric,
            mode=objective.mode,
            manifest=_manifest(result.spec.data),
            versions=_versions(),
            written=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        )
    )
    with translated(RunError, f"cannot write the report {where}"):
        write(locate(where), [page.encode()])
    return where


def _manifest(url: str) -> Manifest | None:
    """The dataset may be gone, or not be in reach from here."""
    try:
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
