"""The description of a dataset: what it counts, and its tables."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import numpy as np

from cerebro_elastic.data.reading.description import describe
from cerebro_elastic.reporting.dataset import description_tables
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


def test_sequences_and_encoded_values_are_shown_too(tmp_path: Path) -> None:
    url = str(tmp_path / "out")
    columns = {name: np.empty(3, object) for name in ("tokens", "image", "text", "bytes")}
    for row in range(3):
        columns["tokens"][row] = np.arange(row + 7)
        columns["image"][row] = b"\x89PNG\r\n"
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
    sizes = sum(path.stat().st_size for path in (tmp_path / "out").rglob("*.npy"))
    assert sum(describe(url).column_bytes.values()) == sizes
