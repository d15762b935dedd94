"""Columns of varying lengths: written, cached, checked, padded, decoded and bucketed, exactly."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from cerebro_elastic.data.manifest import Manifest, read_manifest
from cerebro_elastic.data.ragged import Ragged, offsets_of, padded
from cerebro_elastic.data.reading.batches import batch_count, batches, training_order
from cerebro_elastic.data.reading.cache import PartitionCache
from cerebro_elastic.data.reading.loader_settings import LoaderSettings
from cerebro_elastic.data.reading.partition import Partition
from cerebro_elastic.data.reading.row_sums import RaggedRowSums, padded_sums, ragged_sums, row_sums
from cerebro_elastic.data.reading.worker_processes import end_idle
from cerebro_elastic.errors import DamagedData, DataError, RecipeError, TaskError
from cerebro_elastic.system.files import content, locate
from support.prepared import prepare

ROWS = 23
LENGTHS = np.random.default_rng(1).integers(0, 9, ROWS)


def tokens(row: int) -> np.ndarray[Any, Any]:
    return np.arange(LENGTHS[row]) * 100 + row


def boxes(row: int) -> np.ndarray[Any, Any]:
    return np.full((row % 3, 4), row, "f4")


def picture(row: int) -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.full((4, 5, 3), row, np.uint8)).save(file, "png")
    return file.getvalue()


def columns() -> dict[str, Any]:
    """The label ``y`` of a row is its number, from which all else of it follows."""
    return {
        "tokens": [tokens(row) for row in range(ROWS)],
        "boxes": [boxes(row).tolist() for row in range(ROWS)],
        "image": [picture(row) for row in range(ROWS)],
        "y": np.arange(ROWS),
    }


def opened(value: bytes) -> np.ndarray[Any, Any]:
    return np.asarray(Image.open(io.BytesIO(value)))


@pytest.fixture
def dataset(tmp_path: Path) -> tuple[str, Manifest]:
    url = str(tmp_path / "data")
    return url, prepare(columns, url, partitions=2, seed=0, valid=0.2)


@pytest.fixture
def partition(dataset: tuple[str, Manifest], tmp_path: Path) -> Partition:
    return PartitionCache(tmp_path / "cache").fetch(*dataset, "train", 0)


def dicts(partition: Partition, order: Any = None, **settings: Any) -> list[dict[str, Any]]:
    loader = LoaderSettings(**{"batch_size": 4, "layout": "dict", "decode": {"image": opened}} | settings)
    return list(batches(partition, np.arange(partition.rows) if order is None else order, loader))


def test_the_manifest_says_what_the_columns_are_and_old_ones_keep_their_digest(
    dataset: tuple[str, Manifest], tmp_path: Path
) -> None:
    url, manifest = dataset
    assert [(c.name, c.dtype, c.shape, c.kind) for c in manifest.columns] == [
        ("tokens", "<i8", (), "ragged"),
        ("boxes", "<f8", (4,), "ragged"),
        ("image", "|u1", (), "bytes"),
        ("y", "<i8", (), "rows"),
    ]
    assert read_manifest(url) == manifest
    again = prepare(columns, str(tmp_path / "again"), partitions=2, seed=0, valid=0.2)
    assert again == manifest, "the same input, the same bytes"
    assert prepare(columns, url, partitions=2, seed=0, valid=0.2) == manifest
    with pytest.raises(DataError, match="holds another dataset"):
        prepare(columns, url, partitions=2, seed=1, valid=0.2)


def test_sequences_are_padded_with_their_lengths_and_values_are_decoded(partition: Partition) -> None:
    seen = []
    for batch in dicts(partition, pad_value={"tokens": -1}):
        assert list(batch) == ["tokens", "tokens_lengths", "boxes", "boxes_lengths", "image", "y"]
        seen += batch["y"].tolist()
        for at, row in enumerate(batch["y"].tolist()):
            length = int(batch["tokens_lengths"][at])
            assert batch["tokens"][at, :length].tolist() == tokens(row).tolist()
            assert (batch["tokens"][at, length:] == -1).all()
            assert batch["boxes"][at, : row % 3].tolist() == boxes(row).tolist()
            assert not batch["boxes"][at, row % 3 :].any()
            assert (batch["image"][at] == row).all()
        assert batch["tokens"].shape[1] == batch["tokens_lengths"].max()
        assert batch["image"].shape[1:] == (4, 5, 3)
    assert len(seen) == partition.rows


def test_lists_bytes_and_rows_for_collate(partition: Partition) -> None:
    (batch, *_) = dicts(partition, ragged="list", decode={})
    assert list(batch) == ["tokens", "boxes", "image", "y"]
    rows = batch["y"].tolist()
    assert [t.tolist() for t in batch["tokens"]] == [tokens(row).tolist() for row in rows]
    assert [b.shape for b in batch["boxes"]] == [(row % 3, 4) for row in rows]
    assert batch["image"] == [picture(row) for row in rows]
    (collated, *_) = batches(partition, np.arange(4), LoaderSettings(4, collate=list))
    assert [len(row) for row in collated] == [4] * 4
    assert [row[0].tolist() for row in collated] == [tokens(row).tolist() for row in rows]
    (as_tuple, *_) = batches(partition, np.arange(4), LoaderSettings(4))
    assert [type(part) for part in as_tuple] == [torch.Tensor] * 4 + [list, torch.Tensor]


def test_a_rank_pads_its_rows_as_the_whole_batch(partition: Partition) -> None:
    order, loader = np.arange(8), LoaderSettings(4, "dict")
    whole = list(batches(partition, order, loader, skip=1))
    assert len(whole) == 1
    halves = [list(batches(partition, order, loader, skip=1, part=part)) for part in (first, second)]
    for batch, *parts in zip(whole, *halves, strict=True):
        for name in ("tokens", "tokens_lengths", "boxes"):
            assert torch.equal(torch.cat([part[name] for part in parts]), batch[name])


def first(rows: int) -> slice:
    return slice(0, rows // 2)


def second(rows: int) -> slice:
    return slice(rows // 2, rows)


@pytest.fixture
def workers() -> Iterator[None]:
    yield
    end_idle()


@pytest.mark.usefixtures("workers")
def test_workers_get_the_same_batches(partition: Partition) -> None:
    assert isinstance(pickle.loads(pickle.dumps(partition)).columns["tokens"].values, np.memmap)
    settings = {"pad_value": {"tokens": 7}, "batch_size": 8}
    here, there = dicts(partition, **settings), dicts(partition, workers=1, **settings)
    assert [{name: torch.as_tensor(part).tolist() for name, part in batch.items()} for batch in here] == [
        {name: torch.as_tensor(part).tolist() for name, part in batch.items()} for batch in there
    ]


def test_bucketing_takes_every_row_once_and_pads_little() -> None:
    lengths = np.random.default_rng(0).integers(1, 200, 1003)
    values = np.zeros(int(lengths.sum()), "u1")
    partition = Partition(3, 1003, {"x": Ragged(values, offsets_of(lengths))})
    loader = LoaderSettings(8, bucket="x")
    order = training_order(partition, loader, 5, 0)
    assert sorted(order) == list(range(1003))
    assert order[:6].tolist() == [643, 893, 325, 163, 453, 980], "as of every release"
    groups = [lengths[order[at : at + 8]] for at in range(0, 1000, 8)]
    assert sum(group.max() - group.mean() for group in groups) / len(groups) < 3
    assert [group.max() for group in groups] != sorted(group.max() for group in groups)
    for other in ((5, 1), (6, 0)):
        assert training_order(partition, loader, *other).tolist() != order.tolist()
    plain = training_order(partition, LoaderSettings(8), 5, 0)
    assert order[1000:].tolist() == plain[1000:].tolist(), "the short batch is none of the longest"
    few = training_order(Partition(0, 3, {"x": Ragged(values, offsets_of(lengths[:3]))}), loader, 0, 0)
    assert sorted(few) == [0, 1, 2]


def test_sums_of_rows_of_any_length_do_not_depend_on_how_they_are_read() -> None:
    rng = np.random.default_rng(0)
    lengths = np.array([0, 3, 0, 8, 70, 1 << 20, 0, 9, 0])
    data, offsets = rng.integers(0, 256, int(lengths.sum()), np.uint8), offsets_of(lengths)
    expected = ragged_sums(data, offsets)
    assert expected[3] == row_sums(data[3:11].reshape(1, -1))[0]
    matrix = padded(data, offsets[:-1], lengths, int(lengths.max()) + 5)
    assert padded_sums(matrix).tolist() == expected.tolist(), "as batches are padded"
    for size in (1, 1 << 18, 1 << 22):
        if size == 1:
            data, offsets, expected = data[:81], offsets[:6], expected[:5]
        sums = RaggedRowSums(10, offsets)
        raw = bytes(10) + data.tobytes()
        assert b"".join(sums.passing(raw[at : at + size] for at in range(0, len(raw), size))) == raw
        assert sums.sums.tolist() == expected.tolist()
        data, offsets = rng.integers(0, 256, int(lengths.sum()), np.uint8), offsets_of(lengths)
        expected = ragged_sums(data, offsets)
    for at in rng.integers(11, len(data), 50):  # in a row of several segments
        damaged = data.copy()
        damaged[at] ^= 1
        assert (ragged_sums(damaged, offsets) != expected).sum() == 1


def values_file(partition: Partition, name: str) -> Path:
    column = partition.columns[name]
    assert isinstance(column, Ragged)
    return Path(column.values.filename)  # type: ignore[attr-defined]


def flipped(file: Path, at: int) -> None:
    data = bytearray(file.read_bytes())
    data[at] ^= 1
    file.unlink()
    file.write_bytes(data)


@pytest.mark.parametrize("name", ["tokens", "image"])
def test_damage_is_found_by_row_and_repaired(
    name: str, dataset: tuple[str, Manifest], tmp_path: Path
) -> None:
    url, manifest = dataset
    cache = PartitionCache(tmp_path / "cache")
    partition = cache.fetch(url, manifest, "train", 1)
    column = partition.columns[name]
    assert isinstance(column, Ragged)
    last = int(np.flatnonzero(column.lengths)[-1])
    file = values_file(partition, name)
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.resolve().write_bytes(content)  # what is mapped changes
    with pytest.raises(DamagedData, match=rf"column '{name}' has changed in 1 row of a batch \({last}\)"):
        dicts(partition)
    content[-1] ^= 1
    file.resolve().write_bytes(content)
    assert not cache.holds(manifest, "train", 1)
    assert len(dicts(cache.fetch(url, manifest, "train", 1))) == batch_count(partition.rows, 4)


def test_offsets_that_changed_in_the_cache_are_fetched_again(
    dataset: tuple[str, Manifest], tmp_path: Path
) -> None:
    url, manifest = dataset
    cache = PartitionCache(tmp_path / "cache")
    before = dicts(cache.fetch(url, manifest, "train", 0))
    flipped(next((tmp_path / "cache").rglob("000.npy")), -8)
    after = dicts(cache.fetch(url, manifest, "train", 0))
    assert [batch["tokens"].tolist() for batch in after] == [batch["tokens"].tolist() for batch in before]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda offsets: offsets + 1, "begin with 1 instead of 0"),
        (lambda offsets: np.array([*offsets[:-2], 0, offsets[-1]]), "fall from .* to 0 in row 7"),
    ],
)
def test_offsets_that_can_be_none_are_refused(
    change: Callable[[Any], Any], message: str, dataset: tuple[str, Manifest], tmp_path: Path
) -> None:
    url, manifest = dataset
    files = list(manifest.train[0].files)
    path = Path(url, files[0].path)
    np.save(path, change(np.load(path)))
    kept = content(locate(str(path)))
    files[0] = replace(files[0], bytes=kept.bytes, sha256=kept.sha256)
    changed = replace(manifest, train=(replace(manifest.train[0], files=tuple(files)), *manifest.train[1:]))
    Path(url, "manifest.json").write_bytes(changed.to_json())
    with pytest.raises(DataError, match=f"offsets .* of column 'tokens' {message}"):
        PartitionCache(tmp_path / "cache").fetch(url, changed, "train", 0)


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ([b"a", None], "no value in row 1"),
        ([[1, 2], [1.5], [1]], r"float64\[1\] in row 1, and int64\[2\] in row 0"),
        ([[1], 2], "'x' has a int in row 1.*sequence of numbers"),
        ([[], []], "'x' of the training data"),
    ],
)
def test_rows_that_make_no_column_are_refused(column: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=message):
        prepare(lambda: {"x": column, "y": [0, 1]}, str(tmp_path / "out"), partitions=1, seed=0)


def test_validation_rows_of_one_length_are_ragged_if_training_rows_are(tmp_path: Path) -> None:
    def both() -> Any:
        return {"train": {"x": [[1], [2, 3]]}, "valid": {"x": [[1, 2], [3, 4]]}}

    manifest = prepare(both, str(tmp_path / "out"), partitions=1, seed=0)
    assert manifest.columns[0].kind == "ragged"
    part = PartitionCache(tmp_path / "cache").fetch(str(tmp_path / "out"), manifest, "valid", 0)
    (batch,) = batches(part, np.arange(2), LoaderSettings(2, "dict"))
    assert batch["x"].tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"pad_value": {"token": 1}}, "'token', which is no column.*did you mean 'tokens'"),
        ({"decode": {"tokens": opened}}, "decode names 'tokens', which has ragged"),
        ({"bucket": "y"}, "bucket names 'y'"),
    ],
)
def test_settings_that_do_not_fit_the_columns_are_refused(
    settings: dict[str, Any], message: str, dataset: tuple[str, Manifest]
) -> None:
    with pytest.raises(RecipeError, match=message):
        LoaderSettings(4, **settings).check(dataset[1].columns)


def shape_by_value(value: bytes) -> Any:
    return np.zeros(int(opened(value)[0, 0, 0]) % 2 + 1)


def fail(_: bytes) -> Any:
    raise ValueError("no picture")


def test_the_result_of_decode_is_checked(partition: Partition) -> None:
    for decode, message in (
        (fail, r"`decode` failed on column 'image' in row 0 of train partition 0 .*ValueError: no picture"),
        (shape_by_value, r"\[1\] and torch.float64\[2\] of column 'image' in one batch.*ragged: list"),
        (lambda _value: "text", "made a str of a value of column 'image'"),
    ):
        with pytest.raises(TaskError, match=message):
            dicts(partition, decode={"image": decode})
    assert len(dicts(partition, decode={"image": shape_by_value}, ragged="list")[0]["image"]) == 4
