"""Orders and batches: pure, exact, and the same for any number of workers."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import default_collate

from cerebro_elastic.data.reading.batches import batch_count, batches
from cerebro_elastic.data.reading.loader_settings import LoaderSettings
from cerebro_elastic.data.reading.partition import Partition, sample_order
from cerebro_elastic.data.reading.row_sums import row_sums
from cerebro_elastic.data.reading.worker_processes import end_idle
from cerebro_elastic.errors import (
    DamagedData,
    TaskError,
)

ROWS = 11


@pytest.fixture
def partition(tmp_path: Path) -> Partition:
    """Memory-mapped, with columns of several dtypes."""
    columns = {
        "x": np.arange(ROWS * 6, dtype="f4").reshape(ROWS, 2, 3),
        "y": np.arange(ROWS),
        "mask": np.arange(ROWS) % 2 == 0,
        "id": np.arange(ROWS, dtype="u2"),
    }
    for name, column in columns.items():
        np.save(tmp_path / f"{name}.npy", column)
    return opened(tmp_path, {name: row_sums(column) for name, column in columns.items()})


def opened(folder: Path, sums: dict[str, Any]) -> Partition:
    mapped = {name: np.load(folder / f"{name}.npy", mmap_mode="r") for name in sums}
    return Partition(0, ROWS, mapped, sums, sent=lambda: (opened, (folder, sums)))


@pytest.fixture(autouse=True)
def _no_workers_stay() -> Iterator[None]:
    yield
    end_idle()


def double(batch: Any) -> Any:
    return tuple(2 * column.float() for column in batch)


def stack_first_two(rows: list[Any]) -> torch.Tensor:
    return torch.stack([row[0].sum() + row[1] for row in rows])


def noise(batch: Any) -> torch.Tensor:
    return torch.rand(len(batch[1]), 2)


def fail(_: Any) -> Any:
    raise ValueError("a row from the moon")


def test_the_order_is_that_of_every_release() -> None:
    assert sample_order(0, 0, 0, 10).tolist() == [4, 6, 2, 7, 3, 5, 9, 0, 8, 1]
    assert sample_order(42, 3, 1, 10).tolist() == [9, 8, 2, 6, 7, 5, 3, 4, 0, 1]
    assert int(sample_order(7, 0, 0, 10_000)[-1]) == 2699


def test_the_order_is_a_permutation_that_every_argument_changes() -> None:
    orders = [sample_order(*at, 100) for at in ((0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1))]
    assert all(sorted(order) == list(range(100)) for order in orders)
    assert len({order.tobytes() for order in orders}) == 4
    assert orders[0].dtype == np.int64
    assert sample_order(0, 5, 5, 4, shuffle=False).tolist() == [0, 1, 2, 3]


def test_batches_take_the_rows_in_order_and_the_last_may_be_short(partition: Partition) -> None:
    order = sample_order(0, 0, 0, ROWS)
    made = list(batches(partition, order, LoaderSettings(batch_size=4)))
    assert [len(batch[1]) for batch in made] == [4, 4, 3]
    assert len(made) == batch_count(ROWS, 4) == 3
    assert batch_count(12, 4) == 3
    assert torch.cat([batch[1] for batch in made]).tolist() == order.tolist()
    for name, column in zip(partition.columns, zip(*made, strict=True), strict=True):
        expected = torch.from_numpy(np.array(partition.columns[name])[order])
        assert torch.cat(column).dtype == expected.dtype
        assert torch.equal(torch.cat(column), expected)


def test_a_batch_owns_aligned_contiguous_memory(partition: Partition) -> None:
    for batch in batches(partition, np.arange(ROWS), LoaderSettings(batch_size=4)):
        for column in batch:
            assert column.is_contiguous()
            assert column.data_ptr() % 64 == 0
            column.zero_()
    assert partition.columns["y"].sum() == 55


def test_layouts(partition: Partition) -> None:
    order = np.arange(2)
    (as_dict,) = batches(partition, order, LoaderSettings(batch_size=2, layout="dict"))
    assert list(as_dict) == ["x", "y", "mask", "id"]
    assert as_dict["y"].tolist() == [0, 1]
    (lone,) = batches(Partition(0, 2, {"y": np.arange(2)}), order, LoaderSettings(batch_size=2))
    assert lone.tolist() == [0, 1]


@pytest.mark.parametrize("layout", ["tuple", "dict"])
def test_torchs_own_collate_gives_the_same_batches(partition: Partition, layout: str) -> None:
    def collate(rows: list[Any]) -> Any:
        batch = default_collate(rows)
        return tuple(batch) if isinstance(batch, list) else batch

    order = sample_order(0, 0, 0, ROWS)
    plain = batches(partition, order, LoaderSettings(4, layout))
    collated = batches(partition, order, LoaderSettings(4, layout, collate=collate))
    assert flat(collated) == flat(plain)


def flat(made: Any) -> list[Any]:
    """Batches as comparable values."""
    as_columns = [batch.values() if isinstance(batch, dict) else batch for batch in made]
    return [[(column.dtype, column.tolist()) for column in batch] for batch in as_columns]


def test_an_order_outside_of_the_partition_is_refused(partition: Partition) -> None:
    for order in (np.array([ROWS]), np.array([-1])):
        with pytest.raises(IndexError, match="of 11"):
            batches(partition, order, LoaderSettings(4))


def test_workers_give_the_same_batches_and_touch_no_generator_here(partition: Partition) -> None:
    order = sample_order(0, 0, 0, ROWS)
    partition = Partition(0, ROWS, partition.columns)
    before, children = torch.get_rng_state(), set(multiprocessing.active_children())
    settings = {"collate": stack_first_two, "layout": "tuple"}
    here = list(batches(partition, order, LoaderSettings(2, **settings)))  # type: ignore[arg-type]
    there = list(batches(partition, order, LoaderSettings(2, workers=2, **settings)))  # type: ignore[arg-type]
    assert [batch.tolist() for batch in there] == [batch.tolist() for batch in here]
    assert torch.equal(torch.get_rng_state(), before)
    serving = set(multiprocessing.active_children()) - children
    batches(partition, order, LoaderSettings(2, workers=2, **settings)).close()  # type: ignore[arg-type]
    left = batches(partition, order, LoaderSettings(2, workers=2, **settings))  # type: ignore[arg-type]
    next(left)
    left.close()
    again = list(batches(partition, order, LoaderSettings(2, workers=2, **settings)))  # type: ignore[arg-type]
    assert [batch.tolist() for batch in again] == [batch.tolist() for batch in here], (
        "after a unit that stopped"
    )
    fetch_again(partition, "y", np.arange(ROWS) + 100)
    later = Partition(0, ROWS, {n: np.load(c.filename, mmap_mode="r") for n, c in partition.columns.items()})  # type: ignore[union-attr]
    fresh = list(batches(later, order, LoaderSettings(2, workers=2, **settings)))  # type: ignore[arg-type]
    assert [batch.tolist() for batch in fresh] == [(batch + 100).tolist() for batch in here], "a file anew"
    assert set(multiprocessing.active_children()) - children == serving, "the same processes"


def fetch_again(partition: Partition, name: str, content: Any) -> None:
    """Put another file in the place of a column's, as a cache that fetches a damaged one."""
    file = Path(partition.columns[name].filename)  # type: ignore[union-attr]
    np.save(file.with_name("new.npy"), content)
    file.with_name("new.npy").rename(file)


def test_a_random_transform_in_workers_is_a_function_of_the_seed(partition: Partition) -> None:
    def drawn(seed: int, workers: int = 1, skip: int = 0) -> list[Any]:
        settings = LoaderSettings(4, transform=noise, workers=workers)
        made = batches(partition, np.arange(ROWS), settings, seed=seed, skip=skip)
        return [batch.tolist() for batch in made]

    whole = drawn(1)
    assert len(whole) == 3
    assert whole[0] != whole[1]
    assert drawn(1, workers=2, skip=1) == whole[1:], "wherever one begins, with any number of workers"
    assert drawn(2) != whole


def test_skipped_batches_are_not_made(partition: Partition) -> None:
    made: list[int] = []

    def transform(batch: Any) -> Any:
        made.append(int(batch[1][0]))
        return batch[1].tolist()

    settings = LoaderSettings(4, transform=transform)
    assert list(batches(partition, np.arange(ROWS), settings, skip=1)) == [[4, 5, 6, 7], [8, 9, 10]]
    assert made == [4, 8]
    assert list(batches(partition, np.arange(ROWS), LoaderSettings(4, workers=2), skip=3)) == []


@pytest.mark.parametrize("workers", [0, 1])
def test_a_users_error_is_passed_on(partition: Partition, workers: int) -> None:
    with pytest.raises(ValueError, match="a row from the moon"):
        list(batches(partition, np.arange(2), LoaderSettings(2, transform=fail, workers=workers)))


def not_sent(_: Any) -> Any:
    return lambda: None


def test_a_batch_that_cannot_be_sent_is_an_error_not_a_wait(partition: Partition) -> None:
    with pytest.raises(TaskError, match=r"cannot be sent.*not_sent.*or set workers: 0"):
        list(batches(partition, np.arange(2), LoaderSettings(2, transform=not_sent, workers=1)))


def test_collate_makes_the_batch_and_transform_maps_it(partition: Partition) -> None:
    settings = LoaderSettings(ROWS, collate=lambda rows: (rows[3][1], torch.ones(1)), transform=double)
    assert [batch[0].item() for batch in batches(partition, np.arange(ROWS), settings)] == [6.0]


def test_the_users_code_makes_a_batch_when_it_is_taken(partition: Partition) -> None:
    collated: list[int] = []
    settings = LoaderSettings(2, collate=lambda rows: collated.append(len(rows)))
    for number, _ in enumerate(batches(partition, np.arange(ROWS), settings)):
        assert len(collated) == number + 1


@pytest.mark.parametrize("workers", [0, 1])
def test_a_row_that_has_changed_ends_the_batches_before_its_own(partition: Partition, workers: int) -> None:
    file = Path(partition.columns["y"].filename)  # type: ignore[attr-defined]
    data = bytearray(file.read_bytes())
    data[-8 * 2] ^= 1  # of the last row but one
    file.write_bytes(data)
    made: list[Any] = []
    with pytest.raises(
        DamagedData, match=r"y\.npy of column 'y' has changed in 1 row of a batch \(9\)"
    ) as caught:
        made.extend(batches(partition, np.arange(ROWS), LoaderSettings(batch_size=4, workers=workers)))
    assert len(made) == (2 if workers else 0), "without workers small batches are made together"
    assert partition.damage == [caught.value]
    others = batches(partition, np.arange(ROWS), LoaderSettings(4), part=lambda _rows: slice(1))
    assert len(list(others)) == 3, "of ranks that do not take it"
