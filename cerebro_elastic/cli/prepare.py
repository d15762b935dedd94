"""``cerebro prepare``: a dataset of partitions from raw data, with progress."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Annotated

import typer

from cerebro_elastic.cli.options import SubmittedBy, echo, watch
from cerebro_elastic.data.manifest import NAME, SPLITS, Manifest
from cerebro_elastic.data.prepare_rows import RowProgress
from cerebro_elastic.data.row_function import REPORT
from cerebro_elastic.data.shared_jobs import MachineShare
from cerebro_elastic.errors import DataError
from cerebro_elastic.recipes.fields import percentage
from cerebro_elastic.registry import is_reference
from cerebro_elastic.reporting.terminal import terminal
from cerebro_elastic.system.files import exists, locate, redacted, translated, write
from cerebro_elastic.system.scratch import Scratch
from cerebro_elastic.system.words import counted

_SECONDS, _SECONDS_MOVING = 10.0, 0.2
_PARTITIONS = 4
"""The default number of training partitions to show, as a recipe has it."""


def prepare(
    source: Annotated[
        str, typer.Argument(help="The data: arrays, tables, pictures, tar archives, or module:function.")
    ],
    destination: Annotated[
        str | None, typer.Argument(help="Where the dataset goes: a folder or any fsspec URL.")
    ] = None,
    partitions: Annotated[
        int | None, typer.Option(min=1, help="Number of training partitions.", show_default=False)
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the shuffle.")] = 0,
    valid: Annotated[str, typer.Option(help="Share of rows for validation, or a source of its own.")] = "0.2",
    test: Annotated[
        str, typer.Option(help="Share of rows for a test after the run, or a source of its own.")
    ] = "0",
    labels: Annotated[
        list[str] | None, typer.Option(help="Columns that must not hold NaN.", show_default="all")
    ] = None,
    columns: Annotated[list[str] | None, typer.Option(help="Columns to keep.", show_default="all")] = None,
    features: Annotated[
        list[str] | None, typer.Option(help="Columns that are joined into one matrix, `features`.")
    ] = None,
    label: Annotated[
        str | None,
        typer.Option(
            help="The column to predict; the features are all other columns, or those of --features."
        ),
    ] = None,
    encode: Annotated[
        list[str] | None, typer.Option(help="Columns of text that are encoded as numbers.")
    ] = None,
    text: Annotated[
        list[str] | None, typer.Option(help="Columns of text that are kept, as bytes.", show_default="none")
    ] = None,
    stratify: Annotated[
        str | None, typer.Option(help="A column of classes; each split gets of each class its share.")
    ] = None,
    split_by: Annotated[
        str | None, typer.Option(help="A column of groups; all rows of a group go to one split.")
    ] = None,
    sample_weight: Annotated[
        str | None, typer.Option(help="A column that weighs the loss of each row.")
    ] = None,
    count_classes: Annotated[
        str | None,
        typer.Option(help="A column of class numbers to count, for `class_weights: balanced` in recipes."),
    ] = None,
    fill: Annotated[
        list[str] | None,
        typer.Option(help="COLUMN=VALUE, for rows that have none.", show_default="none"),
    ] = None,
    rows: Annotated[
        str | None,
        typer.Option(help="module:function, called with (row, split), that returns the columns of a row."),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes that make the rows.", show_default="one per core")
    ] = None,
    bad: Annotated[
        str | None,
        typer.Option(
            help="The most rows that may fail, or have a broken picture: a number, or a share such as 1%.",
            show_default="0",
        ),
    ] = None,
    share: Annotated[
        str | None,
        typer.Option(
            help="I/N: this is machine I, from 0, of N machines that share the rows.", show_default="0/1"
        ),
    ] = None,
    describe: Annotated[
        bool, typer.Option("--describe", help="Show rows, columns, classes, sizes and samples, too.")
    ] = False,
    page: Annotated[
        str | None,
        typer.Option(help="With --describe: the HTML page with pictures.", show_default="dataset.html"),
    ] = None,
    submitted_by: SubmittedBy = None,
) -> None:
    """Shuffle a dataset once and write it as partitions.

    A run prepares the `source` of its recipe itself. A dataset that is prepared here serves several runs:
    give it as the recipe's `url`. With --rows a function makes the columns of each row; after a kill the
    same command continues.

    With --describe the dataset is shown as well. DESTINATION may then be left out: nothing is kept. SOURCE
    may be a prepared dataset, too.

    Example: cerebro prepare data.npz s3://bucket/data --partitions 8
    """
    from cerebro_elastic.data.prepare import rows_left_out
    from cerebro_elastic.runs.start.datasets import prepare as prepare_data

    watch(submitted_by)
    of_columns = {
        "--columns": columns,
        "--features": features,
        "--label": label,
        "--encode": encode,
        "--text": text,
        "--fill": fill,
        "--sample-weight": sample_weight,
        "--count-classes": count_classes,
    }
    if rows is not None and (given := [option for option, value in of_columns.items() if value]):
        raise DataError(f"--rows makes the columns: leave {', '.join(given)} out")
    if columns and features:
        raise DataError("--features names the columns to use: give it or --columns, not both")
    of_rows = {"--workers": workers, "--share": share}
    needless = [option for option, value in of_rows.items() if value is not None]
    if rows is None and needless:
        raise DataError(
            f"{', '.join(needless)} would do nothing without --rows: name the function that makes each row, "
            "or leave it out"
        )
    if page is not None and not describe:
        raise DataError("--page would do nothing without --describe: add it, or leave --page out")
    if describe and destination is None and _is_dataset(source):
        _show_dataset(source, source, page)
        return
    if destination is None and not describe:
        raise DataError("there is no DESTINATION: say where the dataset goes, or only look at it: --describe")
    if partitions is None and destination is not None:
        raise DataError("there is no --partitions: say into how many the training rows are split")
    with _place(destination) as place:
        manifest = prepare_data(
            source,
            place,
            partitions=partitions or _PARTITIONS,
            seed=seed,
            valid=valid,
            test=test,
            labels=labels or (),
            columns=columns,
            features=features,
            label=label,
            encode=encode,
            stratify=stratify,
            split_by=split_by,
            sample_weight=sample_weight,
            count_classes=count_classes,
            text=text or (),
            fill=dict(map(_filling, fill or ())),
            rows=rows,
            workers=workers,
            bad=_limit(bad or "0"),
            share=_share(share or "0/1"),
            show=_Shown(),
        )
        if describe:
            _show_dataset(place, destination or source, page)
    if destination is not None:
        echo(f"{_summary(manifest)} at {destination} (digest {manifest.digest[:12]})")
        if bad is not None and (left_out := rows_left_out(destination)):
            echo(f"{counted(left_out, 'bad row')} left out; {REPORT} there shows some of them")


@contextmanager
def _place(destination: str | None) -> Iterator[str]:
    """Where the dataset goes: without a destination to a folder that is removed after the block."""
    if destination is not None:
        yield destination
        return
    with Scratch("describe") as scratch:
        yield str(scratch.path / "dataset")


def _is_dataset(source: str) -> bool:
    with translated(DataError, f"cannot read {source}"):
        return not is_reference(source) and exists(locate(source) / NAME)


def _show_dataset(url: str, name: str, page: str | None) -> None:
    """Print what the dataset at ``url`` holds, and write the page about it."""
    from cerebro_elastic.data.description import describe
    from cerebro_elastic.reporting.dataset_tables import description_tables
    from cerebro_elastic.reporting.page.dataset import render_dataset

    description = replace(describe(url), url=redacted(name))
    terminal().print(description_tables(description))
    where = page or "dataset.html"
    with translated(DataError, f"cannot write the page {where}"):
        write(locate(where), [render_dataset(description).encode()])
    echo(f"\nthe same, with pictures: {where}")


def _summary(manifest: Manifest) -> str:
    names = dict(zip(SPLITS, ("training", "validation", "test"), strict=True))
    counts = {split: sum(part.rows for part in manifest.split(split)) for split in SPLITS}
    parts = [f"{counted(counts['train'], 'training row')} in {counted(len(manifest.train), 'partition')}"]
    shown = [split for split in SPLITS[1:] if split == "valid" or counts[split]]
    parts += [counted(counts[split], f"{names[split]} row") for split in shown]
    return ", ".join(parts)


class _Shown:
    """Prints progress: one line that is updated in a terminal, else a line every ten seconds."""

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
    """``1200 of 5000 rows, 3 bad, 240 rows/s, about 0:16 to go``; the rate leaves out known rows."""
    rate = (progress.done - progress.known) / seconds if seconds > 0 else 0.0
    parts = [f"{progress.done} of {counted(progress.total, 'row')}"]
    if progress.bad:
        parts.append(f"{progress.bad} bad")
    if rate > 0:
        parts.append(f"{rate:.3g} rows/s")
        minutes, rest = divmod(round((progress.total - progress.done) / rate), 60)
        if progress.done < progress.total:
            parts.append(f"about {minutes}:{rest:02d} to go")
    return ", ".join(parts)


def _limit(text: str) -> float:
    share = percentage(text)
    if (share is None and not text.isdecimal()) or (share is not None and share >= 1):
        raise DataError(f"--bad is {text!r}: give a number of rows, or a share below 100% such as 1%")
    return float(text) if share is None else share


def _filling(text: str) -> tuple[str, str | int | float | bool]:
    name, sign, value = text.partition("=")
    if not sign:
        raise DataError(f"--fill is {text!r}: give COLUMN=VALUE, such as age=0")
    try:
        number = json.loads(value)
    except ValueError:
        return name, value
    return name, number if isinstance(number, int | float) else value


def _share(text: str) -> MachineShare:
    # Some schedulers give the number in a variable.
    match = re.fullmatch(r"(\d+)/(\d+)", os.path.expandvars(text))
    if match is None or int(match[1]) >= int(match[2]):
        raise DataError(f"--share is {text!r}: give I/N, such as 0/4 on the first of 4 machines")
    return MachineShare(int(match[1]), int(match[2]))
