"""`cerebro prepare` with a row function, as users type it."""

from __future__ import annotations

from pathlib import Path

import pytest

from cerebro_elastic.data.manifest import read_manifest
from support.commands import Cerebro

pytestmark = pytest.mark.usefixtures("imports_as_found")

FUNCTIONS = """
import numpy as np


def parse(row, split):
    return {"x": np.float32(row["name"].removeprefix("row "))}
"""


@pytest.fixture(autouse=True)
def rows(project: Path) -> None:
    (project / "functions.py").write_text(FUNCTIONS)
    (project / "rows.csv").write_text("n,name\n" + "".join(f"{i},row {i}\n" for i in range(20)) + "20,oops\n")


def test_rows_become_a_dataset(project: Path, cerebro: Cerebro) -> None:
    words = ["prepare", "rows.csv", "out", "--partitions", "2", "--rows", "functions:parse", "--workers", "1"]
    said = cerebro(*words)
    assert said.code == 1
    assert "1 of 17 rows are bad, 0 of all 21 may be:" in said.err
    assert f"row 20 (train): ValueError: could not convert string to float: 'oops' (at {project}" in said.err
    said = cerebro(*words, "--bad", "5%")
    assert said.code == 0, said
    assert "16 training rows in 2 partitions, 4 validation rows at out (digest " in said.out
    assert "21 of 21 rows, 1 bad" in said.err
    assert "1 bad row left out; report.json there shows some of them" in said.out
    assert sum(part.rows for part in read_manifest("out").train) == 16


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--bad", "many"], "--bad is 'many': give a number of rows, or a share below 100%"),
        (["--bad", "100%"], "--bad is '100%'"),
        (["--share", "4/4"], "--share is '4/4': give I/N, such as 0/4"),
        (["--share", "$NOT_SET/2"], "--share is '$NOT_SET/2'"),
        (["--valid", "2"], "--valid is 2: it must be a fraction"),
        (["--rows", "functions:parse_"], "functions has no 'parse_'; did you mean 'parse'"),
    ],
)
def test_wrong_arguments_are_reported(words: list[str], message: str, cerebro: Cerebro) -> None:
    said = cerebro("prepare", "rows.csv", "out", "--partitions", "2", "--rows", "functions:parse", *words)
    assert said.code != 0
    assert message in said.err


def test_a_source_is_described_without_a_destination(project: Path, cerebro: Cerebro) -> None:
    said = cerebro("prepare", "a_users_data:load", "--describe")
    assert said.code == 0, said
    assert "training" in said.out
    assert cerebro("prepare", "a_users_data:load", "out", "--partitions", "2").code == 0
    before = {path: path.stat().st_mtime_ns for path in (project / "out").rglob("*")}
    said = cerebro("prepare", "out", "--describe")
    assert said.code == 0, said
    assert "training" in said.out
    assert before == {path: path.stat().st_mtime_ns for path in (project / "out").rglob("*")}
