"""A dataset made row by row by a user's function: the same bytes for any number of workers and kills, each
row made once, and bad rows reported."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cerebro_elastic import prepare
from cerebro_elastic.data.manifest import Manifest, Split, read_manifest
from cerebro_elastic.data.preparing import from_rows as module
from cerebro_elastic.data.preparing.from_rows import RowProgress
from cerebro_elastic.data.preparing.shared_jobs import MachineShare
from cerebro_elastic.errors import DataError, TaskError
from support.waiting import wait_for

ROWS = 60
pytestmark = pytest.mark.usefixtures("imports_as_found")

FUNCTIONS = """
import os
import random
import time
from pathlib import Path

import fsspec
import numpy as np

HERE = Path(__file__).parent
CLASSES = list({f"class {number}" for number in range(50)})  # one order, whoever makes a row
made = 0


def note(what):
    with open(HERE / "calls", "ab", buffering=0) as calls:
        calls.write(what.encode() + b"\\n")


def square(row, split):
    note(f"{split} {row['n']}")
    noise = random.random() + np.random.random() + CLASSES.index("class 7")
    x = np.full(3, row["n"] ** 2, np.float32)
    return {"x": x, "noise": noise, "y": row["n"] % 2, "own": split == "valid"}


def picky(row, split):
    if row["n"] in (3, 5):
        raise ValueError(f"https://me:passw0rd@host/{row['n']}.jpg?token=f00d is not to my liking")
    return {"x": row["n"], "y": np.nan if row["n"] == 7 else 1.0}


def offline(row, split):
    if row["n"] == 5 and (HERE / "offline").exists():
        raise OSError("the network is down")
    return square(row, split)


def dies(row, split):
    os._exit(3)


def empty(row, split):
    return {"x": []}


def shapes(row, split):
    return {"x": np.zeros((1, 1 + (row["n"] == 9)), np.int64)}


def words(row, split):
    return {"x": "word"}


def number(row, split):
    return 3


def fetched(row, split):
    with fsspec.open(row["url"]) as file:
        return {"x": np.load(file)}


def slow(row, split):
    global made
    made += 1
    deadline = time.monotonic() + 60
    while made > 30 and (HERE / "stuck").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    return square(row, split)
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the functions and ``rows.csv``; chunks are small."""
    (tmp_path / "functions.py").write_text(FUNCTIONS)
    (tmp_path / "rows.csv").write_text("n,name\n" + "".join(f"{i},row {i}\n" for i in range(ROWS)))
    monkeypatch.setattr(module, "_ROWS", 8)
    return tmp_path


def make(root: Path, function: str = "square", url: str = "out", **arguments: Any) -> Manifest:
    settings: dict[str, Any] = {"partitions": 3, "seed": 1, "valid": 0.3, "workers": 1}
    given = {"rows": f"functions:{function}", **settings, **arguments}
    return prepare(root / "rows.csv", root / url, root=root, **given)


def read(url: Path, manifest: Manifest, split: Split) -> Mapping[str, np.ndarray[Any, Any]]:
    """A split's columns, over all its partitions."""
    parts = [
        {c.name: np.load(url / f.path) for c, f in zip(manifest.columns, part.files, strict=True)}
        for part in manifest.split(split)
    ]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def calls(root: Path) -> list[str]:
    file = root / "calls"
    return file.read_text().splitlines() if file.exists() else []


def test_each_row_is_made_once_with_its_split(root: Path) -> None:
    shown: list[int] = []
    manifest = make(root, show=lambda progress: shown.append(progress.done))
    assert manifest == read_manifest(str(root / "out"))
    assert [(c.name, c.dtype, c.shape) for c in manifest.columns] == [
        ("x", "<f4", (3,)),
        ("noise", "<f8", ()),
        ("y", "<i8", ()),
        ("own", "|b1", ()),
    ]
    assert manifest.rows == (14, 14, 14)
    assert [part.rows for part in manifest.valid] == [18]
    assert sorted(int(call.split()[1]) for call in calls(root)) == list(range(ROWS))
    seen = []
    splits: tuple[Split, ...] = ("train", "valid")
    for split in splits:
        columns = read(root / "out", manifest, split)
        assert columns["own"].all() == (split == "valid")
        roots = np.sqrt(columns["x"][:, 0]).astype(int)
        assert sorted(f"{split} {n}" for n in roots) == sorted(c for c in calls(root) if c.startswith(split))
        seen += list(roots)
    assert sorted(seen) == list(range(ROWS))
    assert shown[-1] == ROWS
    assert sorted(shown) == shown
    assert sorted(path.name for path in (root / "out").iterdir()) == [
        "manifest.json",
        "report.json",
        "train",
        "valid",
    ]
    report = json.loads((root / "out" / "report.json").read_text())
    assert (report["rows"], report["bad"]) == ({"train": 42, "valid": 18}, 0)


def test_the_rows_are_dealt_as_without_a_function(root: Path) -> None:
    made = make(root, partitions=2)
    plain = prepare(lambda: {"n": np.arange(ROWS)}, str(root / "plain"), partitions=2, seed=1, valid=0.3)
    for split in ("train", "valid"):
        squares = read(root / "plain", plain, split)["n"] ** 2
        np.testing.assert_array_equal(read(root / "out", made, split)["x"][:, 0], squares)


def test_the_same_bytes_for_any_number_of_workers_and_machines(root: Path) -> None:
    alone = make(root).digest
    assert make(root, url="two", workers=2).digest == alone
    # The second machine comes late, or never.
    assert make(root, url="shared", share=MachineShare(1, 3)).digest == alone
    assert make(root, url="shared", share=MachineShare(0, 3)).digest == alone
    assert make(root, url="other", seed=2).digest != alone


def test_a_prepared_dataset_is_reused_and_another_refused(root: Path) -> None:
    first = make(root)
    before = len(calls(root))
    assert make(root) == first
    assert len(calls(root)) == before
    with pytest.raises(DataError, match="holds another dataset, or one that was made of another"):
        make(root, seed=2)
    (root / "functions.py").write_text(FUNCTIONS + "\n# another\n")
    with pytest.raises(DataError, match="another source, function or seed"):
        make(root)


def test_after_a_kill_only_the_rest_is_made(root: Path) -> None:
    """Chunks are 8 rows; the worker stops after 30, and then everybody is killed."""
    (root / "stuck").touch()
    code = (
        "from cerebro_elastic import prepare; from cerebro_elastic.data.preparing import from_rows as m\n"
        "m._ROWS = 8\n"
        "if __name__ == '__main__': prepare('rows.csv', 'out', rows='functions:slow',"
        " partitions=3, seed=1, valid=0.3, workers=1)"
    )
    (root / "go.py").write_text(code)
    going = subprocess.Popen([sys.executable, "go.py"], cwd=root, stderr=subprocess.PIPE, text=True)
    try:
        wait_for(lambda: len(calls(root)) == 30, "30 rows")
        workers = children(going.pid)
    finally:
        going.send_signal(signal.SIGKILL)
        going.communicate()
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers), "the workers to end")
    assert not (root / "out" / "manifest.json").exists()
    (root / "stuck").unlink()
    chunks = len(list((root / "out").rglob("*.json")))
    assert chunks >= 3
    known: list[RowProgress] = []
    manifest = make(root, "slow", show=lambda p: known.append(RowProgress(p.total, p.done, p.known)))
    made_again = len(calls(root)) - 30
    assert made_again == ROWS - known[-1].known
    assert known[-1].known >= 3 * 6
    assert manifest.digest == make(root, "slow", url="whole").digest


def test_bad_rows_are_left_out_counted_and_sampled(root: Path) -> None:
    manifest = make(root, "picky", max_bad_rows=0.05)
    kept = sum(part.rows for part in (*manifest.train, *manifest.valid))
    report = json.loads((root / "out" / "report.json").read_text())
    assert (kept, report["bad"], sum(report["rows"].values())) == (ROWS - 3, 3, ROWS - 3)
    whys = {row["row"]: row["why"] for row in report["sample"]}
    assert sorted(whys) == [3, 5, 7]
    assert whys[3].startswith("ValueError: https://host/3.jpg is not to my liking (at ")
    assert f"{root}/functions.py:" in whys[3]
    assert whys[7] == "ValueError: 'y' is NaN or infinite (at " + whys[7].partition("(at ")[2]
    assert "passw0rd" not in json.dumps(report)


def test_rows_that_were_out_of_reach_are_tried_again(root: Path) -> None:
    whole = make(root, "offline", url="whole").digest
    (root / "calls").unlink()
    (root / "offline").touch()
    with pytest.raises(DataError, match=r"OSError: the network is down"):
        make(root, "offline")
    (root / "offline").unlink()
    assert make(root, "offline").digest == whole
    assert len(set(calls(root))) == ROWS
    assert ROWS <= len(calls(root)) < ROWS + 3 * 8, "only what was under way is made again"


BAD: dict[str, tuple[str, dict[str, Any], str]] = {
    "raises": ("picky", {}, r"of all 60 may be"),
    "dies": ("dies", {}, "a process that makes rows died without a word.*fewer --workers"),
    "shapes": (
        "shapes",
        {"valid": 0},
        r"makes x <i8\[1, \d\] of row \d+, and x <i8\[1, \d\] of row \d+.*first axis only",
    ),
    "empty": ("empty", {}, "empty sequences of all rows for column 'x'"),
}


@pytest.mark.parametrize(("function", "arguments", "message"), BAD.values(), ids=BAD)
def test_bad_input(root: Path, function: str, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        make(root, function, **arguments)
    assert not (root / "out" / "manifest.json").exists()


def test_a_function_that_is_not_there(root: Path) -> None:
    with pytest.raises(TaskError, match="functions has no 'sqare'; did you mean 'square'"):
        make(root, "sqare")
    assert not (root / "out").exists()


def test_objects_are_fetched_by_their_urls(root: Path) -> None:
    for n in range(4):
        np.save(root / f"{n}.npy", np.full(2, n))
    (root / "rows.csv").write_text("url\n" + "".join(f"file://{root}/{n}.npy\n" for n in range(4)))
    manifest = make(root, "fetched", partitions=2, valid=0)
    assert sorted(read(root / "out", manifest, "train")["x"][:, 0]) == [0, 1, 2, 3]


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
