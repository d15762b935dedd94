"""A unit that is stopped at batch boundaries and taken up again is the unit done in one go."""

from __future__ import annotations

import copy
import functools
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from cerebro_elastic.core.model.units import Unit
from cerebro_elastic.data.reading.loader_settings import LoaderSettings
from cerebro_elastic.data.reading.partition import Partition
from cerebro_elastic.hop import checkpoint
from cerebro_elastic.hop.checkpoint.tree import flatten, unflatten
from cerebro_elastic.recipes import TorchSection
from cerebro_elastic.training import job_batches
from cerebro_elastic.training.functions import FunctionTask
from cerebro_elastic.training.task import Stopped, TaskState, UnitJob, UnitResult
from support.parts import in_parts

pytestmark = pytest.mark.usefixtures("imports_as_found")

ROWS, BATCH = (14, 9, 11), 3
"""Five, three and four batches; the last of the first and of the third is short."""
ORDERS = ((2, 0, 1), (0, 1, 2))


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 2))


def one_cycle(steps: int, lr: float = 0.1) -> Any:
    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    return model, optimizer, torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=lr, total_steps=steps)


def plateau(lr: float = 0.1) -> Any:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    return model, optimizer, torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, threshold=0.5)


def noisy(batch: Any) -> Any:
    x, y = batch
    return x + 0.1 * torch.from_numpy(np.random.standard_normal(x.shape).astype("float32")), y


def train(model: Any, optimizer: Any, batches: Any) -> None:
    for x, y in batches:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()


def train_at_all_costs(model: Any, optimizer: Any, batches: Any) -> None:
    try:
        train(model, optimizer, batches)
    except:  # noqa: E722 - as one finds it
        optimizer.zero_grad()


def task(**section: Any) -> FunctionTask:
    named = {k: f"{__name__}:{v.__name__}" if callable(v) else v for k, v in section.items()}
    return FunctionTask(TorchSection(**{"loss": "cross_entropy", **named}), Path(__file__).parent)


@functools.cache
def partition(index: int, rows: int) -> Partition:
    generator = np.random.default_rng(index)
    x = generator.standard_normal((rows, 3)).astype(np.float32)
    return Partition(index, rows, {"x": x, "y": (x.sum(1) > 0).astype(np.int64)})


def job(epoch: int, position: int, state: TaskState | None, **changes: Any) -> UnitJob:
    order = ORDERS[epoch]
    ends_epoch = position + 1 == len(order)
    return UnitJob(
        unit=Unit("c0", epoch, order[position]),
        hparams=changes.pop("hparams", {}),
        seed=5,
        epochs=len(ORDERS),
        visited=order[:position],
        rows=ROWS,
        partition=partition(order[position], ROWS[order[position]]),
        validation=[partition(9, 7)] if ends_epoch else (),
        loader=LoaderSettings(BATCH),
        state=state,
        **changes,
        device="cpu",
    )


def hop(state: TaskState) -> TaskState:
    """The way of a checkpoint."""
    after: TaskState = unflatten(*flatten(copy.deepcopy(state)))
    return after


def digest(state: TaskState) -> str:
    with tempfile.TemporaryDirectory() as folder:
        return checkpoint.save(state, f"{folder}/state").digest


TASKS: dict[str, Callable[[], FunctionTask]] = {
    "steps of the scheduler, clipping, random batches": lambda: task(
        model_fn=one_cycle, step_scheduler="step", clip=0.05, input_fn=noisy
    ),
    "a scheduler that watches the validation": lambda: task(
        model_fn=plateau, metrics={"accuracy": "accuracy"}
    ),
}


@functools.cache
def in_one_go(name: str) -> list[tuple[UnitJob, UnitResult, str]]:
    done: list[tuple[UnitJob, UnitResult, str]] = []
    for epoch, order in enumerate(ORDERS):
        for position in range(len(order)):
            whole = job(epoch, position, hop(done[-1][1].state) if done else None)
            result = TASKS[name]().train(replace(whole, state=copy.deepcopy(whole.state)))
            done.append((whole, result, digest(result.state)))
    return done


@st.composite
def cuts(draw: st.DrawFn) -> tuple[str, int, list[int]]:
    """A task, one of its units, and the batches after which it is stopped."""
    name, unit = draw(st.sampled_from(sorted(TASKS))), draw(st.integers(0, 5))
    batches = in_one_go(name)[unit][1].batches
    return name, unit, sorted(draw(st.sets(st.integers(1, batches - 1))))


@settings(max_examples=25)
@given(cuts())
def test_wherever_a_unit_is_cut_it_ends_the_same(cut: tuple[str, int, list[int]]) -> None:
    name, unit, stops = cut
    whole, expected, its_digest = in_one_go(name)[unit]
    given = replace(whole, state=copy.deepcopy(whole.state))
    parts = in_parts(lambda part: TASKS[name]().train(part), given, stops, hop)
    assert digest(parts[-1].state) == its_digest
    assert parts[-1].metrics == expected.metrics
    assert [row for part in parts for row in part.log] == expected.log
    assert sum(part.samples for part in parts) == expected.samples
    assert sum(part.batches for part in parts) == expected.batches


def test_functions_may_depend_on_whether_rows_are_for_training() -> None:
    asked: list[bool] = []

    def cropped(batch: Any, training: bool) -> Any:
        asked.append(training)
        return batch

    unit = replace(job(0, 2, None), loader=LoaderSettings(BATCH, transform=cropped))
    trained = list(job_batches.training_batches(unit))
    assert asked == [True] * len(trained)
    validated = list(job_batches.natural_batches(unit, unit.validation))
    assert asked == [True] * len(trained) + [False] * len(validated)
    plain = LoaderSettings(BATCH, collate=torch.stack, transform=noisy)  # no signature; another one
    assert plain.of_phase(training=True, epoch=0) == plain


@pytest.mark.parametrize("train_fn", [train, train_at_all_costs])
def test_a_pass_of_the_users_is_given_up(train_fn: Any) -> None:
    own = task(model_fn=plateau, train_fn=train_fn)
    assert not own.splits
    with pytest.raises(Stopped) as stopped:
        own.train(job(0, 0, None, stop=lambda done: done == 2))
    assert stopped.value.batches == 2
    assert own.train(job(0, 0, None)).whole


@pytest.mark.parametrize("stops", [(), (3,)])
def test_only_a_whole_unit_reports_values_that_are_not_finite(stops: tuple[int, ...]) -> None:
    wild = job(0, 0, None, hparams={"lr": 1e38})
    *parts, whole = in_parts(task(model_fn=plateau).train, wild, stops, hop)
    assert [part.not_finite for part in parts] == [None] * len(stops)
    assert whole.not_finite == "the metric train_loss is nan"
