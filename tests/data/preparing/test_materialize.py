"""The rows of torch datasets, written as columns."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from cerebro_elastic.data.manifest import read_manifest
from cerebro_elastic.data.preparing.growing import materialized
from cerebro_elastic.data.ragged import Ragged
from cerebro_elastic.errors import DataError
from support.prepared import prepare


class Rows(Dataset[Any]):
    def __init__(self, *rows: Any) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, number: int) -> Any:
        if isinstance(self.rows[number], Exception):
            raise self.rows[number]
        return self.rows[number]


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return ({"x": np.full(2, number, "f4"), "y": number} for number in range(5))


def test_values_of_one_shape_are_rows() -> None:
    columns = materialized(Rows((torch.ones(2, 3), 1, True), (torch.zeros(2, 3), 2, False)), "m:f")
    assert {name: column.dtype for name, column in columns.items()} == {
        "x0": np.dtype("f4"),
        "x1": np.dtype("i8"),
        "x2": np.dtype(bool),
    }
    assert np.asarray(columns["x0"]).tolist() == [[[1.0] * 3] * 2, [[0.0] * 3] * 2]
    assert np.asarray(columns["x1"]).tolist() == [1, 2]


def test_values_of_varying_length_and_bytes_are_ragged() -> None:
    columns = materialized(Rows((np.array([1, 2]), b"ab"), (np.array([3]), b"")), "m:f")
    tokens, image = columns["x"], columns["y"]
    assert isinstance(tokens, Ragged)
    assert isinstance(image, Ragged)
    assert (tokens.values.tolist(), tokens.offsets.tolist(), tokens.kind) == ([1, 2, 3], [0, 2, 3], "ragged")
    assert (bytes(image.values), image.offsets.tolist(), image.kind) == (b"ab", [0, 2, 2], "bytes")


def test_an_iterable_dataset_and_text(tmp_path: Path) -> None:
    manifest = prepare(Stream, str(tmp_path / "data"), partitions=2, seed=0, valid=0.2)
    assert [column.name for column in manifest.columns] == ["x", "y"]
    assert manifest.rows == (2, 2)
    assert materialized(Rows("a", "bc"), "m:f")["x"].tolist() == ["a", "bc"]


def test_datasets_by_split_and_random_rows(tmp_path: Path) -> None:
    def splits() -> Any:
        return {"train": TensorDataset(torch.randn(6, 2)), "valid": TensorDataset(torch.zeros(3, 2))}

    first = prepare(splits, str(tmp_path / "a"), partitions=2, seed=4)
    torch.manual_seed(9)
    assert prepare(splits, str(tmp_path / "b"), partitions=2, seed=4).digest == first.digest
    assert [part.rows for part in read_manifest(str(tmp_path / "a")).valid] == [3]


BAD = {
    "a row that fails": (Rows(1, OSError("cut off")), r"row 1 of m:f failed at .*OSError: cut off"),
    "another type": (Rows(1, 2.5), "column 'x' of m:f has float64 in row 1, and int64 in row 0"),
    "another shape": (Rows(np.zeros((2, 3)), np.zeros((3, 2))), r"has float64\[\.\.\., 2\] in row 1"),
    "other names": (Rows({"a": 1}, {"b": 1}), "row 1 of m:f has b, and row 0 has a"),
    "nothing": (Rows((1, None)), "row 0 of m:f has a NoneType for 'y'"),
}


@pytest.mark.parametrize(("dataset", "why"), BAD.values(), ids=BAD)
def test_rows_without_matching_columns_are_reported_by_number(dataset: Any, why: str) -> None:
    with pytest.raises(DataError, match=why):
        materialized(dataset, "m:f")
