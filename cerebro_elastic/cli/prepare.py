"""``cerebro prepare``: a dataset from data as they are, and how far that is."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import Annotated

import typer

from cerebro_elastic.cli.options import SubmittedBy, echo, watch
from cerebro_elastic.data.manifest import SPLITS, Manifest
from cerebro_elastic.data.prepare_rows import RowProgress
from cerebro_elastic.data.selection import Selection
from cerebro_elastic.data.shared_jobs import MachineShare
from cerebro_elastic.errors import DataError
from cerebro_elastic.recipes.fields import percentage
from cerebro_elastic.reporting.terminal import terminal
from cerebro_elastic.words import counted

_SECONDS, _SECONDS_MOVING = 10.0, 0.2


def prepare(
    source: Annotated[str, typer.Argument(help=".npz, .npy folder, CSV, Parquet, or module:function.")],
    destination: Annotated[str, typer.Argument(help="Where the dataset goes: a folder or any fsspec URL.")],
    partitions: Annotated[int, typer.Option(min=1, help="Number of training partitions.")],
    seed: Annotated[int, typer.Option(help="Seed of the shuffle.")] = 0,
    valid: Annotated[str, typer.Option(help="Share of rows for validation, or a source of its own.")] = "0.2",
    test: Annotated[str, typer.Option(help="The same for a test after the run.")] = "0",
    labels: Annotated[
        list[str] | None, typer.Option(help="Columns that may hold no NaN.", show_default="all")
    ] = None,
    columns: Annotated[
        list[str] | None, typer.Option(help="Columns to use; the others are left out.", show_default="all")
    ] = None,
    features: Annotated[list[str] | None, typer.Option(help="Columns that become one matrix.")] = None,
    label: Annotated[
        str | None, typer.Option(help="The column to predict; the features are all others, or as named.")
    ] = None,
    encode: Annotated[list[str] | None, typer.Option(help="Columns of text that become numbers.")] = None,
    rows: Annotated[
        str | None,
        typer.Option(help="module:function, (row, split) -> columns, that makes each row."),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes that make rows.", show_default="one per core")
    ] = None,
    bad: Annotated[
        str | None,
        typer.Option(help="How many rows may fail: a number, or a share such as 1%.", show_default="0"),
    ] = None,
    share: Annotated[
        str | None,
        typer.Option(help="I/N: this machine's share of the rows, of N machines.", show_default="0/1"),
    ] = None,
    submitted_by: SubmittedBy = None,
) -> None:
    """Shuffle a dataset once and write it as partitions.

    A run does so itself with the `source` of its recipe; what is prepared here serves several runs, as `url`.
    With --rows a function makes the dataset of each row of the source; the same command goes on after a kill.
    """
    from cerebro_elastic.runs.start.datasets import prepare_dataset, prepare_dataset_rows

    watch(submitted_by)
    selection = Selection(columns, features, label, encode)
    if rows is not None and selection != Selection():
        raise DataError("--rows makes the columns: leave --columns, --features, --label and --encode out")
    if columns and features:
        raise DataError("--features names the columns to use: give it or --columns, not both")
    of_rows = {"--workers": workers, "--bad": bad, "--share": share}
    needless = [option for option, value in of_rows.items() if value is not None]
    if rows is None and needless:
        raise DataError(
            f"{', '.join(needless)} would do nothing without --rows: name the function that makes each row, "
            "or leave it out"
        )
    if rows is None:
        manifest = prepare_dataset(
            source,
            destination,
            partitions=partitions,
            seed=seed,
            valid=valid,
            test=test,
            labels=labels or (),
            root=Path.cwd(),
            selection=selection,
        )
    else:
        manifest = prepare_dataset_rows(
            source,
            rows,
            destination,
            partitions=partitions,
            seed=seed,
            valid=valid,
            test=test,
            labels=labels or (),
            root=Path.cwd(),
            workers=workers,
            bad=_limit(bad or "0"),
            share=_share(share or "0/1"),
            show=_Shown(),
        )
    echo(f"{_told(manifest)} at {destination} (digest {manifest.digest[:12]})")


def _told(manifest: Manifest) -> str:
    names = dict(zip(SPLITS, ("training", "validation", "test"), strict=True))
    counts = {split: sum(part.rows for part in manifest.split(split)) for split in SPLITS}
    told = [f"{counted(counts['train'], 'training row')} in {counted(len(manifest.train), 'partition')}"]
    held = [split for split in SPLITS[1:] if split == "valid" or counts[split]]
    told += [counted(counts[split], f"{names[split]} row") for split in held]
    return ", ".join(told)


class _Shown:
    """Progress for people: a line that moves in a terminal, else a line now and then."""

    def __init__(self) -> None:
        self._console = terminal(stderr=True)
        self._began = self._last = time.monotonic()

    def __call__(self, progress: RowProgress) -> None:
        now, over = time.monotonic(), progress.done >= progress.total
        moves = self._console.is_terminal
        if not over and now - self._last < (_SECONDS_MOVING if moves else _SECONDS):
            return
        self._last = now
        text = progress_text(progress, now - self._began)
        self._console.print(text, end="\r" if moves and not over else "\n", soft_wrap=True)


def progress_text(progress: RowProgress, seconds: float) -> str:
    """``1200 of 5000 rows, 3 bad, 240 rows/s, about 0:16 to go``; the rate is that of what is made now."""
    rate = (progress.done - progress.known) / seconds if seconds > 0 else 0.0
    told = [f"{progress.done} of {counted(progress.total, 'row')}"]
    if progress.bad:
        told.append(f"{progress.bad} bad")
    if rate > 0:
        told.append(f"{rate:.3g} rows/s")
        minutes, rest = divmod(round((progress.total - progress.done) / rate), 60)
        if progress.done < progress.total:
            told.append(f"about {minutes}:{rest:02d} to go")
    return ", ".join(told)


def _limit(text: str) -> float:
    share = percentage(text)
    if (share is None and not text.isdecimal()) or (share is not None and share >= 1):
        raise DataError(f"--bad is {text!r}: give a number of rows, or a share below 100% such as 1%")
    return float(text) if share is None else share


def _share(text: str) -> MachineShare:
    # Some schedulers give the number in a variable.
    found = re.fullmatch(r"(\d+)/(\d+)", os.path.expandvars(text))
    if found is None or int(found[1]) >= int(found[2]):
        raise DataError(f"--share is {text!r}: give I/N, such as 0/4 on the first of 4 machines")
    return MachineShare(int(found[1]), int(found[2]))
