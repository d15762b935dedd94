"""A unit's result depends on its job alone, and it leaves its process as it was."""

from __future__ import annotations

import copy
import logging
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from lightning.fabric.utilities.rank_zero import rank_zero_only
from lightning_harness import FOLDER, Case, differences, job, units
from lightning_ranks import CHOICES, places, some_units

from cerebro_elastic.hop.checkpoint import load, save
from cerebro_elastic.hop.generators import rng
from cerebro_elastic.training.parallel.rank_pool import Ranks
from cerebro_elastic.training.task import TaskState
from cerebro_lightning import LightningTask

NOISY = Case("Dropout", trainer={"accumulate_grad_batches": 2}, callbacks=["lightning_zoo:Average"])


def task_of(case: Case) -> LightningTask:
    return LightningTask(case.section, FOLDER)


def middle(case: Case) -> TaskState:
    """The state after the first unit."""
    return task_of(case).train(job(case, 0, 0, None)).state


def test_a_fresh_process_goes_on_to_the_same_result(tmp_path: Path) -> None:
    before, *rest = units(NOISY)
    ref = save(before[1].state, str(tmp_path / "middle"))
    others = range(1, len(places(NOISY)))
    with Ranks(1, seconds=120.0) as fresh:
        _, end = fresh.alone(0, some_units, NOISY, others, CHOICES["single"], ref, str(tmp_path), ())
    assert not differences(rest[-1][1].state, load(end))


def test_the_input_state_is_not_changed() -> None:
    case = Case("Attributes", callbacks=["lightning_zoo:Average", "lightning_zoo:Ema"])
    state = middle(case)
    before = copy.deepcopy(dict(state))
    task_of(case).train(job(case, 0, 1, state))
    assert not differences(before, dict(state))


def test_the_process_is_as_it_was() -> None:
    torch.manual_seed(3)
    case = Case("Dropout", trainer={"deterministic": True, "benchmark": True})
    before = (rng.capture(), torch.backends.cudnn.benchmark, signal.getsignal(signal.SIGTERM))
    levels = [logging.getLogger(name).level for name in ("lightning.pytorch", "lightning.fabric")]
    task_of(case).check({})
    middle(case)
    after = (rng.capture(), torch.backends.cudnn.benchmark, signal.getsignal(signal.SIGTERM))
    assert not differences(before, after)
    assert not torch.are_deterministic_algorithms_enabled()
    assert levels == [logging.getLogger(name).level for name in ("lightning.pytorch", "lightning.fabric")]


def test_a_rank_beside_others_trains_on_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case("Dropout", trainer={"log_every_n_steps": 1}, callbacks=["lightning_zoo:OnRankZero"])
    expected = middle(case)
    for name, value in (("RANK", "1"), ("LOCAL_RANK", "1"), ("WORLD_SIZE", "2"), ("GROUP_RANK", "0")):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "run")
    monkeypatch.setattr(rank_zero_only, "rank", 1, raising=False)
    result = task_of(case).train(job(case, 0, 0, None))
    assert not differences(expected, result.state)
    assert len(result.log) == result.batches


def test_an_exception_of_the_module_is_its_own() -> None:
    with pytest.raises(ValueError, match="stop"):
        middle(Case("Breaks"))


def test_the_ranks_signal_handler_stops_the_unit() -> None:
    case = Case("Terminated")
    asked: list[int] = []
    found = signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
    try:
        handler = signal.getsignal(signal.SIGTERM)
        part = task_of(case).train(replace(job(case, 0, 0, None), stop=lambda _: bool(asked)))
        assert signal.getsignal(signal.SIGTERM) is handler
        assert (asked, part.whole, part.batches) == ([1], False, 2)
        rest = replace(job(case, 0, 0, part.state), skip=2)
        whole = task_of(case).train(job(case, 0, 0, None))
        assert not differences(whole.state, task_of(case).train(rest).state)
        assert whole.whole, "a signal alone stops nothing"
    finally:
        signal.signal(signal.SIGTERM, found)
