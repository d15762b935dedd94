"""A recipe made tiny."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cerebro_elastic.recipes import Recipe, load_recipe
from cerebro_elastic.runs.exactness.check_configs import representative_configs, small_jobs
from cerebro_elastic.training.unit_runner import make_task
from support.prepared import prepare


def test_the_first_config_and_those_with_another_choice_stand_for_all() -> None:
    points = [
        {"lr": lr, "kind": kind, "width": width}
        for lr in (0.1, 0.01)
        for kind in ("a", "b", "c")
        for width in (1, 2)
    ]
    chosen = representative_configs(points, 10)
    assert chosen[0] == points[0]
    assert {point["kind"] for point in chosen} == {"a", "b", "c"}
    assert {point["width"] for point in chosen} == {1, 2}
    assert len(chosen) == 3, "one point may show two new values"
    assert [point["kind"] for point in representative_configs(points, 2)] == ["a", "b"], "bounded"
    rates = [{"lr": 0.1, "decay": 0.0}, {"lr": 0.2, "decay": 0.0}, {"lr": 0.2, "decay": 0.1}]
    assert representative_configs(rates, 10) == [rates[0], rates[2]], "two may disturb one another"
    assert representative_configs(rates, 1) == representative_configs([*rates[:1] * 2], 10) == rates[:1]
    assert representative_configs([], 10) == []
    flags = [{"deep": False, "layers": [1]}, {"deep": True, "layers": [1]}, {"deep": False, "layers": [2]}]
    assert representative_configs(flags, 10) == flags


def recipe_of(tmp_path: Path, rows: int, partitions: int, batch_size: int) -> Recipe:
    columns = {"x": np.arange(rows * 2, dtype=np.float32).reshape(rows, 2), "y": np.arange(rows)}
    prepare(lambda: columns, str(tmp_path / "data"), partitions=partitions, seed=0, valid=0.25)
    return load_recipe(
        {
            "name": "tiny",
            "task": {"kind": "torch", "model_fn": "torch.nn:Linear", "loss": "mse_loss", "optimizer": "SGD"},
            "data": {"url": str(tmp_path / "data"), "batch_size": batch_size},
            "search": {"space": {"lr": [0.1]}},
        }
    )


@pytest.mark.parametrize(
    ("rows", "partitions", "size", "expected"),
    [
        (400, 3, 10, (30, 30)),  # of 100 each: three full batches
        (404, 3, 10, (21, 21)),  # of 101 each: the last batch is as short as it really is
        (40, 3, 10, (10, 10)),  # of 10 each: all
        (400, 1, 10, (30, 30)),  # of the only one, a part for each
        (4, 1, 10, (2, 1)),
    ],
)
def test_two_epochs_over_a_few_batches_of_real_rows(
    tmp_path: Path, rows: int, partitions: int, size: int, expected: tuple[int, int]
) -> None:
    recipe = recipe_of(tmp_path, rows, partitions, size)
    jobs = small_jobs(make_task(recipe), recipe, str(tmp_path / "data"), {"lr": 0.1}, 3, "cpu")
    assert [job.unit.partition for job in jobs] == [0, 1, 1, 0]
    assert [job.last for job in jobs] == [False, True, False, True]
    assert [bool(job.validation) for job in jobs] == [False, True, False, True]
    assert jobs[0].rows == expected
    assert tuple(job.partition.rows for job in jobs[:2]) == expected
    for job in jobs[:2]:
        columns = job.partition.columns
        assert len(columns["y"]) == job.partition.rows
        assert np.array_equal(columns["x"][:, 0], columns["y"] * 2), "rows stay together"
    assert not set(jobs[0].partition.columns["y"]) & set(jobs[1].partition.columns["y"])
