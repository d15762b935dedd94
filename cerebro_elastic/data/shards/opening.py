"""Opening a dataset of shards: they are listed and dealt to partitions. No row is moved.

If the footers or indices of files have their numbers of rows, only these are read, and the first rows of one
file. Otherwise only the first file is read; the rows of all are counted when hosts fetch them
(``counting.py``).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from itertools import chain
from typing import Any, NamedTuple

from cerebro_elastic.data.column_checks import columns_of
from cerebro_elastic.data.kinds.arrow_columns import text_of
from cerebro_elastic.data.kinds.kind import Facts, Wanted, is_wanted, suffix_of
from cerebro_elastic.data.kinds.listing import files_of, folder_columns, is_pictures, split_folders
from cerebro_elastic.data.kinds.picture_index import write_indices
from cerebro_elastic.data.kinds.registry import kind_of, kind_of_file
from cerebro_elastic.data.kinds.tables import TEXT, schema_of
from cerebro_elastic.data.kinds.zarr_ranges import is_store, write_ranges
from cerebro_elastic.data.manifest import NAME, Manifest, PartitionFiles, Split, Vocabulary
from cerebro_elastic.data.preparing.column_files import by_split
from cerebro_elastic.data.preparing.defects import filled
from cerebro_elastic.data.preparing.selection import Selection
from cerebro_elastic.data.preparing.settings import PrepareSettings
from cerebro_elastic.data.ragged import Columns, Ragged, Varying
from cerebro_elastic.data.shard import Shard
from cerebro_elastic.data.shards.dealing import deal_shards
from cerebro_elastic.data.shards.shard_columns import selected
from cerebro_elastic.errors import DataError
from cerebro_elastic.recipes.data import named_columns
from cerebro_elastic.system.files import (
    Place,
    identities,
    in_a_hurry,
    locate,
    redacted,
    translated,
    write,
)
from cerebro_elastic.system.words import counted, some_of

_LOOKS = 16
"""Shards that are looked at at once: each waits for a few small requests."""
_INDICES = 8
"""Into how many shards per partition a folder of pictures is cut: a share is held out by whole ones."""
_SAMPLE = 256
"""Rows of the first shard from which the columns are known."""
_SHOWN = 3
"""The number of shards that a message names."""
_READING = ("columns", "features", "label", "text", "fill", "sample_weight", "labels")
"""The settings that say how a shard's columns become the dataset's."""


class ShardSources(NamedTuple):
    """Where the shards of the splits are: URLs of files, folders or globs, or shares of the training rows."""

    train: str
    valid: float | str = 0.0
    test: float | str = 0.0


class _Looked(NamedTuple):
    shard: Shard
    facts: Facts


def open_shards(sources: ShardSources, destination: str, settings: PrepareSettings) -> tuple[str, Manifest]:
    """Write the manifest of a dataset of shards.

    Args:
        sources: The places of the shards.
        destination: The folder or URL below which the manifest is written, in a folder of its digest.
        settings: The numbers of partitions, the columns, and the seed by which shards are dealt.

    Returns:
        The dataset's URL, and its manifest.

    Raises:
        DataError: The shards cannot be used; the message names one.
    """
    wanted = named_columns(dict(settings))
    sources = _with_own_splits(sources)

    def indexed(folder: Place) -> list[Place]:
        number = _INDICES * max(settings.partitions, settings.valid_partitions)
        if is_store(folder):
            return write_ranges(folder, locate(destination) / "zarr", number, wanted)
        return write_indices(folder, locate(destination) / "pictures", number, settings.seed)

    named: dict[Split, float | str] = {"train": sources.train, "valid": sources.valid, "test": sources.test}
    looked = {
        split: _looked_at(where, wanted, indexed) for split, where in named.items() if isinstance(where, str)
    }
    every = list(chain(*looked.values()))
    shard, facts = every[0]
    first, rows = redacted(shard.url), facts.rows or facts.rows_about
    schema = _schema(every, settings, wanted)
    sample = _sample(every, schema, wanted)
    vocabulary = _vocabulary(sample, settings, first)

    def rows_about(other: Shard) -> int:
        return other.rows or max(1, other.bytes * rows // max(1, shard.bytes))

    dealt = deal_shards(
        {
            split: [each.shard for each in looked[split]] if isinstance(where, str) else where
            for split, where in named.items()
        },
        {"train": settings.partitions, "valid": settings.valid_partitions},
        settings.seed,
        rows_about,
    )
    partitions = by_split(
        (split, PartitionFiles(sum(map(rows_about, part)), (), tuple(part)))
        for split, parts in dealt.items()
        for part in parts
    )
    manifest = Manifest(
        columns_of(selected(sample, settings, vocabulary, f"the shard {first}")),
        partitions["train"],
        partitions["valid"],
        settings.seed,
        test=partitions["test"],
        vocabulary=vocabulary,
        features=Selection(settings).feature_names(filled(sample, settings.fill)),
        sample_weight=settings.sample_weight or "",
        reading={key: value for key in _READING if (value := getattr(settings, key))},
        types=text_of(schema) if suffix_of(first) in TEXT else "",
        estimated=any(not each.shard.rows for each in every),
    )
    url = f"{destination.rstrip('/')}/{manifest.digest[:16]}"
    with translated(DataError, f"cannot write the dataset {redacted(url)}"):
        write(locate(url) / NAME, [manifest.to_json()])
    return url, manifest


def _with_own_splits(sources: ShardSources) -> ShardSources:
    """Of a folder with ``train`` and ``val`` (and ``test``) these folders, unless others are named."""
    with translated(DataError, f"cannot list the shards {redacted(sources.train)}"), in_a_hurry():
        found = split_folders(locate(sources.train))
    if found is None:
        return sources
    url = sources.train.rstrip("/")
    own: dict[Split, str] = {
        split: f"{url}/{folder.path.rpartition('/')[2]}" for split, folder in found.items()
    }
    return ShardSources(
        own["train"],
        sources.valid if isinstance(sources.valid, str) else own["valid"],
        sources.test or own.get("test", 0.0),
    )


def _looked_at(url: str, wanted: Wanted, indexed: Callable[[Place], list[Place]]) -> list[_Looked]:
    """The shards at ``url``, sorted by name; of a folder of pictures and a Zarr store the files that
    ``indexed`` writes. Raises ``DataError`` if one has no rows, or is none."""
    with translated(DataError, f"cannot list the shards {redacted(url)}"), in_a_hurry():
        place = locate(url)
        places = indexed(place) if is_store(place) or is_pictures(place) else files_of(url, place)
        if len(suffixes := {suffix_of(each.path) for each in places}) > 1:
            kind_of(redacted(url), suffixes)
        known = dict[str, Any]()
        for folder in dict.fromkeys(os.path.dirname(place.path) for place in places):
            known |= identities(Place(places[0].fs, folder))

    def looked_at(place: Place) -> _Looked:
        with translated(DataError, f"cannot read the shard {place}"):
            kind, found = kind_of_file(str(place)), known[place.path]
            rows = None if kind.rows_beside is None else kind.rows_beside(place)
            looks = kind.rows_beside is None or (rows is None and place == places[0])
            facts = kind.look(place, wanted) if looks else Facts(rows)
        url = str(place.fs.unstrip_protocol(place.path))
        return _Looked(Shard(url, found.bytes, found.tag, facts.rows or 0, facts.elsewhere), facts)

    with ThreadPoolExecutor(_LOOKS) as threads:
        looks = [threads.submit(copy_context().run, looked_at, place) for place in places]
        try:
            shards = [look.result() for look in looks]
        finally:
            for look in looks:
                look.cancel()
    ours = () if shards[0].facts.schema is None else shards[0].facts.schema.names
    for name in folder_columns(place, places)[0]:
        if is_wanted(name, wanted) and name not in ours:
            raise DataError(
                f"column {name!r} is in the names of folders of {redacted(url)}: leave it out by `columns`, "
                "or name the shards as `source`, which reads such columns"
            )
    if empty := [redacted(each.shard.url) for each in shards if each.facts.rows == 0]:
        raise DataError(
            f"{counted(len(empty), 'shard')} without rows: {some_of(empty, _SHOWN)}; remove it, or write it "
            "again"
        )
    return shards


def _schema(looked: Sequence[_Looked], settings: PrepareSettings, wanted: Wanted) -> Any:
    """Of tables, the types that hold the values of all that were looked at. Raises ``DataError`` for a column
    that one of them lacks, and for values that are missing."""
    _check_footers(looked, settings, wanted)
    tables = [(redacted(shard.url), facts) for shard, facts in looked if facts.schema is not None]
    return schema_of(tables, wanted) if tables else None


def _sample(looked: Sequence[_Looked], schema: Any, wanted: Wanted) -> Columns:
    """The first rows of the first shard, in the types of ``schema``. Raises ``DataError`` if it has none."""
    place = locate(looked[0].shard.url)
    with translated(DataError, f"cannot read the shard {place}"):
        piece = next(kind_of_file(str(place)).read(place, wanted, _SAMPLE, schema))

    def have_one_length(name: str) -> bool:
        lengths = {facts.lengths.get(name) for _, facts in looked if facts.schema is not None}
        return not lengths or (len(lengths) == 1 and None not in lengths)

    return {
        name: values.as_rows() if isinstance(values, Ragged) and have_one_length(name) else values
        for name, values in piece.items()
    }


def _check_footers(looked: Sequence[_Looked], settings: PrepareSettings, wanted: Wanted) -> None:
    """Raise ``DataError`` for columns of tables that a shard lacks, or that lack values."""
    tables = [each for each in looked if each.facts.schema is not None]
    names = dict.fromkeys(
        name for _, facts in tables for name in facts.schema.names if is_wanted(name, wanted)
    )
    for shard, facts in tables:
        url = redacted(shard.url)
        if bad := [name for name in facts.missing if name in names and name not in settings.fill]:
            raise DataError(
                f"column {bad[0]!r} of the shard {url} has rows without a value: give them one by `fill`, or "
                "leave the column out by `columns`"
            )
        if lacking := [name for name in names if name not in facts.schema.names]:
            raise DataError(
                f"the shard {url} has no column {lacking[0]!r}, unlike others: write it as the others "
                "are, or leave the column out by `columns`"
            )


def _vocabulary(sample: Columns, settings: PrepareSettings, shard: str) -> Vocabulary:
    """The names of classes, if the shards have them. Raises ``DataError`` for words, whose classes are known
    only once all rows have been read."""
    wanted = named_columns(dict(settings))
    for name, values in sample.items():
        is_text = not isinstance(values, Varying) and values.dtype.kind in "OU"
        if is_text and name not in settings.text and is_wanted(name, wanted):
            raise DataError(
                f"column {name!r} of the shard {shard} is text: keep it as bytes by `text: "
                f"[{name}]` and open it by `decode`, leave it out by `columns`, or name the shards as "
                "`source`, which reads all rows before the start and numbers the words"
            )
    return Selection(settings).vocabulary(sample, shard)
