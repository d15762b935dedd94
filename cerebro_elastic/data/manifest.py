"""A prepared dataset's manifest: ``manifest.json`` at the dataset's URL, written last."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeAlias

from pydantic import TypeAdapter, ValidationError

from cerebro_elastic.errors import DataError
from cerebro_elastic.files import Content, Place, exists, in_a_hurry, locate, read, sizes, translated

VERSION = 1
NAME = "manifest.json"

Split: TypeAlias = Literal["train", "valid", "test"]
Category: TypeAlias = str | int | bool
Vocabulary: TypeAlias = Mapping[str, Sequence[Category]]
"""By column the categories in the order of their codes."""

SPLITS: tuple[Split, ...] = ("train", "valid", "test")


@dataclass(frozen=True, slots=True)
class Column:
    """A column's name, numpy dtype (``<f4``) and shape without the axis of rows."""

    name: str
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ColumnFile:
    """One column of one partition: a ``.npy`` file by its path under the dataset's URL."""

    path: str
    bytes: int
    sha256: str

    @property
    def content(self) -> Content:
        return Content(self.bytes, self.sha256)


@dataclass(frozen=True, slots=True)
class PartitionFiles:
    """A partition's number of rows, and its files in the order of the manifest's columns."""

    rows: int
    files: tuple[ColumnFile, ...]


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a dataset holds. ``seed`` is that of the one shuffle before the split into partitions. ``test`` is
    for whoever judges the result of a run, which itself does not read it. ``vocabulary`` has the categories
    of each column that was encoded: code 0 stands for the first. ``features`` are the source's columns that
    the column of that name is made of."""

    columns: tuple[Column, ...]
    train: tuple[PartitionFiles, ...]
    valid: tuple[PartitionFiles, ...]
    seed: int
    test: tuple[PartitionFiles, ...] = ()
    vocabulary: Vocabulary = field(default_factory=dict)
    features: tuple[str, ...] = ()

    @property
    def rows(self) -> tuple[int, ...]:
        """Rows per training partition."""
        return tuple(partition.rows for partition in self.train)

    @property
    def digest(self) -> str:
        """sha256 of all the above: two datasets with one digest are the same, byte for byte."""
        return hashlib.sha256(json.dumps(self._document(), sort_keys=True).encode()).hexdigest()

    def split(self, split: Split) -> tuple[PartitionFiles, ...]:
        """The partitions of a split."""
        return {"train": self.train, "valid": self.valid, "test": self.test}[split]

    def _document(self) -> dict[str, Any]:
        absent = {key for key in ("test", "vocabulary", "features") if not getattr(self, key)}
        return {key: value for key, value in asdict(self).items() if key not in absent}

    def to_json(self) -> bytes:
        document = {"version": VERSION, "digest": self.digest, **self._document()}
        return (json.dumps(document, indent=1) + "\n").encode()


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
    return _parse(text, str(place))


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
    """Whether a whole dataset is at ``place``, which somebody wants to know at once. Raises ``DataError`` if
    none could be written there either."""
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
    """Raise ``DataError`` unless every file of the dataset is there in its size: one listing, nothing is
    read. What else may be damaged, a node finds when it fetches the file."""
    with translated(DataError, f"cannot list the dataset {url}"):
        root = locate(url)
        found = sizes(root)
    for partition in (*manifest.train, *manifest.valid, *manifest.test):
        for file in partition.files:
            size = found.get((root / file.path).path)
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
            f"{name} has version {version}, this program reads version {VERSION}: prepare the dataset again, "
            "or use the cerebro-elastic that wrote it"
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
