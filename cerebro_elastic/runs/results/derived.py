"""What was made of a record, made again and compared: the curves, the report, an exported model."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

from cerebro_elastic.core.invariants import Violation
from cerebro_elastic.core.model.events import RunEnded
from cerebro_elastic.core.model.units import RecordHead
from cerebro_elastic.errors import CerebroError
from cerebro_elastic.reporting.curves import curves_text
from cerebro_elastic.reporting.page.page import Subject, colophon_of, render
from cerebro_elastic.runs.results.agreement import Note
from cerebro_elastic.runs.results.heads import bears_heads
from cerebro_elastic.runs.results.report import manifest_of
from cerebro_elastic.runs.results.result import RunResult
from cerebro_elastic.version import __version__


def curves_agree(result: RunResult) -> Iterator[Violation | Note]:
    """``metrics.csv`` with the curves of the history. If the run had not ended, it may be of an earlier
    state: its lines are among those of now."""
    file = result.folder.curves
    if not file.is_file():
        return
    written, again = _lines(file.read_bytes()), _lines(curves_text(result.leaderboard).encode())
    ended = any(isinstance(event, RunEnded) for event in result.events)
    pairs = zip_longest(written, again) if ended else ((w, w if w in again else None) for w in written)
    for number, (ours, theirs) in enumerate(pairs, start=1):
        if ours != theirs:
            yield Violation(
                "curves", f"{file}:{number}: {_shown(ours)}; by the history it is {_shown(theirs)}"
            )


def report_agrees(result: RunResult) -> Iterator[Violation | Note]:
    """``report.html`` with the one that the history makes, up to the line where the record ended then."""
    file = result.folder.report
    if not file.is_file():
        return
    page = file.read_text(encoding="utf-8", errors="replace")
    colophon = colophon_of(page)
    if colophon is None:
        story = f"{file} does not say of which record it is"
        chained = result.lines[0].digest is not None or bears_heads(result.events)
        yield Violation("report", story) if chained else Note(f"{story}: not compared")
        return
    if colophon.record is None:
        yield Note(f"{file} was made from a store's record: not compared")
        return
    place = result.line_of(colophon.record.digest)
    if place is None:
        yield _of_another("report", file, colophon.record)
        return
    if colophon.version != __version__:
        yield Note(f"{file} is by cerebro-elastic {colophon.version}, this is {__version__}: not compared")
        return
    manifest = manifest_of(result.spec) if colophon.dataset else None
    if colophon.dataset and (manifest is None or manifest.digest != result.spec.data_digest):
        yield Note(f"{file} tells of data that are not as they were: not compared")
        return
    objective, events = result.recipe.objective, result.upto(place).events
    again = render(Subject(result.spec, events, objective.metric, objective.mode, manifest, colophon))
    pairs = zip_longest(_lines(page.encode()), _lines(again.encode()))
    for number, (ours, theirs) in enumerate(pairs, start=1):
        if ours != theirs:
            yield Violation(
                "report", f"{file}:{number}: {_shown(ours)}; by the history it is {_shown(theirs)}"
            )
            return


def export_agrees(result: RunResult, folder: Path) -> Iterator[Violation | Note]:
    """An exported model in ``folder`` with the one that record and checkpoint make (imports torch)."""
    from cerebro_elastic.runs.results.export import export, origin_of_export

    try:
        config, record = origin_of_export(folder)
        place = result.line_of(record.digest) if record is not None else len(result.lines)
        if place is None:
            yield _of_another("export", folder, record)
            return
        with tempfile.TemporaryDirectory(prefix="cerebro-verify-") as scratch:
            again = Path(scratch, "again")
            export(result.upto(place), again, config)
            names = {path.name for where in (folder, again) for path in where.iterdir()}
            for name in sorted(names):
                if _content(folder / name) != _content(again / name):
                    yield Violation("export", f"{folder / name} is not what the record makes of it")
    except CerebroError as error:
        yield Violation("export", str(error))


def _of_another(what: str, path: Path, record: RecordHead | None) -> Violation:
    assert record is not None
    return Violation(
        what,
        f"{path} is of a record with the head {record.digest[:16]} at revision {record.revision}, which this "
        "one does not have",
    )


def curve_lines(text: str, config: str) -> list[str]:
    """The lines of a ``metrics.csv`` that are the config's."""
    return [line for line in text.splitlines() if line.startswith(f"{config},")]


def _lines(content: bytes) -> list[str]:
    return content.decode(errors="replace").splitlines()


def _content(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None


def _shown(line: str | None) -> str:
    return "nothing" if line is None else repr(line if len(line) <= 160 else f"{line[:157]}...")
