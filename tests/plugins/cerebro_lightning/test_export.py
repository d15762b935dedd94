"""Exported checkpoints, in the hands of plain Lightning."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from lightning_harness import (
    FOLDER,
    SEED,
    Case,
    OrdinaryLoader,
    Rows,
    ValidationLoader,
    differences,
    hop,
    ordinary_fit,
    units,
)

from cerebro_elastic.hop.optimizer_state import to_names
from cerebro_elastic.registry import import_object
from cerebro_elastic.training.task import Exports
from cerebro_lightning import LightningTask

BATCHES = 9
"""Of an epoch of the harness."""
STOP = {"class": "EarlyStopping", "args": {"monitor": "val_loss", "patience": 9}}


def exported(case: Case, epochs: int, path: Path) -> Path:
    """The checkpoint of a config after so many epochs, saved as ``cerebro export`` does."""
    task = LightningTask(case.section, FOLDER)
    assert isinstance(task, Exports)
    state = hop([result for _, result in units(case)][3 * epochs - 1].state)
    given = task.export(case.hparams, state, SEED, case.epochs, BATCHES)
    assert given.checkpoint is not None
    assert differences(dict(given.weights), dict(given.checkpoint["state_dict"])) == []
    torch.save(dict(given.checkpoint), path)
    return path


@pytest.mark.parametrize(
    ("module", "callbacks"),
    [("Net", []), ("OneCycle", []), ("Plateau", [STOP]), ("BatchNorm", []), ("Metrics", [])],
)
def test_plain_lightning_goes_on_bit_for_bit(module: str, callbacks: list[Any], tmp_path: Path) -> None:
    case = Case(module, callbacks=callbacks)
    whole = ordinary_fit(case)
    path = exported(case, 1, tmp_path / "model.ckpt")
    logger = Rows()
    trainer = L.Trainer(
        max_epochs=case.epochs,
        callbacks=[L.pytorch.callbacks.EarlyStopping(**STOP["args"]) for _ in callbacks],
        logger=logger,
        accelerator="cpu",
        log_every_n_steps=2,
        num_sanity_val_steps=0,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    logger.trainer = trainer
    net = import_object(case.section.module, FOLDER)(**case.hparams)
    trainer.fit(net, OrdinaryLoader(trainer, case.orders), ValidationLoader(), ckpt_path=str(path))
    assert (trainer.current_epoch, trainer.global_step) == (whole.current_epoch, whole.global_step)
    assert differences(whole.weights, dict(net.state_dict())) == []
    assert differences(whole.optimizers, [to_names(o, net) for o in trainer.optimizers]) == []
    assert differences([row for row in whole.rows if row["epoch"] > 0], logger.rows) == []


def test_its_arguments_are_in_it_and_nothing_of_ours(tmp_path: Path) -> None:
    case = Case("Sized", hparams={"batch_size": 5, "lr": 0.2})
    path = exported(case, 2, tmp_path / "model.ckpt")
    module = import_object(case.section.module, FOLDER)
    loaded = module.load_from_checkpoint(path)
    assert (loaded.batch_size, loaded.lr) == (5, 0.2)
    saved = torch.load(path, weights_only=True)
    assert differences(saved["state_dict"], dict(loaded.state_dict())) == []
    assert saved["epoch"] == 2
    assert saved["hyper_parameters"] == {"batch_size": 5, "lr": 0.2, "width": 8}
    with zipfile.ZipFile(path) as archive:
        pickled = archive.read(next(name for name in archive.namelist() if name.endswith("data.pkl")))
    assert b"cerebro" not in pickled


@pytest.mark.parametrize(
    ("module", "lost"),
    [
        ("Metrics", []),
        ("Gan", ["the gradients to which the next batch adds: critic.bias, critic.weight"]),
        (
            "Attributes",
            ["Attributes.memory, a buffer that is not persistent", "Attributes.seen", ".net.1.extra"],
        ),
    ],
)
def test_state_that_a_stock_checkpoint_does_not_carry_is_reported(module: str, lost: list[str]) -> None:
    case = Case(module)
    state = hop([result for _, result in units(case)][2].state)
    given = LightningTask(case.section, FOLDER).export(case.hparams, state, SEED, case.epochs, BATCHES)
    generators, *others, calls = given.not_carried
    assert "random generators" in generators
    assert calls == "the attribute HookOrder.calls", "which each case here has"
    assert bool(others) == bool(lost)
    assert all(any(part in other for other in others) for part in lost)


def test_the_code_of_the_card_loads_it(tmp_path: Path) -> None:
    case = Case("Net")
    exported(case, 3, tmp_path / "model.ckpt")
    state = hop([result for _, result in units(case)][-1].state)
    load = LightningTask(case.section, FOLDER).export({}, state, SEED, case.epochs, BATCHES).load
    names: dict[str, Any] = {}
    exec(load.replace("CHECKPOINT", str(tmp_path / "model.ckpt")), names)
    assert differences(dict(state["state_dict"]), dict(names["model"].state_dict())) == []
