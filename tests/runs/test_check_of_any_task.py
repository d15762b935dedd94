"""``cerebro check`` of a task that has no ordinary fit: its units in one process are what they are compared
with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cerebro_elastic.extending.tasks import HParams, UnitJob, UnitResult, job_batches
from cerebro_elastic.runs.exactness.compare import ExactnessCheck
from cerebro_elastic.runs.exactness.outcome import CheckedConfig, CheckOutcome
from cerebro_elastic.testing.task_contract import TaskContract

SEEN: list[int] = []


class Sums:
    """Adds up what it sees; a ``forgetful`` one counts its batches outside of the state."""

    evaluates, splits = False, True

    def __init__(self, *, forgetful: bool) -> None:
        self._forgetful = forgetful

    def check(self, hparams: HParams) -> None: ...

    def train(self, job: UnitJob) -> UnitResult:
        total = job.state["total"] if job.state else np.zeros(4, np.float32)
        done = job.skip
        for x, _ in job_batches.training_batches(job):
            SEEN.append(len(x))
            total = total + x.sum(0) * (len(SEEN) if self._forgetful else 1)
            done += 1
            if job.stop(done):
                break
        whole = done == job_batches.unit_batches(job)
        return UnitResult({"total": total}, 1, done - job.skip, {"loss": float(total.sum())}, whole=whole)

    def evaluate(self, job: UnitJob) -> UnitResult:
        raise NotImplementedError


class _Jobs(TaskContract):
    arrays = "numpy"


def jobs() -> Sequence[UnitJob]:
    return [_Jobs().job(number, None) for number in range(6)]


@pytest.mark.parametrize("forgetful", [False, True])
def test_state_that_does_not_hop_is_named(forgetful: bool, tmp_path: Path) -> None:
    SEEN.clear()
    task: Any = Sums(forgetful=forgetful)
    found = ExactnessCheck(task, jobs(), tmp_path, str(tmp_path), 240.0).result()
    text = CheckedConfig({"lr": 0.1}, found).text
    if forgetful:
        assert found.outcome is CheckOutcome.DIFFERS
        assert text.startswith("lr=0.1: units do not equal training in one process: state total differs")
        assert "unit 2" in found.story
    else:
        assert found.outcome is CheckOutcome.EQUAL, found.story
        assert text == "lr=0.1: units equal training in one process, bit for bit"
        assert found.logged == ["loss"], "the objective is looked for among them"
