"""Users' torch datasets: rows by number, the same in every process; errors are reported at once. A data
module is prepared once on a host, even if processes fail or die meanwhile."""

from __future__ import annotations

import fcntl
import random
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, Subset

from cerebro_elastic.data.reading import datasets
from cerebro_elastic.data.reading.dataset_factory import DatasetFactory
from cerebro_elastic.data.reading.datasets import NumberedDatasets
from cerebro_elastic.errors import CerebroError, DataError, TaskError
from support.waiting import wait_for

SOURCE = """
    import random
    random.random()  # as Lightning does when it is imported

    import torch
    from torch.utils.data import Dataset, IterableDataset, TensorDataset, random_split

    class Squares(Dataset):
        def __init__(self, rows=10, root="somewhere"):
            self.rows = rows
        def __len__(self):
            return self.rows
        def __getitem__(self, row):
            if row == 7:
                raise OSError("image 7.jpg is cut off")
            return torch.tensor(row ** 2), {"row": row}

    class Several(Squares):
        def __getitems__(self, rows):
            return [row + 100 for row in rows]

    def split(rows=10):
        train, valid = random_split(TensorDataset(torch.arange(rows)), [0.5, 0.5])
        return {"train": train, "validation": valid}

    class stream(IterableDataset):
        def __iter__(self):
            return iter("abc")

    def columns():
        return {"x": [1], "y": [2]}

    def empty():
        return TensorDataset(torch.empty(0))

    def gpu():
        raise RuntimeError("no GPU here")

    def needs(root):
        return Squares()

    def ends():
        raise SystemExit(3)

    number = 3
"""


@pytest.fixture
def factory(tmp_path: Path, request: pytest.FixtureRequest) -> Any:
    module = f"users_{abs(hash(request.node.name))}"
    (tmp_path / f"{module}.py").write_text(textwrap.dedent(SOURCE))

    def make(name: str, **args: Any) -> DatasetFactory:
        return DatasetFactory(f"{module}:{name}", tmp_path, args, seed=3)

    return make


def test_rows_are_numbered_through_the_splits() -> None:
    datasets = NumberedDatasets("m:f", {"valid": ["d", "e"], "train": ["a", "b", "c"], "test": ["f"]})
    assert {split: columns["row"].tolist() for split, columns in datasets.columns().items()} == {
        "train": [0, 1, 2],
        "valid": [3, 4],
        "test": [5],
    }
    assert datasets.rows([2, 0]) == ["c", "a"]
    assert datasets.rows([4]) == ["e"]
    assert datasets.rows([5]) == ["f"]


def test_several_rows_at_once_if_the_dataset_can(factory: Any) -> None:
    assert factory("Several").make().rows([3, 1]) == [103, 101]


def test_a_random_split_is_the_same_wherever_it_is_made(factory: Any) -> None:
    before, python = torch.get_rng_state(), random.getstate()
    first = factory("split").make().rows([0, 1, 2])
    assert torch.equal(torch.get_rng_state(), before)
    assert random.getstate() == python, "nor do imports change what a batch draws in a fresh process"
    torch.manual_seed(1)
    assert factory("split", rows=10).make().rows([0, 1, 2]) == first, "made anew: other arguments"
    assert factory("split").make() is factory("split").make()


def test_hyper_parameters_of_its_names_are_arguments(factory: Any) -> None:
    squares = factory("Squares", root="here").with_hparams({"rows": 4, "lr": 0.1})
    assert squares.args == {"root": "here", "rows": 4}
    assert squares.make().lengths == {"train": 4}


def test_lengths_of_rows_are_a_column_of_their_own() -> None:
    class Texts(list[str]):
        lengths = (1, 2, 3)

    texts = Texts(["a", "bb", "ccc"])
    datasets = NumberedDatasets("m:f", {"train": texts, "valid": Subset(texts, [2, 0])})  # type: ignore[arg-type]
    columns = datasets.columns(bucket="lengths")
    assert columns["train"]["lengths"].tolist() == [1, 2, 3]
    assert (columns["valid"]["row"].tolist(), columns["valid"]["lengths"].tolist()) == ([3, 4], [3, 1])
    with pytest.raises(DataError, match="no such attribute with a whole number for each of its 3 rows"):
        datasets.columns(bucket="sizes")


def test_classes_and_groups_of_rows_are_attributes_of_datasets_and_of_their_parts() -> None:
    class Animals(list[int]):
        kinds = ("cat", "dog", "cat", "eel")
        boxes = ((1,), (2, 3), (), ())

    animals = Animals(range(4))
    parts = ConcatDataset([animals, Subset(animals, [3, 1])])  # type: ignore[arg-type, list-item]
    columns = NumberedDatasets("m:f", {"train": parts}).columns(stratify="kinds", bucket=None)["train"]
    assert np.asarray(columns["kinds"]).tolist() == ["cat", "dog", "cat", "eel", "eel", "dog"]
    for name, why in (
        ("boxes", "this attribute of the train dataset that m:f returned is no array"),
        ("row", "as the numbers of rows are called"),
        ("kind", "has no such attribute with one value for each of its 6 rows: .* the rows' groups"),
    ):
        with pytest.raises(DataError, match=why):
            NumberedDatasets("m:f", {"train": parts}).columns(split_by=name)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("stream", "a stream for train, which has no rows by number: give it as `source`"),
        ("columns", "a dict for train, whose rows have no numbers: give a function of columns as `source`"),
        ("empty", "a TensorDataset for train, which has no rows: check its `args`"),
        ("gpu", r"failed at .*users_\d+\.py:\d+: RuntimeError: no GPU here; correct it"),
        ("ends", r"failed at .*users_\d+\.py:\d+: SystemExit: 3; correct it"),
        ("number", "is a int: name a function or class that returns a Dataset"),
    ],
)
def test_an_object_that_is_no_dataset_is_reported(factory: Any, name: str, why: str) -> None:
    with pytest.raises(CerebroError, match=why):
        (factory(name).check({}), factory(name).make().lengths)


@pytest.mark.parametrize(
    ("name", "args", "hparams", "why"),
    [
        ("Squares", {"row": 3}, {}, "takes no argument 'row'; did you mean 'rows'"),
        ("Squares", {"rows": 3}, {"rows": 4}, "rows: both in data.args and searched"),
        ("needs", {}, {"lr": 1}, "needs root: give it in data.args, or search over it"),
    ],
)
def test_arguments_are_checked(
    factory: Any, name: str, args: dict[str, Any], hparams: dict[str, Any], why: str
) -> None:
    with pytest.raises(TaskError, match=why):
        factory(name, **args).check(hparams)


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    monkeypatch.setenv("CEREBRO_CACHE", str(tmp_path))
    yield tmp_path / "prepared"
    for lock in datasets._prepared.values():
        lock.close()
    datasets._prepared.clear()


def as_another_process() -> None:
    """Forget in this process what was prepared; the lock stays held."""
    others = dict(datasets._prepared)
    datasets._prepared.clear()
    datasets._prepared.update({f"of another {name}": lock for name, lock in others.items()})


def test_later_processes_do_not_prepare() -> None:
    calls: list[str] = []
    for name in ("first", "second", "third"):
        datasets._prepare_once("photos", lambda name=name: calls.append(name))  # type: ignore[misc]
        as_another_process()
    assert calls == ["first"]
    datasets._prepare_once("others", lambda: calls.append("others"))
    assert calls == ["first", "others"]


def test_a_failure_leaves_it_to_the_next() -> None:
    def fail() -> None:
        raise OSError("no network")

    calls: list[int] = []
    with pytest.raises(OSError, match="no network"):
        datasets._prepare_once("photos", fail)
    datasets._prepare_once("photos", lambda: calls.append(1))
    assert calls == [1]


def is_waited_for(file: Path) -> bool:
    """Whether somebody waits for a lock on the file, as the kernel lists it."""
    locks = Path("/proc/locks").read_text().splitlines()
    return any("->" in line and f":{file.stat().st_ino} " in line for line in locks)


def test_a_process_that_waits_for_a_killed_one_prepares_itself(cache: Path) -> None:
    datasets._prepare_once("photos", lambda: None)
    datasets._prepared.popitem()[1].close()
    (file,) = cache.iterdir()
    calls: list[int] = []
    with file.open("r+") as killed:  # it has the lock, and has begun
        fcntl.flock(killed, fcntl.LOCK_EX)
        killed.truncate(0)
        waiter = threading.Thread(target=datasets._prepare_once, args=("photos", lambda: calls.append(1)))
        waiter.start()
        wait_for(lambda: is_waited_for(file))
    waiter.join(60)
    assert calls == [1]
