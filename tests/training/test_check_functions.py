"""``cerebro check`` of plain PyTorch: units against one model that is never taken apart."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import checked_functions
import pytest
from checked_functions import checked

from cerebro_elastic.recipes import TorchSection
from cerebro_elastic.runs.exactness.outcome import CheckOutcome, Exactness
from cerebro_elastic.training.parallel.rank_pool import Ranks

pytestmark = pytest.mark.cluster
ME = checked_functions.__name__


def section(**values: Any) -> TorchSection:
    return TorchSection(model_fn=f"{ME}:model_fn", loss="cross_entropy").model_copy(update=values)


def check(process: Ranks, task: TorchSection, folder: Path) -> Exactness:
    [found], _ = process.alone(0, checked, task, folder, [0.1])
    assert isinstance(found, Exactness)
    return found


@pytest.mark.parametrize(
    "task",
    [
        section(),
        section(model_fn=f"{ME}:counting_fn"),
        section(loss=None, train_fn=f"{ME}:train_fn", step_scheduler="epoch"),
    ],
    ids=["ready-made step", "attributes", "train_fn"],
)
def test_units_equal_one_model_that_is_never_taken_apart(
    clean_process: Ranks, task: TorchSection, tmp_path: Path
) -> None:
    found = check(clean_process, task, tmp_path)
    assert found.outcome is CheckOutcome.EQUAL, found.story
    assert found.compared.keys() >= {"weight", "optimizer", "generator", "logged", "metric"}


def test_state_that_stays_behind_is_named(clean_process: Ranks, tmp_path: Path) -> None:
    found = check(clean_process, section(model_fn=f"{ME}:asking_fn"), tmp_path)
    assert found.outcome is CheckOutcome.DIFFERS
    assert found.story.startswith("attribute calls")
    assert "unit 2" in found.story


def test_the_effect_of_one_config_on_another_is_found_in_one_process(
    clean_process: Ranks, tmp_path: Path
) -> None:
    rates = (0.1, 0.5)
    found, stories = clean_process.alone(0, checked, section(model_fn=f"{ME}:scaled_fn"), tmp_path, rates)
    assert [each.outcome for each in found] == [CheckOutcome.EQUAL] * 2
    assert stories.keys() == {0}, "the second sets it itself"
    assert stories[0].startswith("in one process with other configs, as on a rank of a run, ")
    assert "unit 2" in stories[0]
    found, stories = clean_process.alone(0, checked, section(), tmp_path, rates)
    assert [each.outcome for each in found] == [CheckOutcome.EQUAL] * 2
    assert stories == {}
    assert not list(tmp_path.iterdir())


NOISE = {"transform": checked_functions.noisy}
OPENS = {"decode": {"x": checked_functions.opened}, "augment": {"x": checked_functions.augmented}}
DIFFERS, CHANCE = CheckOutcome.DIFFERS, CheckOutcome.NOT_DETERMINISTIC


@pytest.mark.parametrize(
    ("loader", "outcome", "story"),
    [
        (NOISE, CheckOutcome.EQUAL, ""),
        ({**NOISE, "workers": 1}, CheckOutcome.EQUAL, ""),
        (OPENS, CheckOutcome.EQUAL, ""),
        (
            {"transform": checked_functions.counted, "workers": 1},
            DIFFERS,
            f"{ME}.COUNT changed",
        ),
        ({"decode": {"x": checked_functions.opened_at_random}}, DIFFERS, "the batches differ, "),
        (
            {"transform": checked_functions.timed},
            CHANCE,
            "two ordinary fits differ from one another (batch, ",
        ),
    ],
    ids=["noise", "noise in a worker", "augmented", "counted", "kept by mistake", "a clock"],
)
def test_batches_are_compared_with_those_of_a_loader_of_ones_own(
    clean_process: Ranks, loader: Mapping[str, Any], outcome: CheckOutcome, story: str, tmp_path: Path
) -> None:
    [found], _ = clean_process.alone(0, checked, section(), tmp_path, [0.1], loader)
    assert found.outcome is outcome, found.story
    assert story in found.story
