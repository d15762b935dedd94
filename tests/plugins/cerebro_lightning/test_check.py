"""``cerebro check`` distinguishes modules that hop exactly from modules that cannot."""

from __future__ import annotations

import functools
import os
import re
import signal
import time
from collections import deque
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from lightning_harness import FOLDER, Case, job
from lightning_zoo import Net
from test_identity import CASES
from torch import Tensor

from cerebro_elastic.runs.exactness.compare import ExactnessCheck
from cerebro_elastic.runs.exactness.outcome import CheckOutcome, Exactness
from cerebro_lightning import LightningTask
from cerebro_lightning.section import LightningSection

HERE = Path(__file__).parent
SECONDS = 120.0


def check(case: Case, folder: Path, section: LightningSection | None = None) -> Exactness:
    case = replace(case, orders=((0, 1), (1, 0)))
    jobs = [replace(job(case, epoch, place, None), rows=(14, 10)) for epoch in range(2) for place in range(2)]
    root = FOLDER if section is None else HERE
    return ExactnessCheck(
        LightningTask(section or case.section, root), jobs, root, str(folder), SECONDS
    ).result()


EXACT = ("dropout and noise", "two optimizers by hand", "torchmetrics")


@pytest.mark.parametrize("name", EXACT)
def test_modules_that_hop_exactly_pass(name: str, tmp_path: Path) -> None:
    found = check(CASES[name], tmp_path)
    assert found.outcome is CheckOutcome.EQUAL, found.story
    assert found.compared.keys() >= {"counter", "weight", "optimizer", "generator", "attribute", "logged"}
    assert "loss" in found.logged
    assert not list(tmp_path.iterdir())


class Planted(Net):
    """Its loss depends on something that is no part of the config's state."""

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return super().training_step(batch, batch_idx) * (1 + 0.01 * float(self.something()))

    def something(self) -> float:
        raise NotImplementedError


class InALibrary(Planted):
    def something(self) -> float:
        library: Any = signal
        library.seen = getattr(library, "seen", 0) + 1
        return library.seen


class InTheEnvironment(Planted):
    def something(self) -> float:
        os.environ["PLANTED_STEPS"] = str(int(os.environ.get("PLANTED_STEPS", "0")) + 1)
        return int(os.environ["PLANTED_STEPS"])


@functools.cache
def first(_: str) -> list[int]:
    """The entries of a cache are no object's attribute."""
    return [0]


class InACache(Planted):
    def something(self) -> float:
        first("calls")[0] += 1
        return first("calls")[0]


class OfTheTrainer(Planted):
    def something(self) -> float:
        return len(type(self.trainer.strategy).__name__)


class OfTheProcess(Planted):
    def something(self) -> float:
        return os.getpid() % 1000


class InAFile(Planted):
    def something(self) -> float:
        with Path(os.environ["PLANTED_FILE"]).open("a") as file:
            file.write("x")
            return file.tell()


class LogsAClock(Net):
    def on_train_epoch_end(self) -> None:
        self.ended = time.monotonic()
        self.log("seconds", time.monotonic() % 10)


class RaisesInUnits(Net):
    def on_train_batch_end(self, *_: Any) -> None:
        if type(self.trainer.strategy).__name__ == "NamedStateStrategy":
            self.made_late = SimpleNamespace(call=lambda: deque())


class Raises(Net):
    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return super().training_step((batch[0][:, :3], batch[1]), batch_idx)


class Dies(Net):
    def on_train_batch_end(self, *_: Any) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


def planted(module: type, folder: Path) -> Exactness:
    case = Case("Net")
    return check(
        case, folder, case.section.model_copy(update={"module": f"{Path(__file__).stem}:{module.__name__}"})
    )


@pytest.fixture(autouse=True)
def _file(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLANTED_FILE", str(tmp_path_factory.mktemp("planted") / "file"))


@pytest.mark.parametrize("module", [InALibrary, InTheEnvironment, InACache])
def test_state_that_stays_behind_at_a_hop_is_found_at_the_first_batch_after_it(
    module: type, tmp_path: Path
) -> None:
    found = planted(module, tmp_path)
    assert found.outcome is CheckOutcome.DIFFERS
    assert "after batch 1 of unit 2 (epoch 0, partition 1)" in found.story
    assert "then the config hopped" in found.story


def test_a_difference_from_the_first_batch_on_is_not_blamed_on_a_hop(tmp_path: Path) -> None:
    found = planted(OfTheTrainer, tmp_path)
    assert found.outcome is CheckOutcome.DIFFERS
    assert "after batch 1 of unit 1" in found.story
    assert "before the first hop" in found.story


@pytest.mark.parametrize("module", [OfTheProcess, InAFile])
def test_a_module_that_differs_from_itself_is_no_fault_of_hopping(module: type, tmp_path: Path) -> None:
    found = planted(module, tmp_path)
    assert found.outcome is CheckOutcome.NOT_DETERMINISTIC
    assert "deterministic: true" in found.story


def test_a_clock_that_is_only_noted_is_no_harm(tmp_path: Path) -> None:
    found = planted(LogsAClock, tmp_path)
    assert found.outcome is CheckOutcome.VARIES
    assert "seconds" in found.story


def test_a_refusal_by_units_alone_is_reported(tmp_path: Path) -> None:
    found = planted(RaisesInUnits, tmp_path)
    assert found.outcome is CheckOutcome.REFUSED
    assert "made_late" in found.story


def test_an_error_of_the_users_code_shows_the_users_lines_alone(tmp_path: Path) -> None:
    found = planted(Raises, tmp_path)
    assert found.outcome is CheckOutcome.FAILED
    first, *frames = found.story.splitlines()
    assert re.match(r"RuntimeError: (addmm: )?mat1 and mat2 shapes cannot be multiplied", first)
    assert frames
    assert all(frame.startswith(("  zoos/lightning_zoo.py:", "  test_check.py:")) for frame in frames)


def test_a_process_that_dies_is_no_verdict(tmp_path: Path) -> None:
    found = planted(Dies, tmp_path)
    assert found.outcome is CheckOutcome.UNKNOWN
    assert "SIGKILL" in found.story
