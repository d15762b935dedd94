"""``cerebro report``: writes a run's report."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from typing import Any

from cerebro_elastic.core.model.events import Event
from cerebro_elastic.core.model.run import Spec
from cerebro_elastic.data.manifest import Manifest, read_manifest
from cerebro_elastic.errors import DataError, RunError, StorageError
from cerebro_elastic.reporting.page.report import ReportMetadata, render
from cerebro_elastic.reporting.results import write_curves
from cerebro_elastic.reporting.tables import day_text
from cerebro_elastic.runs.exactness.outcome import CheckOutcome
from cerebro_elastic.runs.folder import RunFolder
from cerebro_elastic.runs.results.result import RunResult
from cerebro_elastic.runs.terminal_view import Watcher
from cerebro_elastic.runs.versions import training
from cerebro_elastic.system.files import in_a_hurry, locate, translated, write
from cerebro_elastic.system.version import __version__

_REPORT_SECONDS = 60.0
"""Seconds for which a run's end waits for its report."""


def write_results(folder: RunFolder, watcher: Watcher | None = None) -> RunResult:
    """The result of the run in this folder, where its curves and its report are written. The ``watcher`` gets
    the result first, even if the report then fails."""
    watcher = watcher or Watcher()
    result = RunResult(folder)
    write_curves(result.leaderboard, folder.curves)
    watcher.conclude(result)
    problem = _in_time(partial(write_report, result), _REPORT_SECONDS)
    if problem is not None:
        watcher.say(f"note: {problem}; `cerebro report {folder.argument}` writes it")
    return result


def _in_time(write: Callable[[], object], seconds: float) -> str | None:
    """Call ``write``. Returns why there is no report, if it fails or takes longer."""
    problems: Queue[str | None] = Queue()

    def work() -> None:
        try:
            write()
            problems.put(None)
        except Exception as error:
            problems.put(f"no report was written: {error}")

    Thread(target=work, name="report", daemon=True).start()
    try:
        return problems.get(timeout=seconds)
    except Empty:
        return f"the report was not written within {seconds:g} s, and is left out"


def write_report(result: RunResult, output: str | Path | None = None) -> str:
    """``Run.report``, of a ``result``."""
    folder = result.folder
    where = output or (folder.report if folder.path.is_dir() else f"{result.run}.html")
    noted = [c for c in result.exactness.checked if c.exactness.outcome is not CheckOutcome.EQUAL]
    known: dict[str, Any] = {
        "record": result.head,
        "notes": tuple(f"check of {config.text}" for config in noted),
        "exactness": result.exactness.text,
    }
    return write_page(result.spec, result.events, where, **known)


def write_page(spec: Spec, events: Sequence[Event], output: str | Path, **known: Any) -> str:
    """Write the report of the run with these events to a file or URL, which is returned; ``known`` are fields
    of ``ReportMetadata`` that do not follow from the events."""
    where = str(output)
    manifest = manifest_of(spec)
    metadata = ReportMetadata(
        written=day_text(time.time()),
        version=__version__,
        versions={
            "Python": platform.python_version(),
            **training(),
            platform.system(): platform.release(),
        },
        dataset=manifest is not None,
        **known,
    )
    page = render(spec, events, manifest, metadata)
    with translated(RunError, f"cannot write the report {where}"):
        write(locate(where), [page.encode()])
    return where


def manifest_of(spec: Spec) -> Manifest | None:
    """The manifest of the run's dataset; ``None`` if it is gone or out of reach."""
    try:
        with in_a_hurry():
            return read_manifest(spec.data)
    except (DataError, StorageError):
        return None
