"""A dataset's manifest: ``manifest.json`` at the dataset's URL, written last. Its rows lie beside it, or in
shards elsewhere."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import chain, islice
from typing import Any, Literal, TypeAlias

import numpy as np
from pydantic import TypeAdapter, ValidationError

from cerebro_elastic.data.shard import Shard, check_shards
from cerebro_elastic.errors import DataError
from cerebro_elastic.system.files import (
    Content,
    Place,
    exists,
    in_a_hurry,
    locate,
    read,
    sizes,
    translated,
)

VERSION = 1
NAME = "manifest.json"
COUNTS = "rows.json"
"""Beside the manifest of shards that had to be read to count their rows: those of each partition."""

Split: TypeAlias = Literal["train", "valid", "test"]
Kind: TypeAlias = Literal["rows", "ragged", "bytes"]
Category: TypeAlias = str | int | bool
Vocabulary: TypeAlias = Mapping[str, Sequence[Category]]
"""By column the categories in the order of their codes."""

SPLITS: tuple[Split, ...] = ("train", "valid", "test")

ROW = "row"
"""The column of a user's dataset: the numbers of its rows."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a dataset."""

    name: str
    dtype: str
    """Its numpy dtype, such as ``<f4``."""
    shape: tuple[int, ...]
    """The shape of one row: without the axis of rows. Of ``ragged``, the shape of one value of a row."""
    kind: Kind = "rows"
    """``rows`` of one shape, ``ragged`` sequences of varying length, or encoded values: ``bytes``."""

    @property
    def row_bytes(self) -> int:
        """The bytes of one row, or of one value of a row if these vary in number."""
        return np.dtype(self.dtype).itemsize * math.prod(self.shape)


@dataclass(frozen=True, slots=True)
class ColumnFile:
    """A ``.npy`` file of a column of a partition. A column of varying lengths has two: its offsets, and its
    values (see ``ragged.py``)."""

    path: str
    """The file's path under the dataset's URL."""
    bytes: int
    sha256: str
    length: int | None = None
    """The number of values in all rows of a column of varying lengths."""

    @property
    def content(self) -> Content:
        """The file's required content."""
        return Content(self.bytes, self.sha256)


@dataclass(frozen=True, slots=True)
class PartitionFiles:
    """A partition of a dataset: files of its columns, or shards of which each host makes such files."""

    rows: int
    files: tuple[ColumnFile, ...]
    """Its files, in the order of the manifest's columns; offsets precede their values. Files of shards are
    known once a host has made them."""
    shards: tuple[Shard, ...] = ()
    """The shards that have its rows, in their order; empty if the dataset was prepared."""

    @property
    def bytes(self) -> int:
        """The bytes that a host fetches: the size of its files, or of its shards."""
        of_shards = sum(shard.bytes + shard.elsewhere for shard in self.shards)
        return of_shards or sum(file.bytes for file in self.files)

    def by_column(self, columns: Iterable[Column]) -> Iterator[tuple[Column, list[ColumnFile]]]:
        """Each of the manifest's ``columns`` with its files: one, or of varying lengths two."""
        files = iter(self.files)
        return ((column, list(islice(files, 1 if column.kind == "rows" else 2))) for column in columns)


@dataclass(frozen=True)
class Manifest:
    """The content of a dataset."""

    columns: tuple[Column, ...]
    train: tuple[PartitionFiles, ...]
    valid: tuple[PartitionFiles, ...]
    seed: int
    """The seed of the one shuffle before the rows are split into partitions."""
    test: tuple[PartitionFiles, ...] = ()
    """The test partition, if the dataset has a test set. No unit reads it (``runs/results/test_set.py``)."""
    vocabulary: Vocabulary = field(default_factory=dict)
    """The categories of each encoded column: code 0 is the first."""
    features: tuple[str, ...] = ()
    """The source's columns that the column ``features`` is made of, in its order."""
    datasets: Mapping[str, int] = field(default_factory=dict)
    """Of a user's datasets, by split, how many rows they have, if the only column is that of their numbers
    (``reading/datasets.py``)."""
    loader: Mapping[str, int | bool] = field(default_factory=dict)
    """``batch_size`` and ``drop_last`` of these datasets' loader, if they came with one."""
    class_counts: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """In the column of classes, the number of training rows of class 0, 1, and so on; empty unless
    counted."""
    sample_weight: str = ""
    """The column, the last one, whose values weigh the loss of each row; empty if there is none."""

    folds: int = 0
    """Into how many folds the training rows were dealt, so that each has of each class its share, or whole
    groups; 0: without regard to folds."""
    reading: Mapping[str, Any] = field(default_factory=dict)
    """Of shards: the keys of a recipe's ``data`` that say how their columns become those above."""
    types: str = ""
    """Of shards of text: the columns of the first one, as pyarrow writes a schema, in base64."""
    estimated: bool = False
    """Whether rows of shards are still to be counted: a partition's number is an estimate."""

    @property
    def rows(self) -> tuple[int, ...]:
        """Rows per training partition."""
        return tuple(partition.rows for partition in self.train)

    @cached_property  # each look into the cache calls it
    def digest(self) -> str:
        """sha256 of all the above: two datasets with one digest are the same, byte for byte. Rows of shards
        that were counted later are no part of it."""
        values = asdict(self, dict_factory=_without_later)
        values.pop("estimated", None)
        for files in chain.from_iterable(values[split] for split in SPLITS):
            if shards := files.get("shards"):
                known = [shard["rows"] for shard in shards]
                files["rows"] = sum(known) if all(known) else 0
        return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()

    def cached_bytes(self, files: PartitionFiles) -> int:
        """About the bytes that a partition takes in a cache: shards may be compressed."""
        return max(files.bytes, files.rows * sum(column.row_bytes for column in self.columns))

    def split(self, split: Split) -> tuple[PartitionFiles, ...]:
        return {"train": self.train, "valid": self.valid, "test": self.test}[split]

    @property
    def shards(self) -> list[Shard]:
        """All shards; none if the dataset was prepared."""
        return [shard for split in SPLITS for files in self.split(split) for shard in files.shards]

    @property
    def training_bytes(self) -> int | None:
        """Bytes of the training rows; ``None`` if they stay in a user's dataset."""
        if self.datasets:
            return None
        return sum(partition.bytes for partition in self.train)

    def to_json(self) -> bytes:
        """The content of ``manifest.json``."""
        document = {"version": VERSION, "digest": self.digest, **asdict(self)}
        return (json.dumps(document, indent=1) + "\n").encode()


def _without_later(items: list[tuple[str, Any]]) -> dict[str, Any]:
    """The fields and their values. Fields of later releases are left out where they are empty, so that a
    dataset keeps its digest."""
    return {key: value for key, value in items if value or key not in _LATER}


_LATER = frozenset({"folds", "reading", "shards", "elsewhere", "types", "estimated"})


def with_rows(manifest: Manifest, rows: Mapping[Split, Sequence[int]]) -> Manifest:
    """The dataset of shards, whose partitions have these ``rows``."""
    counted: dict[str, Any] = {
        split: tuple(map(_replaced_rows, manifest.split(split), numbers)) for split, numbers in rows.items()
    }
    return replace(manifest, **counted, estimated=False)


def _replaced_rows(files: PartitionFiles, rows: int) -> PartitionFiles:
    return replace(files, rows=rows)


def read_manifest(url: str) -> Manifest:
    """The manifest of the dataset at ``url``; ``DataError`` if it is missing, damaged or unknown."""
    with translated(DataError, f"cannot read the dataset {url}"):
        place = locate(url) / NAME
        try:
            text = read(place)
        except FileNotFoundError as exc:
            raise DataError(
                f"there is no dataset at {url}: {place} is missing; correct the URL, or prepare it "
                "with `cerebro prepare`"
            ) from exc
        manifest = _parse(text, str(place))
        if manifest.estimated and exists(counts := locate(url) / COUNTS):
            return with_rows(manifest, json.loads(read(counts)))
        return manifest


def check_unchanged(url: str, digest: str) -> Manifest:
    """The manifest of the dataset at ``url``; ``DataError`` unless it has the digest that it had before."""
    manifest = read_manifest(url)
    if manifest.digest != digest:
        raise DataError(
            f"the data at {url} have digest {manifest.digest}, the run began with {digest}: somebody has "
            "prepared another dataset there; restore the old one, or start a new run"
        )
    return manifest


def is_prepared(place: Place) -> bool:
    """Whether a whole dataset is at ``place``. Raises ``DataError`` if none could be written there either.

    A person waits for the answer: a storage that is away is waited for only briefly.
    """
    with in_a_hurry():
        if exists(place / NAME):
            return True
        try:
            sizes(place)
        except FileNotFoundError as exc:
            raise DataError(
                f"cannot write the dataset {place}: there is no such bucket; create it, or correct the URL"
            ) from exc
    return False


def verify_sizes(url: str, manifest: Manifest) -> None:
    """Raise ``DataError`` unless every file of the dataset exists in its size, and every shard as it was.

    A few listings, nothing is read. Other damage is found by the node that fetches the file.
    """
    if shards := manifest.shards:
        check_shards(shards)
        return
    with translated(DataError, f"cannot list the dataset {url}"):
        root = locate(url)
        size_of = sizes(root)
    for partition in (*manifest.train, *manifest.valid, *manifest.test):
        for file in partition.files:
            size = size_of.get((root / file.path).path)
            if size != file.bytes:
                what = "is missing" if size is None else f"has {size} bytes instead of {file.bytes}"
                raise DataError(
                    f"{root / file.path} {what}: restore it, or prepare the dataset again at another place"
                )


def _parse(text: bytes, name: str) -> Manifest:
    try:
        document: dict[str, Any] = dict(json.loads(text))
        version, digest = document.pop("version"), document.pop("digest")
    except (ValueError, TypeError, KeyError) as exc:
        raise DataError(f"{name} is not a manifest ({exc!r}); prepare the dataset again") from exc
    if version != VERSION:
        raise DataError(
            f"{name} has version {version}, this program reads version {VERSION}: prepare the dataset "
            "again, or use the cerebro-elastic that wrote it"
        )
    try:
        manifest = TypeAdapter(Manifest).validate_python(document)
    except ValidationError as exc:
        raise DataError(f"{name} is damaged: {exc}; prepare the dataset again") from exc
    if manifest.digest != digest:
        raise DataError(
            f"{name} was changed after it was written: expected digest {digest}, found {manifest.digest}; "
            "prepare the dataset again"
        )
    return manifest
