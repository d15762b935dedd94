"""``cerebro check`` distinguishes modules that hop exactly from modules that cannot."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from lightning_harness import Case
from lightning_ranks import checked
from test_identity import CASES

from cerebro_elastic.runs.exactness.outcome import CheckOutcome, Exactness
from cerebro_elastic.training.parallel.rank_pool import Ranks

pytestmark = pytest.mark.cluster
EXACT = ("two optimizers by hand", "torchmetrics")


def planted(clean_process: Ranks, module: str, folder: Path) -> Exactness:
    found: Exactness = clean_process.alone(0, checked, Case(f"check_zoo:{module}"), folder)
    return found


@pytest.mark.parametrize("name", EXACT)
def test_modules_that_hop_exactly_pass(clean_process: Ranks, name: str, tmp_path: Path) -> None:
    found = clean_process.alone(0, checked, CASES[name], tmp_path)
    assert found.outcome is CheckOutcome.EQUAL, found.story
    assert found.compared.keys() >= {"counter", "weight", "optimizer", "generator", "attribute", "logged"}
    assert "loss" in found.logged
    assert not list(tmp_path.iterdir())


def test_state_that_stays_behind_at_a_hop_is_found_at_the_first_batch_after_it(
    clean_process: Ranks, tmp_path: Path
) -> None:
    found = planted(clean_process, "InALibrary", tmp_path)
    assert found.outcome is CheckOutcome.DIFFERS
    assert "after batch 1 of unit 2 (epoch 0, partition 1)" in found.story
    assert "then the config hopped" in found.story


def test_a_difference_from_the_first_batch_on_is_not_blamed_on_a_hop(
    clean_process: Ranks, tmp_path: Path
) -> None:
    found = planted(clean_process, "OfTheTrainer", tmp_path)
    assert found.outcome is CheckOutcome.DIFFERS
    assert "after batch 1 of unit 1" in found.story
    assert "before the first hop" in found.story


def test_a_module_that_differs_from_itself_is_no_fault_of_hopping(
    clean_process: Ranks, tmp_path: Path
) -> None:
    found = planted(clean_process, "OfTheProcess", tmp_path)
    assert found.outcome is CheckOutcome.NOT_DETERMINISTIC
    assert "deterministic: true" in found.story


def test_a_clock_that_is_only_noted_is_no_harm(clean_process: Ranks, tmp_path: Path) -> None:
    found = planted(clean_process, "LogsAClock", tmp_path)
    assert found.outcome is CheckOutcome.EQUAL
    assert "seconds" in found.story


def test_a_refusal_by_units_alone_is_reported(clean_process: Ranks, tmp_path: Path) -> None:
    found = planted(clean_process, "RaisesInUnits", tmp_path)
    assert found.outcome is CheckOutcome.FAILED
    assert found.story.startswith("in units, and not in one ordinary fit: ")
    assert "made_late" in found.story


def test_an_error_shows_the_users_lines_then_the_librarys_last(clean_process: Ranks, tmp_path: Path) -> None:
    found = planted(clean_process, "Raises", tmp_path)
    assert found.outcome is CheckOutcome.FAILED
    first, *frames, library = found.story.splitlines()
    assert re.match(r"RuntimeError: (addmm: )?mat1 and mat2 shapes cannot be multiplied", first)
    assert library.startswith("  torch/nn/modules/linear.py:")
    assert frames
    assert all(frame.startswith(("  lightning_zoo.py:", "  check_zoo.py:")) for frame in frames)


def test_a_process_that_dies_is_no_verdict(clean_process: Ranks, tmp_path: Path) -> None:
    found = planted(clean_process, "Dies", tmp_path)
    assert found.outcome is CheckOutcome.UNKNOWN
    assert "SIGKILL" in found.story
