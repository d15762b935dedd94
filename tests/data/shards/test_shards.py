"""Shards that are read where they lie: the same partitions as of a prepared dataset, each shard read once."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from cerebro_elastic.data.manifest import Manifest, check_unchanged, verify_sizes
from cerebro_elastic.data.ragged import Ragged
from cerebro_elastic.data.reading.cache import PartitionCache
from cerebro_elastic.data.shards.classes import missing_classes
from cerebro_elastic.data.shards.making import make_columns
from cerebro_elastic.errors import DamagedData, DataError
from support.proxy import BadProxy
from support.sharded import SIZES, cache_files, opened, prepared_twin, write_parquet


def cache_at(folder: Path) -> PartitionCache:
    return PartitionCache(folder, make=make_columns)


def fetch_all(folder: Path, url: str, manifest: Manifest) -> dict[str, bytes]:
    """What a host's cache holds when it has fetched all partitions."""
    cache = cache_at(folder)
    for split in ("train", "valid", "test"):
        for index in range(len(manifest.split(split))):
            cache.fetch(url, manifest, split, index)
    return cache_files(folder)


def test_a_partition_of_shards_has_the_bytes_of_a_prepared_one(tmp_path: Path) -> None:
    shards = write_parquet(str(tmp_path / "shards"))
    url, manifest = opened(shards, str(tmp_path / "data"), partitions=2, valid=0.2, test=0.1)
    assert check_unchanged(url, manifest.digest) == manifest
    assert [column.kind for column in manifest.columns] == ["rows", "ragged", "rows", "bytes"]
    assert sum(shard.rows for shard in manifest.shards) == sum(SIZES)
    twin = prepared_twin(manifest, str(tmp_path / "prepared"))
    ours = fetch_all(tmp_path / "cache", url, manifest)
    assert ours == fetch_all(tmp_path / "other", str(tmp_path / "prepared"), twin)
    assert {path.name for path in (tmp_path / "shards").iterdir()} == {f"{n:03d}.parquet" for n in range(6)}


def test_on_s3_each_shard_is_read_once_and_nothing_is_written_beside_them(
    s3: BadProxy, tmp_path: Path
) -> None:
    def rows(shard: int) -> dict[str, Any]:
        return {"x": np.random.default_rng(shard).normal(size=(20_000, 8))}

    shards = write_parquet("s3://bucket/shards", rows, 4, group=10_000)
    s3.reset()
    url, manifest = opened(shards, str(tmp_path / "data"), partitions=2)
    assert sum(s3.served.values()) < 0.2 * (
        manifest.training_bytes or 0
    )  # footers, and the first rows of one
    s3.served.clear()
    fetch_all(tmp_path / "cache", url, manifest)
    assert sum(s3.served.values()) == manifest.training_bytes
    fetch_all(tmp_path / "cache", url, manifest)
    assert sum(s3.served.values()) == manifest.training_bytes
    assert not [request for request in s3.requests if request.method in ("PUT", "POST", "DELETE")]


def test_partitions_have_equally_many_rows_and_the_seed_decides(tmp_path: Path) -> None:
    shards = write_parquet(str(tmp_path / "shards"))
    _, manifest = opened(shards, str(tmp_path / "a"), partitions=2)
    assert max(manifest.rows) - min(manifest.rows) <= 1
    assert opened(shards, str(tmp_path / "b"), partitions=2)[1].digest == manifest.digest
    assert opened(shards, str(tmp_path / "c"), partitions=2, seed=1)[1].digest != manifest.digest


def test_compressed_shards_count_as_what_their_rows_take_in_a_cache(tmp_path: Path) -> None:
    shards = write_parquet(str(tmp_path / "shards"), lambda _: {"x": np.zeros((2000, 8))}, 2, group=2000)
    _, manifest = opened(shards, str(tmp_path / "data"), partitions=2)
    assert manifest.train[0].bytes < 2000 * 8 * 8 <= manifest.cached_bytes(manifest.train[0])


def rewritten(path: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    pyarrow.parquet.write_table(change(pyarrow.parquet.read_table(path)), path)


def without_y(table: pa.Table) -> pa.Table:
    return table.drop_columns(["y"])


def y_as_text(table: pa.Table) -> pa.Table:
    return table.set_column(2, "y", pa.array(["a"] * len(table)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:-9]), "cannot read the shard .*003.parquet"),
        (lambda path: rewritten(path, without_y), "003.parquet has no column 'y', unlike others"),
        (lambda path: rewritten(path, y_as_text), "column 'y' is .*int64 in .*, and string in .*003.parquet"),
        (lambda path: [p.unlink() for p in path.parent.glob("00[1-5]*")], "1 shard for 2 train partitions"),
        (lambda path: (path.parent / "a.csv").write_text("x\n1\n"), "files of kind .csv, .parquet"),
    ],
)
def test_what_footers_say_is_refused_before_the_start(
    change: Callable[[Path], Any], message: str, tmp_path: Path
) -> None:
    shards = write_parquet(str(tmp_path / "shards"))
    change(tmp_path / "shards" / "003.parquet")
    with pytest.raises(DataError, match=message):
        opened(shards.removesuffix("/*.parquet"), str(tmp_path / "data"), partitions=2)


def test_a_share_that_leaves_no_shard_to_train_on_is_refused(tmp_path: Path) -> None:
    shards = write_parquet(str(tmp_path / "shards"))
    with pytest.raises(DataError, match="all shards are held out for validation or test: give smaller"):
        opened(shards, str(tmp_path / "data"), valid=0.99)


def test_words_are_refused_unless_they_are_kept_as_text(tmp_path: Path) -> None:
    shards = write_parquet(str(tmp_path / "shards"), lambda n: {"word": [f"a{n}", "b"], "y": [0, 1]}, 2)
    with pytest.raises(DataError, match=r"column 'word' of the shard .* is text"):
        opened(shards, str(tmp_path / "data"), partitions=2)
    url, manifest = opened(shards, str(tmp_path / "data"), partitions=2, text=["word"])
    part = cache_at(tmp_path / "cache").fetch(url, manifest, "train", 0)
    assert isinstance(words := part.columns["word"], Ragged)
    assert words.kind == "bytes"
    assert opened(shards, str(tmp_path / "data"), partitions=2, columns=["y"])[1].columns[0].name == "y"


@pytest.mark.parametrize(
    ("change", "message"), [(Path.touch, "has changed to"), (Path.unlink, "is gone, and was")]
)
def test_a_shard_that_has_changed_is_named_and_not_trained_on(
    change: Callable[[Path], None], message: str, tmp_path: Path
) -> None:
    shards = write_parquet(str(tmp_path / "shards"))
    url, manifest = opened(shards, str(tmp_path / "data"), partitions=2)
    changed = manifest.train[1].shards[0].url
    change(Path(changed.removeprefix("file://")))
    cache = cache_at(tmp_path / "cache")
    cache.fetch(url, manifest, "train", 0)
    with pytest.raises(DataError, match=f"the shard {changed} {message}"):
        cache.fetch(url, manifest, "train", 1)
    with pytest.raises(DataError, match=f"the shard {changed} {message}"):
        verify_sizes(url, manifest)


def test_a_host_that_reads_other_rows_than_the_first_gets_none(tmp_path: Path) -> None:
    shards = write_parquet(str(tmp_path / "shards"))
    url, manifest = opened(shards, str(tmp_path / "data"), partitions=2)
    first = cache_at(tmp_path / "first")
    first.fetch(url, manifest, "train", 0)
    (record,) = (tmp_path / "data").rglob("train-00000.json")
    made = json.loads(record.read_text())
    shard = next(iter(made["shards"]))
    record.write_text(json.dumps({**made, "shards": {**made["shards"], shard: "0" * 64}}))
    for folder in ("first", "second"):
        with pytest.raises(DataError, match=f"the shard {shard} has another content"):
            cache_at(tmp_path / folder).fetch(url, manifest, "train", 0)


def test_columns_damaged_in_the_cache_are_made_again(tmp_path: Path) -> None:
    shards = write_parquet(str(tmp_path / "shards"))
    url, manifest = opened(shards, str(tmp_path / "data"), partitions=2)
    cache = cache_at(tmp_path / "cache")
    part = cache.fetch(url, manifest, "train", 0)
    whole = cache_files(tmp_path / "cache")
    (file,) = (path for path in (tmp_path / "cache").rglob("000.npy"))
    damaged = bytearray(file.read_bytes())
    damaged[-1] ^= 1
    file.write_bytes(damaged)
    with pytest.raises(DamagedData):
        part.check_rows("x", np.arange(part.rows), np.array(part.columns["x"]))
    cache.fetch(url, manifest, "train", 0)
    assert cache_files(tmp_path / "cache") == whole


def test_lists_of_one_length_are_rows_only_if_all_shards_say_so(tmp_path: Path) -> None:
    shards = write_parquet(str(tmp_path / "shards"), lambda n: {"x": [[1, 2], [3, 4][: 2 - n]]}, 2)
    _, manifest = opened(shards, str(tmp_path / "data"), partitions=1)
    assert manifest.columns[0].kind == "ragged"
    part = cache_at(tmp_path / "cache").fetch(str(tmp_path), manifest, "train", 0)
    assert isinstance(x := part.columns["x"], Ragged)
    assert x.lengths.tolist() == [2, 2, 2, 1]


def test_partitions_that_lack_a_class_are_named(tmp_path: Path) -> None:
    def sorted_by_class(shard: int) -> dict[str, Any]:
        return {"x": np.ones((60, 2)), "y": np.full(60, shard // 2)}

    shards = write_parquet(str(tmp_path / "sorted"), sorted_by_class, 4)
    _, manifest = opened(shards, str(tmp_path / "data"), partitions=4)
    (said,) = missing_classes(manifest, "y")
    assert re.match(r"4 of 4 partitions lack classes of y, as partition 0 lacks [01]:", said)

    shards = write_parquet(str(tmp_path / "mixed"), lambda _n: {"x": np.ones(60), "y": np.arange(60) % 2}, 4)
    _, manifest = opened(shards, str(tmp_path / "data"), partitions=4)
    assert list(missing_classes(manifest, "y")) == []
    assert list(missing_classes(manifest, "x")) == []
