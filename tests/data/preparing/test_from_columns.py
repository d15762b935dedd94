"""`prepare`: every kind of source, the same bytes each time, one clear error for each bad input."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from scipy.sparse import eye_array

from cerebro_elastic.data.manifest import Manifest, Split, read_manifest
from cerebro_elastic.data.reading.batches import batches
from cerebro_elastic.data.reading.cache import PartitionCache
from cerebro_elastic.data.reading.loader_settings import LoaderSettings
from cerebro_elastic.errors import DataError, DiskFull
from support.prepared import prepare

ROWS = 23
X = np.arange(ROWS * 3, dtype="f4").reshape(ROWS, 3)
Y = np.arange(ROWS, dtype="i8")


def columns() -> dict[str, Any]:
    return {"x": X, "y": Y}


def rows_of(url: str, manifest: Manifest, split: Split = "train") -> list[dict[str, np.ndarray[Any, Any]]]:
    """The partitions as written, each as its columns."""
    return [
        {
            column.name: np.load(fsspec.open(f"{url}/{file.path}").open())
            for column, file in zip(manifest.columns, partition.files, strict=True)
        }
        for partition in manifest.split(split)
    ]


def write_npz(folder: Path) -> Any:
    np.savez(folder / "in.npz", **columns())
    return folder / "in.npz"


def write_npy_folder(folder: Path) -> Any:
    (folder / "in").mkdir()
    for name, column in columns().items():
        np.save(folder / "in" / f"{name}.npy", column)
    (folder / "in" / "README.md").write_text("not a column")
    return str(folder / "in")


def write_npy_glob(folder: Path) -> Any:
    return write_npy_folder(folder) + "/*.npy"


def write_parquet(folder: Path) -> Any:
    fixed = pa.FixedSizeListArray.from_arrays(pa.array(X.ravel()), 3)
    pa.parquet.write_table(pa.table({"x": fixed, "y": Y}), folder / "in.parquet")
    return folder / "in.parquet"


def write_parquet_parts_with_plain_lists(folder: Path) -> Any:
    table = pa.table({"x": pa.array(X.tolist(), pa.list_(pa.float32())), "y": Y})
    (folder / "in").mkdir()
    pa.parquet.write_table(table.slice(0, 10), folder / "in" / "a.parquet")
    pa.parquet.write_table(table.slice(10), folder / "in" / "b.parquet")
    return folder / "in"


def write_remote(_: Path) -> Any:
    with fsspec.open("memory://in.npz", "wb") as file:
        np.savez(file, **columns())
    return "memory://in.npz"


def write_function(_: Path) -> Any:
    return columns


SOURCES = [
    write_npz,
    write_npy_folder,
    write_npy_glob,
    write_parquet,
    write_parquet_parts_with_plain_lists,
    write_remote,
    write_function,
]


@pytest.fixture(autouse=True)
def _empty_memory() -> Any:
    yield
    fsspec.filesystem("memory").store.clear()


@pytest.mark.parametrize("write_source", SOURCES)
def test_every_source_gives_the_same_dataset(write_source: Callable[[Path], Any], tmp_path: Path) -> None:
    url = str(tmp_path / "out")
    manifest = prepare(write_source(tmp_path), url, partitions=4, seed=3)
    assert manifest == read_manifest(url)
    assert manifest.digest == prepare(columns, "memory://out", partitions=4, seed=3).digest
    assert [(c.name, c.dtype, c.shape) for c in manifest.columns] == [("x", "<f4", (3,)), ("y", "<i8", ())]


def test_partitions_hold_every_row_once_shuffled_with_sizes_that_differ_by_one(tmp_path: Path) -> None:
    url = str(tmp_path / "out")
    manifest = prepare(columns, url, partitions=4, seed=3)
    parts = rows_of(url, manifest)
    assert manifest.rows == (6, 6, 6, 5)
    for part in parts:
        np.testing.assert_array_equal(part["x"][:, 0], part["y"] * 3)  # rows stay together
    seen = np.concatenate([part["y"] for part in parts])
    assert sorted(seen) == list(range(ROWS))
    assert list(seen) != list(range(ROWS))
    assert prepare(columns, str(tmp_path / "other"), partitions=4, seed=4).digest != manifest.digest


def test_a_fraction_is_held_out_for_validation(tmp_path: Path) -> None:
    url = str(tmp_path / "out")
    manifest = prepare(columns, url, partitions=2, seed=3, valid=0.3, valid_partitions=2)
    train, valid = rows_of(url, manifest), rows_of(url, manifest, "valid")
    assert [len(part["y"]) for part in valid] == [4, 3]
    assert sorted(np.concatenate([part["y"] for part in [*train, *valid]])) == list(range(ROWS))


def test_validation_data_of_their_own_keep_their_order(tmp_path: Path) -> None:
    held_out = {"x": X[:5] + 100, "y": Y[:5] + 100}
    function, source = str(tmp_path / "function"), str(tmp_path / "source")
    manifest = prepare(
        lambda: {"train": columns(), "valid": held_out}, function, partitions=2, seed=0, valid=0.2
    )
    (part,) = rows_of(function, manifest, "valid")
    assert sum(manifest.rows) == ROWS
    np.testing.assert_array_equal(part["y"], held_out["y"])
    assert prepare(columns, source, partitions=2, seed=0, valid=lambda: held_out).digest == manifest.digest


def test_large_columns_are_written_in_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = prepare(columns, str(tmp_path / "whole"), partitions=2, seed=0)
    monkeypatch.setattr("cerebro_elastic.data.preparing.from_columns.CHUNK", 24)
    assert prepare(columns, str(tmp_path / "chunked"), partitions=2, seed=0) == whole


def test_byte_order_and_memory_layout_of_the_input_do_not_matter(tmp_path: Path) -> None:
    def odd() -> Mapping[str, Any]:
        return {"x": np.asfortranarray(X).astype(">f4"), "y": Y[::-1][::-1]}

    assert prepare(odd, str(tmp_path / "a"), partitions=2, seed=0) == prepare(
        columns, str(tmp_path / "b"), partitions=2, seed=0
    )


def test_column_names_never_become_paths(tmp_path: Path) -> None:
    manifest = prepare(lambda: {"../x/y": Y, "": Y}, str(tmp_path / "out"), partitions=1, seed=0)
    assert [file.path for file in manifest.train[0].files] == [
        "train/00000/..%2Fx%2Fy.npy",
        "train/00000/.npy",
    ]
    assert os.listdir(tmp_path) == ["out"]


def test_the_same_dataset_is_reused_and_another_is_refused(tmp_path: Path) -> None:
    url = str(tmp_path / "out")
    first = prepare(columns, url, partitions=2, seed=0)
    written = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*")}
    assert prepare(columns, url, partitions=2, seed=0) == first
    with pytest.raises(DataError, match=r"another dataset.*into another place"):
        prepare(columns, url, partitions=2, seed=1)
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*")} == written


def test_an_interrupted_preparation_is_done_again(tmp_path: Path) -> None:
    url = str(tmp_path / "out")
    manifest = prepare(columns, url, partitions=2, seed=0)
    (tmp_path / "out" / "manifest.json").unlink()
    (tmp_path / "out" / manifest.train[0].files[0].path).write_bytes(b"half")
    assert prepare(columns, url, partitions=2, seed=0) == manifest
    assert sum(len(part["y"]) for part in rows_of(url, manifest)) == ROWS


def nan_labels() -> dict[str, Any]:
    return {"x": X, "y": np.where(Y == 7, np.nan, Y)}


def fails() -> dict[str, Any]:
    raise OSError("the camera is off")


def mixed() -> dict[str, Any]:
    return {"x": np.array([[1], "b"], dtype=object), "y": Y[:2]}


BAD: dict[str, tuple[Any, dict[str, Any], str]] = {
    "too few rows": (columns, {"partitions": 24}, "23 training rows for 24 partitions.*at most 23"),
    "lengths": (lambda: {"x": X, "y": Y[:5]}, {}, "equally many rows: x has 23, y has 5"),
    "nan label": (
        nan_labels,
        {},
        r"column 'y' of the training data holds NaN in 1 of 23 rows \(7; the first",
    ),
    "infinite": (
        lambda: {"x": np.where(X == 4, np.inf, X)},
        {},
        r"column 'x' .* holds infinite values in 1 of 23 rows \(1; ",
    ),
    "unknown label": (columns, {"labels": ("Y",)}, "`labels` names 'Y', which is no column: .*choices: x, y"),
    "object": (mixed, {}, r"column 'x' has a str in row 1 .*: a row of a ragged column is a sequence of num"),
    "text": (lambda: {"x": np.array(["a"])}, {}, r"'x' .* has text \('a', ...\): .*`encode: \[x\]`"),
    "sparse": (
        lambda: {"x": eye_array(3)},
        {},
        r"'x' is a scipy\.sparse\..*which is no array: give an array",
    ),
    "no rows": (lambda: {"x": X[:0]}, {}, "no rows"),
    "not a mapping": (lambda: X, {}, "returned a ndarray"),
    "function fails": (
        fails,
        {},
        f"test_from_columns.py:{fails.__code__.co_firstlineno + 1}: OSError: the camera is off",
    ),
    "absent": ("/nowhere/in.npz", {}, "/nowhere/in.npz does not exist.*folder or a glob"),
    "other columns": (columns, {"valid": lambda: {"x": X}}, r"expected x <f4\[3\], y <i8\[\]; found x"),
}


@pytest.mark.parametrize(("source", "arguments", "message"), BAD.values(), ids=BAD.keys())
def test_bad_input_is_refused_and_nothing_is_written(
    source: Any, arguments: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=message):
        prepare(source, str(tmp_path / "out"), **{"partitions": 2, "seed": 0, **arguments})
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("in.json", b"{}", r"kind .json: choose one of .arrow, .bin, .csv, .feather"),
        ("in.npz", b"not a zip", "cannot read .*in.npz"),
        (
            "in.csv",
            b"a,b\n1,red\n2,blue\n",
            r"column 'b' .* has text \('red', 'blue', ...\): predict it by `label: b`, .*`columns: \[a\]`",
        ),
        ("in.csv", b"a,b\n1,3\n2,?\n5,4\n", r"column 'b' .* has numbers, but '\?' in 1 of 3 rows \(1; the"),
        ("in.csv", b"a,b,a\n1,2,3\n", "in.csv has the column 'a' more than once"),
        ("in.csv", "a,b\n1,München\n".encode("latin-1"), "column 'b' of .*in.csv is no text of UTF-8"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(name: str, content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        prepare(tmp_path / name, str(tmp_path / "out"), partitions=1, seed=0)


def test_a_misspelt_file_gets_the_nearest_name(tmp_path: Path) -> None:
    (tmp_path / "d.csv").touch()
    with pytest.raises(DataError, match=r"d1\.csv does not exist \(did you mean 'd\.csv'\?\)"):
        prepare(tmp_path / "d1.csv", str(tmp_path / "out"), partitions=1, seed=0)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("in.csv", "a;b;y\n1;0.5;0\n2;1.5;1\n"),
        ("in.csv", "\ufeffa,b,y\n1,0.5,0\n2,1.5,1\n"),
        ("in.csv", '"a","b","y"\r\n1,0.5,0\r\n2,1.5,1\r\n'),
        ("in.tsv", "a\tb\ty\n1\t0.5\t0\n2\t1.5\t1\n"),
    ],
)
def test_tables_as_spreadsheets_write_them(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text, newline="")
    manifest = prepare(tmp_path / name, str(tmp_path / "out"), partitions=1, seed=0)
    assert [(c.name, c.dtype) for c in manifest.columns] == [("a", "<i8"), ("b", "<f8"), ("y", "<i8")]


def test_decimals_and_categories_of_parquet_are_read(tmp_path: Path) -> None:
    table = pa.table(
        {
            "price": pa.array([Decimal("1.50"), Decimal("2.25")]),
            "kind": pa.array(["a", "b"]).dictionary_encode(),
        }
    )
    pa.parquet.write_table(table, tmp_path / "in.parquet")
    manifest = prepare(
        tmp_path / "in.parquet",
        str(tmp_path / "out"),
        partitions=1,
        seed=0,
        encode=["kind"],
    )
    (part,) = rows_of(str(tmp_path / "out"), manifest)
    assert sorted(part["price"]) == [1.5, 2.25]
    assert manifest.vocabulary == {"kind": ["a", "b"]}


def test_a_folder_of_unknown_files_says_what_it_has(tmp_path: Path) -> None:
    for name in ("cat/1.wav", "cat/2.wav", "dog/1.flac"):
        path = tmp_path / "photos" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
    with pytest.raises(DataError, match=r"no file of a known kind at its top, but in all 2 \.wav, 1 \.flac"):
        prepare(tmp_path / "photos", str(tmp_path / "out"), partitions=1, seed=0)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="empty has no files: give a file"):
        prepare(tmp_path / "empty", str(tmp_path / "out"), partitions=1, seed=0)


def test_validation_data_that_cannot_be_read_are_named_by_their_key(tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=r"`valid` is neither a share of the rows, such as 20%, nor data: .*gone"
    ):
        prepare(columns, str(tmp_path / "out"), partitions=1, seed=0, valid="gone.npz")


def test_lists_of_unequal_length_and_binary_values_of_tables_are_columns(tmp_path: Path) -> None:
    table = pa.table(
        {"x": [[1, 2], [], [3]], "b": [b"a\0", b"", b"ccc"], "t": ["\u00e9", "", "no"], "y": [0, 1, 2]}
    )
    pa.parquet.write_table(table, tmp_path / "in.parquet")
    url = tmp_path / "out"
    manifest = prepare(tmp_path / "in.parquet", str(url), partitions=1, seed=0, text=["t"])
    assert [(c.name, c.kind) for c in manifest.columns] == [
        ("x", "ragged"),
        ("b", "bytes"),
        ("t", "bytes"),
        ("y", "rows"),
    ]
    part = PartitionCache(tmp_path / "cache").fetch(str(url), manifest, "train", 0)
    (batch,) = batches(part, np.argsort(np.load(url / "train/00000/y.npy")), LoaderSettings(3, "dict"))
    assert batch["x"].tolist() == [[1, 2], [0, 0], [3, 0]]
    assert batch["b"] == [b"a\0", b"", b"ccc"]
    assert [value.decode() for value in batch["t"]] == ["\u00e9", "", "no"]


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ([[1], None], r"'x' has no value in row 1"),
        ([[[1], [1, 2]], []], r"'x' has lists of lists"),
        ([["a"], []], r"'x' of the training data has lists of text, .*: make them lists of numbers"),
    ],
)
def test_tables_whose_lists_cannot_be_used(column: Any, message: str, tmp_path: Path) -> None:
    pa.parquet.write_table(pa.table({"x": column}), tmp_path / "in.parquet")
    with pytest.raises(DataError, match=message):
        prepare(tmp_path / "in.parquet", str(tmp_path / "out"), partitions=1, seed=0)


class FullFileSystem(MemoryFileSystem):
    """A file system on which nothing fits any more."""

    protocol = "full"

    def _open(self, path: str, *_: Any, **__: Any) -> Any:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)


def test_a_full_disk_is_reported_as_such() -> None:
    fsspec.register_implementation("full", FullFileSystem, clobber=True)
    with pytest.raises(DiskFull, match=r"full://.*out/.*: the storage has no space left"):
        prepare(columns, "full://out", partitions=2, seed=0)
