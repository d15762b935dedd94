"""What the task accepts, returns, and refuses with a reason."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from lightning_harness import FOLDER, LOADER, TRAINING, Case, differences, hop, job, units

from cerebro_elastic.errors import TaskError
from cerebro_elastic.training.task import TaskState, UnitResult
from cerebro_lightning import LightningTask
from cerebro_lightning.section import LightningSection


def task(module: str = "Net", **parts: Any) -> LightningTask:
    section = Case(module, **parts).section
    return LightningTask(section.model_copy(update={"callbacks": section.callbacks[1:]}), FOLDER)


def train(case: Case, epoch: int = 0, position: int = 0, state: TaskState | None = None) -> UnitResult:
    return LightningTask(case.section, FOLDER).train(job(case, epoch, position, state))


def test_batch_size_sets_the_loader_and_reaches_modules_that_take_it() -> None:
    result = train(Case("Sized", hparams={"batch_size": 5, "lr": 0.2}))
    assert result.batches == 2
    assert result.samples == TRAINING[1].rows
    assert result.state["cerebro"]["attributes"][0]["attributes"][""]["batch_size"] == 5
    assert train(Case("Net", hparams={"batch_size": 3})).batches == 4


@pytest.mark.parametrize("loader", [{"shuffle": False}, {"layout": "dict"}, {"transform": lambda b: b[::-1]}])
def test_loader_settings_have_their_effect(loader: dict[str, Any]) -> None:
    case = Case("Net")
    settings = dataclasses.replace(LOADER, **loader)
    changed = dataclasses.replace(job(case, 0, 0, None), loader=settings)
    if "shuffle" not in loader:  # the module unpacks (x, y) in this order
        with pytest.raises((TypeError, AttributeError, RuntimeError)):
            LightningTask(case.section, FOLDER).train(changed)
        return
    result = LightningTask(case.section, FOLDER).train(changed)
    assert differences(train(case).state["state_dict"], result.state["state_dict"])


def test_stop_and_beat_work_through_lightnings_loops() -> None:
    case, asked, beats = Case("Net"), list[int](), list[None]()

    def stop(done: int) -> bool:
        asked.append(done)
        return False

    state = hop([result for _, result in units(case)][1].state)
    last = job(case, 0, 2, state)
    result = LightningTask(case.section, FOLDER).train(
        dataclasses.replace(last, stop=stop, beat=lambda: beats.append(None))
    )
    assert result.whole
    assert asked == [1], "two batches of training"
    assert len(beats) == 2 + 5, "and five of validation"
    assert task().splits


@pytest.mark.parametrize(
    ("case", "found"),
    [
        (Case("Net"), None),
        (Case("Net", hparams={"lr": 1e38}), "the metric loss is nan"),
        (Case("Diverges"), "the parameter net.0.weight has 48 of 48 values that are NaN or infinite"),
    ],
    ids=["fine", "a logged loss", "a loss that nobody logs"],
)
def test_a_value_that_is_not_finite_is_named(case: Case, found: str | None) -> None:
    assert train(case).not_finite == found
    part = dataclasses.replace(job(case, 0, 0, None), stop=lambda done: done == 2)
    assert LightningTask(case.section, FOLDER).train(part).not_finite is None, "only a whole unit reports it"


def test_the_best_module_comes_back_from_a_state() -> None:
    case = Case("Attributes", hparams={})
    *_, (unit, result) = units(case)
    module = LightningTask(case.section, FOLDER).load_module(case.hparams, hop(result.state), unit.seed)
    assert not differences(dict(module.state_dict()), dict(result.state["state_dict"]))
    assert module.scale == pytest.approx(0.9**3)


def test_optimizer_states_bear_the_names_of_parameters() -> None:
    saved = train(Case("Gan")).state["optimizer_states"]
    assert list(saved[0]["state"]) == ["generator.weight", "generator.bias"]
    assert saved[1]["param_groups"][0]["params"] == ["critic.weight", "critic.bias"]


@pytest.mark.parametrize(
    ("hparams", "message"),
    [
        (
            {"lrr": 0.1},
            r"Net takes no hyper-parameter 'lrr'; did you mean 'lr'\? choices: batch_size, lr, width",
        ),
        ({"batch_size": 0}, "batch_size is 0: it must be a whole number of at least 1"),
        ({"batch_size": 2.5}, "batch_size is 2.5"),
    ],
)
def test_hyper_parameters_are_checked(hparams: dict[str, Any], message: str) -> None:
    with pytest.raises(TaskError, match=message):
        task().check(hparams)


def test_a_searched_argument_cannot_be_fixed_too() -> None:
    section = LightningSection.model_construct(
        module="lightning_zoo:Net", args={"lr": 1.0}, trainer={}, callbacks=()
    )
    with pytest.raises(TaskError, match=r"lr: both in task\.args and searched"):
        LightningTask(section, FOLDER).check({"lr": 0.1})


@pytest.mark.parametrize(
    ("module", "message"),
    [
        ("lightning_zoo:NotLightning", "expected a class derived from LightningModule"),
        ("lightning_zoo:several_callbacks", "returned a list: it must return a LightningModule"),
        ("lightning_zoo:NoStep", "has no training_step"),
    ],
)
def test_an_object_that_is_no_module_is_refused(module: str, message: str) -> None:
    with pytest.raises(TaskError, match=message):
        LightningTask(
            LightningSection.model_construct(module=module, args={}, trainer={}, callbacks=()), FOLDER
        ).check({})


@pytest.mark.parametrize(
    "name",
    """max_epochs devices num_nodes strategy accelerator logger default_root_dir fast_dev_run
    limit_train_batches overfit_batches val_check_interval reload_dataloaders_every_n_epochs max_steps
    min_steps max_time callbacks plugins num_sanity_val_steps enable_checkpointing enable_progress_bar
    profiler barebones""".split(),  # noqa: SIM905
)
def test_the_trainers_settings_that_the_system_owns_are_refused(name: str) -> None:
    with pytest.raises(TaskError, match=rf"task\.trainer: {name} cannot be set: "):
        LightningSection(module="lightning_zoo:Net", trainer={name: 1})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"acumulate_grad_batches": 2}, "did you mean 'accumulate_grad_batches'"),
        ({"check_val_every_n_epoch": None}, "give a number of epochs"),
        ({"precision": "17-true"}, "L.Trainer does not take"),
    ],
)
def test_wrong_settings_of_the_trainer_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(TaskError, match=message):
        task(trainer=LightningSection(module="lightning_zoo:Net", trainer=settings).trainer).check({})


@pytest.mark.parametrize(
    ("callback", "message"),
    [
        ({"class": "Timer", "args": {"duration": "00:00:01:00"}}, "must not depend on time"),
        ({"class": "StochasticWeightAveraging", "args": {"swa_lrs": 0.1}}, "use WeightAveraging"),
        ("EarlyStoping", "did you mean 'EarlyStopping'"),
        ("EarlyStopping", "missing 1 required positional argument: 'monitor'.*it takes"),
        ("lightning_zoo:Meter", "gives a Meter, expected a lightning Callback"),
    ],
)
def test_callbacks_that_cannot_work_are_refused(callback: Any, message: str) -> None:
    with pytest.raises(TaskError, match=message):
        task(callbacks=[callback]).check({})


@pytest.mark.parametrize(
    ("case", "message"),
    [
        (
            Case("Net", callbacks=["lightning_zoo:StopMidEpoch"]),
            "should_stop was set at batch 1 of 9",
        ),
        (Case("Skips"), "on_train_batch_start returned -1.* at batch 1 of 9"),
        (Case("Hides"), r"Hides\.reader is a builtins\.generator: its position"),
        (Case("Unregistered"), "a parameter that is not the model's"),
    ],
)
def test_a_module_that_cannot_be_trained_exactly_is_refused(case: Case, message: str) -> None:
    with pytest.raises(TaskError, match=message):
        train(case)
