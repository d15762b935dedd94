"""Tables: columns of several types, names of folders, hidden files and files without names of columns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from cerebro_elastic.data.kinds import text_tables
from cerebro_elastic.data.preparing.sources import read_source
from cerebro_elastic.errors import DataError
from support.prepared import prepare


def columns_of(source: Any, wanted: list[str] | None = None) -> dict[str, list[Any]]:
    """The source's columns as lists."""
    columns, *own = read_source(source, wanted).values()
    assert not own
    return {name: column.tolist() for name, column in columns.items() if isinstance(column, np.ndarray)}


def parquet(path: Path, **columns: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(pa.table(columns), path)


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_a_column_of_numbers_and_of_text_is_text_in_one_file_and_refused_in_several(tmp_path: Path) -> None:
    write(tmp_path / "csv/0.csv", "a\n1.0\n02\nx\n")
    assert columns_of(tmp_path / "csv") == {"a": ["1.0", "02", "x"]}
    write(tmp_path / "csv/1.csv", "a\n1\n")
    with pytest.raises(DataError, match=r"column 'a' is string in .*0.csv, and int64 in .*1.csv: make them"):
        columns_of(tmp_path / "csv")
    parquet(tmp_path / "parquet/0.parquet", c=pa.array(["u", "v"]).dictionary_encode())
    parquet(tmp_path / "parquet/1.parquet", c=["w"])
    assert columns_of(tmp_path / "parquet") == {"c": ["u", "v", "w"]}


@pytest.mark.parametrize("block", [1, 1 << 20], ids=["in several blocks", "in one block"])
def test_json_lines_may_differ_in_their_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr(text_tables, "_BLOCK_BYTES", block)
    rows = [{"a": 1, "meta": {"w": 1, "v": "x"}}, {"a": 2, "meta": {"w": 2.5}}, {"meta": None}]
    write(tmp_path / "in.jsonl", "\n".join(map(json.dumps, rows)))
    found = columns_of(tmp_path / "in.jsonl")
    assert found["a"][:2] == [1, 2]
    assert found["meta.w"][:2] == [1.0, 2.5]
    assert found["meta.v"] == ["x", None, None]
    write(tmp_path / "in.jsonl", '{"a": 1}\n{"a": "x"}\n')
    with pytest.raises(DataError, match=r"in\.jsonl from line [12]"):
        columns_of(tmp_path / "in.jsonl")


def test_unreadable_values_do_not_matter_in_columns_that_are_left_out(
    tmp_path: Path,
) -> None:
    parquet(tmp_path / "in/0.parquet", a=[1, 2], odd=[1, 2], gaps=[[1], None], deep=[[{"x": 1}], []])
    parquet(tmp_path / "in/1.parquet", a=[3], odd=[[1]], gaps=[[1]], deep=[[{"x": 2}]])
    manifest = prepare(tmp_path / "in", str(tmp_path / "out"), partitions=1, seed=0, columns=["a"])
    assert manifest.train[0].rows == 3
    with pytest.raises(DataError, match=r"'odd' is int64 in .*0.parquet, and list<.*> in .*1.parquet"):
        prepare(tmp_path / "in", str(tmp_path / "o"), partitions=1, seed=0)
    with pytest.raises(DataError, match="'odd' is int64"):
        prepare(
            tmp_path / "in",
            str(tmp_path / "o"),
            partitions=1,
            seed=0,
            columns=["a"],
            split_by="odd",
        )


def test_folders_that_wildcards_match_are_columns(tmp_path: Path) -> None:
    for year in (2023, 2024):
        for place in ("a%20b", "__HIVE_DEFAULT_PARTITION__"):
            parquet(tmp_path / f"table=t/year={year}/place={place}/0.parquet", x=[year / 2])
    expected = {"x": [1011.5, 1011.5, 1012.0, 1012.0], "year": [2023, 2023, 2024, 2024]}
    for pattern in ("*/*/*.parquet", "**/*.parquet", "year=*/place=*/0.parquet"):
        assert columns_of(tmp_path / "table=t" / pattern) == {**expected, "place": [None, "a b"] * 2}
    assert list(columns_of(tmp_path / "table=t/year={2023..2024}/place=a%20b/0.parquet")) == [
        "x",
        "year",
        "place",
    ]
    assert columns_of(tmp_path / "table=t/year=2024/place=a%20b/0.parquet") == {"x": [1012.0]}
    parquet(tmp_path / "own/year=1/0.parquet", year=[7])
    assert columns_of(tmp_path / "own/*/*.parquet") == {"year": [7]}


def test_hidden_files_beside_tables_are_left_out(tmp_path: Path) -> None:
    write(tmp_path / "in/a.csv", "a\n1\n2\n")
    for name in ("._a.csv", "~$a.csv", ".ipynb_checkpoints/a.csv", "__MACOSX/._a.csv"):
        write(tmp_path / "in" / name, "a\n7\n")
    for source in ("in", "in/*.csv", "in/**/*.csv"):
        assert columns_of(tmp_path / source) == {"a": [1, 2]}
    assert columns_of(tmp_path / "in/.ipynb_checkpoints/*.csv") == {"a": [7]}
    assert columns_of(tmp_path / "in/.*.csv") == {"a": [7]}


@pytest.mark.parametrize(
    ("header", "row", "is_row"),
    [
        ("5.1,3.5,setosa", "4.9,3.0,virginica", True),
        ("3,cat", "4,dog", True),
        ("0,1,2", "5,3,7", False),
        ("a,b", "1,2", False),
    ],
)
def test_a_first_line_that_is_a_row_is_refused(tmp_path: Path, header: str, row: str, is_row: bool) -> None:
    write(tmp_path / "in.csv", f"{header}\n{row}\n")
    names = header.split(",")
    if is_row:
        with pytest.raises(DataError, match=r"first line of .*in.csv seems to be a row, not the names"):
            columns_of(tmp_path / "in.csv")
        assert list(columns_of(tmp_path / "in.csv", names[:1])) == names[:1]
    else:
        assert list(columns_of(tmp_path / "in.csv")) == names
