"""Checks the files made from a record: makes curves, report and exported model again and compares."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from itertools import islice, zip_longest
from pathlib import Path

from cerebro_elastic.core.invariants import Violation
from cerebro_elastic.core.model.units import RecordHead
from cerebro_elastic.errors import CerebroError
from cerebro_elastic.reporting.page.report import read_metadata, render
from cerebro_elastic.reporting.results import curves_text
from cerebro_elastic.runs.results.record_checks import Note
from cerebro_elastic.runs.results.report import manifest_of
from cerebro_elastic.runs.results.result import RunResult
from cerebro_elastic.system.version import __version__


def check_curves(result: RunResult) -> Iterator[Violation | Note]:
    """Check ``metrics.csv`` against the curves of the history. If the run has not ended, the file may be of
    an earlier state: each of its lines must be one of the present curves."""
    file = result.folder.curves
    if not file.is_file():
        return
    written, expected = _lines(file.read_bytes()), _lines(curves_text(result.leaderboard).encode())
    ended = result.view.state.outcome is not None
    pairs = zip_longest(written, expected) if ended else ((w, w if w in expected else None) for w in written)
    yield from _differing("curves", file, pairs)


def check_report(result: RunResult) -> Iterator[Violation | Note]:
    """Check ``report.html`` against a report of the history, up to the end of the record at that time."""
    file = result.folder.report
    if not file.is_file():
        return
    page = file.read_text(encoding="utf-8", errors="replace")
    metadata = read_metadata(page)
    if metadata is None:
        yield Violation("report", f"{file} does not say of which record it is")
        return
    if metadata.record is None:
        yield Note(f"{file} was made from a store's record: not compared")
        return
    place = result.line_of(metadata.record.digest)
    if place is None:
        yield _of_another("report", file, metadata.record)
        return
    if metadata.version != __version__:
        yield Note(f"{file} is by cerebro-elastic {metadata.version}, this is {__version__}: not compared")
        return
    manifest = manifest_of(result.spec) if metadata.dataset else None
    if metadata.dataset and (manifest is None or manifest.digest != result.spec.data_digest):
        yield Note(f"{file} is about data that have changed since: not compared")
        return
    rendered = render(result.spec, result.upto(place).events, manifest, metadata)
    pairs = zip_longest(_lines(page.encode()), _lines(rendered.encode()))
    yield from islice(_differing("report", file, pairs), 1)


def check_export(result: RunResult, folder: Path) -> Iterator[Violation | Note]:
    """Check an exported model in ``folder`` against a new export (imports torch)."""
    from cerebro_elastic.runs.results.export import export, origin_of_export

    try:
        config, record, exactness = origin_of_export(folder)
        place = result.line_of(record.digest) if record is not None else len(result.lines)
        if place is None:
            yield _of_another("export", folder, record)
            return
        with tempfile.TemporaryDirectory(prefix="cerebro-verify-") as scratch:
            new = Path(scratch, "new")
            export(result.upto(place, exactness), new, config)
            names = {path.name for exported in (folder, new) for path in exported.iterdir()}
            for name in sorted(names):
                if _content(folder / name) != _content(new / name):
                    yield Violation("export", f"{folder / name} is not what the record makes of it")
    except CerebroError as error:
        yield Violation("export", str(error))


def _differing(what: str, file: Path, pairs: Iterable[tuple[str | None, str | None]]) -> Iterator[Violation]:
    """The lines of a file that differ from those made from the history."""
    for number, (ours, theirs) in enumerate(pairs, start=1):
        if ours != theirs:
            story = f"{file}:{number}: {_shown(ours)}; by the history it is {_shown(theirs)}"
            yield Violation(what, story)


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
