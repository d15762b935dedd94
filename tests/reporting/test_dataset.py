"""The description of a dataset: what it counts, its tables, its page, and its pictures."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from cerebro_elastic.data.reading.description import describe
from cerebro_elastic.errors import DataError
from cerebro_elastic.reporting.dataset import as_png, description_tables, render_dataset
from cerebro_elastic.reporting.terminal import terminal
from support.prepared import prepare

ROWS = 50


def columns() -> dict[str, Any]:
    return {
        "image": np.random.default_rng(0).integers(0, 256, (ROWS, 9, 8, 3), np.uint8),
        "kind": np.array(["<b>cat", "dog"] * 20 + ["[eel]"] * 10),
        "where": np.linspace(0, 1, ROWS),
        "number": np.arange(ROWS) * 1000,
    }


def shown(url: str) -> str:
    console = terminal(width=120, file=io.StringIO())
    console.print(description_tables(describe(url)))
    return str(console.file.getvalue())  # type: ignore[attr-defined]


def test_tables_say_what_a_dataset_holds(tmp_path: Path) -> None:
    url = str(tmp_path / "out")
    prepare(columns, url, partitions=3, seed=0, valid=0.1, encode=["kind"])
    text = re.sub(" +", " ", shown(url))
    assert "training 45 3 15, 15, 15 " in text
    assert "validation 5 1 5 " in text
    assert "image uint8 9 x 8 x 3 " in text
    assert "where float64 one number " in text
    kind, number = describe(url).balances
    assert kind.classes == {0: "<b>cat", 1: "[eel]", 2: "dog"}
    assert [sum(of.get(value, 0) for of in kind.counts.values()) for value in range(3)] == [20, 10, 20]
    assert f"[eel] {kind.counts['train'][1]} (" in text
    assert len(number.classes) == ROWS
    assert "and 30 more classes" in text
    sizes = sum(path.stat().st_size for path in (tmp_path / "out").rglob("*.npy"))
    assert sum(describe(url).column_bytes.values()) == sizes


def test_the_page_has_a_picture_of_each_sample_and_needs_nothing_else(tmp_path: Path) -> None:
    url = str(tmp_path / "out")
    prepare(columns, url, partitions=1, seed=0, encode=["kind"])
    page = render_dataset(describe(url))
    assert page.count("data:image/png;base64,") == 12
    assert "&lt;b&gt;cat" in page
    assert "<b>cat" not in page
    assert not re.findall(r"(?:src|href)=\"(?!data:)", page)


def test_sequences_and_encoded_values_are_shown_too(tmp_path: Path) -> None:
    url = str(tmp_path / "out")
    columns = {name: np.empty(3, object) for name in ("tokens", "image", "text", "bytes")}
    for row in range(3):
        columns["tokens"][row] = np.arange(row + 7)
        columns["image"][row] = as_png(np.zeros((9, 8), np.uint8))
        columns["text"][row] = "<i>æ</i>".encode()
        columns["bytes"][row] = bytes([255, row])
    prepare(lambda: {**columns, "y": np.arange(3)}, url, partitions=1, seed=0)
    text = re.sub(" +", " ", shown(url))
    assert "tokens int64 varying" in text
    assert "image uint8 encoded" in text
    assert "0 1 2 3 4 5 ..." in text
    assert "<i>æ</i> 2 B" in text
    (balance,) = describe(url).balances
    assert (balance.column, len(balance.classes)) == ("y", 3)
    page = render_dataset(describe(url))
    assert page.count("data:image/png;base64,") == 3
    assert "&lt;i&gt;æ" in page
    sizes = sum(path.stat().st_size for path in (tmp_path / "out").rglob("*.npy"))
    assert sum(describe(url).column_bytes.values()) == sizes


def test_a_dataset_that_is_damaged_is_named(tmp_path: Path) -> None:
    url = str(tmp_path / "out")
    manifest = prepare(columns, url, partitions=1, seed=0, columns=["number"])
    (tmp_path / "out" / manifest.train[0].files[0].path).write_bytes(b"")
    with pytest.raises(DataError, match=f"cannot read the dataset {url}"):
        describe(url)


def test_pictures_of_other_numbers_are_scaled_and_large_ones_thinned() -> None:
    for values, expected in (
        (np.linspace(0, 0.5, 100), (0, 127)),
        (np.linspace(-3, 3, 100), (0, 255)),
        (np.arange(100), (0, 255)),
        (np.array([np.nan] + [1.0] * 99), (0, 255)),
        (np.full(100, 7), (0, 0)),
    ):
        picture = np.asarray(Image.open(io.BytesIO(as_png(values.reshape(10, 10)))))
        assert (picture.min(), picture.max()) == expected
    assert Image.open(io.BytesIO(as_png(np.zeros((1000, 20))))).size == (5, 250)
