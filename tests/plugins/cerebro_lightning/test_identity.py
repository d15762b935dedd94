"""Training as units is bit-identical to one ordinary ``Trainer.fit``."""

from __future__ import annotations

import dataclasses
from functools import partial
from pathlib import Path

import pytest
from lightning_harness import ORDERS, Case, differences, ordinary_fit, outcome, units

from cerebro_elastic.hop.checkpoint import save

STOP = {"class": "EarlyStopping", "args": {"monitor": "val_loss", "patience": 0, "min_delta": 10.0}}

case = partial(Case, orders=ORDERS[:2])
"""Two epochs: what a unit carries is used within an epoch and in the next one. Three where something happens
in the third."""
CASES = {
    "onecycle, accumulating": case(
        "OneCycle", trainer={"accumulate_grad_batches": 2}, callbacks=["LearningRateMonitor"]
    ),
    "accumulation schedule": Case(
        "Net", callbacks=[{"class": "GradientAccumulationScheduler", "args": {"scheduling": {1: 2, 2: 4}}}]
    ),
    "two optimizers by hand": case("Gan"),
    "plateau on validation": Case("Plateau", hparams={"lr": 1.5}),
    "early stopping": Case("Net", callbacks=[STOP]),
    "torchmetrics": case("Metrics"),
    "logging everywhere": case("Logging", trainer={"log_every_n_steps": 1}),
    "validation every other epoch": Case(
        "Logging", trainer={"check_val_every_n_epoch": 2}, orders=(*ORDERS, ORDERS[0])
    ),
    "without validation": case("Net", validates=False, hparams={"lr": 0.05, "width": 5}),
    "plain attributes": case("Attributes"),
    "mixed precision, clipping by value": case(
        "StepLR",
        trainer={"precision": "bf16-mixed", "gradient_clip_val": 0.01, "gradient_clip_algorithm": "value"},
    ),
    "of pytorch_lightning": case("pytorch_zoo:Net"),
    "made by a class method, with callbacks that show": case(
        "BringsCallbacks.wide", callbacks=["TQDMProgressBar", "ModelCheckpoint"]
    ),
    "objects in its checkpoint": case("SavesObjects"),
    "noisy": case("Dropout", trainer={"accumulate_grad_batches": 4}, callbacks=["EMAWeightAveraging"]),
}


PARTS = {(0, 0): (2,), (0, 2): (1,), (1, 2): (1, 3), (2, 0): (2,)}
"""Cuts in an epoch's first and last units, beside and across groups of accumulated batches."""
EACH_BATCH = {
    (e, k): range(1, (4, 3, 2)[index]) for e, order in enumerate(ORDERS) for k, index in enumerate(order)
}


@pytest.mark.parametrize("name", CASES)
def test_units_some_of_them_in_parts_equal_one_ordinary_fit(name: str) -> None:
    expected = ordinary_fit(CASES[name])
    found = outcome(list(units(CASES[name], PARTS)))
    for part in dataclasses.fields(expected):
        assert not differences(getattr(expected, part.name), getattr(found, part.name), part.name)


@pytest.mark.parametrize("name", ["noisy", "torchmetrics"])
def test_units_batch_by_batch_leave_the_checkpoint_of_units_in_one_go(name: str, tmp_path: Path) -> None:
    whole, parts = list(units(CASES[name])), list(units(CASES[name], EACH_BATCH))
    ends = [save(done[-1][1].state, str(tmp_path / at)) for at, done in (("1", whole), ("n", parts))]
    assert ends[0].digest == ends[1].digest
    assert not differences(vars(outcome(whole)), vars(outcome(parts)))
    for count in ("samples", "batches"):
        assert sum(getattr(r, count) for _, r in whole) == sum(getattr(r, count) for _, r in parts)


def test_the_sanity_check_that_units_leave_out_has_no_effect_but_its_hooks() -> None:
    checked = ordinary_fit(Case("Dropout", sanity_steps=2))
    found = outcome(list(units(Case("Dropout"))))
    assert not differences({**vars(checked), "calls": []}, {**vars(found), "calls": []})
    assert len(checked.calls) > len(found.calls)
