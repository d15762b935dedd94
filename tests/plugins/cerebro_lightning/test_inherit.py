"""A unit that begins with another config's state: its own hyper-parameters, the other's everything else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from lightning_harness import FOLDER, Case, hop, job

from cerebro_elastic.training.task import TaskState
from cerebro_lightning import LightningTask
from support.same import assert_same


def parents_state(case: Case) -> TaskState:
    return hop(LightningTask(case.section, FOLDER).train(job(case, 0, 0, None)).state)


def childs(case: Case, state: TaskState, inherits: dict[str, Any] | None, **hparams: Any) -> TaskState:
    unit = replace(job(case, 0, 1, state), hparams=hparams, inherits=inherits)
    return LightningTask(case.section, FOLDER).train(unit).state


@pytest.mark.parametrize("module", ["Net", "OneCycle"])
def test_a_child_with_the_same_hyper_parameters_goes_on_as_its_parent(module: str) -> None:
    case = Case(module, hparams={"lr": 0.1})
    state = parents_state(case)
    assert_same(childs(case, hop(state), {"lr": 0.1}, lr=0.1), childs(case, hop(state), None, lr=0.1))


def test_a_childs_rate_is_its_own_and_its_weights_and_moments_are_inherited() -> None:
    case = Case("Net", hparams={"lr": 0.1})
    state = parents_state(case)
    still = childs(case, hop(state), {"lr": 0.1}, lr=0.0)
    assert_same(still["state_dict"], state["state_dict"])
    (optimizer,) = still["optimizer_states"]
    assert optimizer["param_groups"][0]["lr"] == 0.0
    plain = still["cerebro"]["attributes"][0]["attributes"][""]
    assert plain["lr"] == 0.0
    assert still["global_step"] > state["global_step"]
    another = childs(case, hop(state), {"lr": 0.1}, lr=0.01)
    unaware = childs(case, hop(state), None, lr=0.01)
    assert another["optimizer_states"][0]["param_groups"][0]["lr"] == 0.01
    assert unaware["optimizer_states"][0]["param_groups"][0]["lr"] == 0.1, "a state bears its own rate"
