"""``cerebro prepare``: a dataset of partitions from raw data, with progress."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import create_model

from cerebro_elastic.cli.commands import Command
from cerebro_elastic.cli.options import SubmittedBy, argument, echo, option, overrides, watch
from cerebro_elastic.data.manifest import NAME, SPLITS, Manifest
from cerebro_elastic.data.preparing.defects import REPORT
from cerebro_elastic.data.preparing.from_rows import RowProgress
from cerebro_elastic.data.preparing.settings import PrepareSettings, prepare_settings
from cerebro_elastic.errors import DataError
from cerebro_elastic.registry import is_reference
from cerebro_elastic.reporting.tables import clock_text
from cerebro_elastic.reporting.terminal import terminal
from cerebro_elastic.system.files import exists, locate, translated
from cerebro_elastic.system.process import Scratch, begin_as_training
from cerebro_elastic.system.words import counted

_SECONDS, _SECONDS_MOVING = 10.0, 0.2


class _Prepare(Command):
    """Shuffle a dataset once and write it as partitions.

    A run prepares the `source` of its recipe itself. A dataset that is prepared here serves several runs:
    give it as the recipe's `url`. With --rows a function makes the columns of each row; after a kill the
    same command continues.

    With --describe the dataset is shown as well. DESTINATION may then be left out: nothing is kept. SOURCE
    may be a prepared dataset, too.

    Example: cerebro prepare data.npz s3://bucket/data --partitions 8
    """

    source: str = argument(..., "The data: arrays, tables, pictures, tar archives, or module:function.")
    destination: str | None = argument(None, "Where the dataset goes: a folder or any fsspec URL.")
    describe: bool = option(False, "Show rows, columns, classes, sizes and samples, too.")
    submitted_by: SubmittedBy

    def __call__(self) -> None:
        begin_as_training()
        from cerebro_elastic.data.preparing.defects import rows_left_out
        from cerebro_elastic.runs.start.prepare_data import prepare_dataset

        watch(self.submitted_by)
        destination, given = self.destination, {key: getattr(self, key) for key in _OPTIONS}
        settings = _settings(given)
        if self.describe and destination is None and _is_dataset(self.source):
            _show_dataset(self.source)
            return
        if destination is None and not self.describe:
            raise DataError(
                "there is no DESTINATION: say where the dataset goes, or only look at it: --describe"
            )
        if given["partitions"] is None and destination is not None:
            raise DataError("there is no --partitions: say into how many the training rows are split")
        with _place(destination) as place:
            manifest = prepare_dataset(self.source, place, settings, Path.cwd(), _Shown())
            if self.describe:
                _show_dataset(place)
        if destination is not None:
            echo(f"{_summary(manifest)} at {destination} (digest {manifest.digest[:12]})")
            if settings.max_bad_rows and (left_out := rows_left_out(destination)):
                echo(f"{counted(left_out, 'bad row')} left out; {REPORT} there shows some of them")


_KINDS: Mapping[str, Any] = {"integer": int, "array": list[str], "object": list[str]}


def _fields() -> Iterator[tuple[str, tuple[Any, Any]]]:
    """The keys of the settings as fields of the command."""
    for key, schema in PrepareSettings.model_json_schema()["properties"].items():
        first, *others = [part for part in schema.get("anyOf", [schema]) if part["type"] != "null"]
        kind = str if others else _KINDS.get(first["type"], str)
        default, shown, text = schema.get("default"), schema.get("shown", True), schema["description"]
        if key == "partitions":  # the command has its own option for the number of partitions
            default, shown = None, False
        elif kind is not int:
            default = f"{default:g}" if isinstance(default, int | float) else None
        if first["type"] == "object":
            text = f"COLUMN=VALUE: {text[0].lower()}{text[1:]}"
        name = schema.get("option", key.replace("_", "-"))
        yield (
            key,
            (kind | None, option(default, text, f"--{name}", min=first.get("minimum"), show_default=shown)),
        )


_OPTIONS = dict(_fields())
Prepare: type[Command] = create_model("Prepare", __base__=_Prepare, **_OPTIONS)  # type: ignore[call-overload]


def _settings(given: Mapping[str, Any]) -> PrepareSettings:
    """The settings from the given options."""
    values = overrides(**given)
    if "fill" in values:
        values["fill"] = dict(map(_filling, values["fill"]))
    return prepare_settings(values, lambda key: _OPTIONS[key][1].json_schema_extra["names"][0])


@contextmanager
def _place(destination: str | None) -> Iterator[str]:
    """The dataset's folder: without a destination one that is removed after the block."""
    if destination is not None:
        yield destination
        return
    with Scratch("describe") as scratch:
        yield str(scratch.path / "dataset")


def _is_dataset(source: str) -> bool:
    with translated(DataError, f"cannot read {source}"):
        return not is_reference(source) and exists(locate(source) / NAME)


def _show_dataset(url: str) -> None:
    """Print the content of the dataset at ``url``."""
    from cerebro_elastic.data.reading.description import describe
    from cerebro_elastic.reporting.dataset import description_tables

    terminal().print(description_tables(describe(url)))


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
        if left := progress.total - progress.done:
            parts.append(f"about {clock_text(round(left / rate))} to go")
    return ", ".join(parts)


def _filling(text: str) -> tuple[str, str | int | float | bool]:
    name, sign, value = text.partition("=")
    if not sign:
        raise DataError(f"--fill is {text!r}: give COLUMN=VALUE, such as age=0")
    try:
        number = json.loads(value)
    except ValueError:
        return name, value
    return name, number if isinstance(number, int | float) else value
