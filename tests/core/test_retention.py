"""Retention: the last two and the best stay, the rest goes."""

from __future__ import annotations

import math
from typing import Literal

import pytest

from cerebro_elastic.core.history.view import ConfigHistory
from cerebro_elastic.core.model.attempts import Visit
from cerebro_elastic.core.model.configs import Config
from cerebro_elastic.core.model.run import Plan
from cerebro_elastic.core.model.units import CheckpointRef, Phase, Unit
from cerebro_elastic.recipes import Objective


def ref(epoch: int, k: int) -> CheckpointRef:
    return CheckpointRef(f"memory://c/{epoch}-{k}", f"digest {epoch}-{k}", 1)


def visit(epoch: int, k: int, phase: Phase = Phase.TRAIN, **metrics: float) -> Visit:
    unit = Unit("c0", epoch, k, phase)
    return Visit(unit, k, "node", 1, None, ref(epoch, k), 10, 1, 1.0, 0.0, started=0.0, metrics=metrics)


def epochs(*losses: float | None) -> list[Visit]:
    """Epochs of two units, the second of which logs ``loss``."""
    log = []
    for epoch, loss in enumerate(losses):
        log += [visit(epoch, 0, loss=-100.0), visit(epoch, 1, **({} if loss is None else {"loss": loss}))]
    return log


PLAN = Plan("run", partitions=2, epochs=9)


def gone(visits: list[Visit], plan: Plan = PLAN, mode: Literal["min", "max"] = "min") -> list[str]:
    kept = ConfigHistory.of(Config("c0", {}), visits, plan).kept(Objective(metric="loss", mode=mode))
    written = dict.fromkeys(visit.output.url for visit in visits if visit.unit.phase is Phase.TRAIN)
    return [url.removeprefix("memory://c/") for url in written if url not in kept]


def test_two_checkpoints_or_fewer_are_all_kept() -> None:
    assert gone([]) == []
    assert gone(epochs(1.0)[:1]) == []
    assert gone(epochs(1.0)) == []


def test_the_last_the_previous_and_the_best_epoch_end_are_kept() -> None:
    assert gone(epochs(3.0, 1.0, 2.0)) == ["0-0", "0-1", "1-0"]
    assert gone(epochs(3.0, 1.0, 2.0), mode="max") == ["0-0", "1-0", "1-1"]


def test_a_metric_within_an_epoch_does_not_count() -> None:
    assert gone([*epochs(3.0, 1.0), visit(2, 0, loss=-100.0)]) == ["0-0", "0-1", "1-0"]


def test_of_equal_epochs_the_earliest_is_best() -> None:
    assert gone(epochs(1.0, 1.0, 2.0)) == ["0-0", "1-0", "1-1"]


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf, None])
def test_an_epoch_without_a_finite_metric_is_never_best(odd: float | None) -> None:
    assert gone(epochs(odd, 5.0, None)) == ["0-0", "0-1", "1-0"]
    assert gone(epochs(odd, 5.0, None), mode="max") == ["0-0", "0-1", "1-0"]
    assert gone(epochs(None, None, None)) == ["0-0", "0-1", "1-0", "1-1"]


def test_evaluations_give_the_metric_of_the_checkpoint_that_they_evaluated() -> None:
    def epoch(number: int, loss: float) -> list[Visit]:
        trained = visit(number, 0)
        return [trained, visit(number, 0, Phase.EVALUATE, loss=loss)]

    plan = Plan("run", partitions=1, epochs=9, evaluations=1)
    assert gone([*epoch(0, 3.0), *epoch(1, 1.0), *epoch(2, 2.0), *epoch(3, 4.0)], plan) == ["0-0"]
