"""A file of LightningCLI or Hydra as a task, side by side with their own fit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import cli_zoo
import lightning as L
import pytest
import torch
import yaml
from data_harness import FOLDER, runner_of, units
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from test_data_module import InOrder
from torch.utils.data import DataLoader

from cerebro_elastic.data.reading import worker_processes as batch_workers
from cerebro_elastic.errors import CerebroError
from cerebro_elastic.recipes import Recipe, load_recipe

LR, WIDTH, SIZE = (
    "optimizer.init_args.lr",
    "model.init_args.encoder.init_args.width",
    "data.init_args.batch_size",
)
POINT = {LR: 0.03, WIDTH: 5, SIZE: 4}


@pytest.fixture(autouse=True)
def _no_workers_stay(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("CEREBRO_CACHE", str(tmp_path / "cache"))
    yield
    batch_workers.end_idle()


def recipe_of(config: str = "fit.yaml", cli: str = "Cli", **keys: Any) -> Recipe:
    recipe = {
        "task": {"kind": "lightning", "config": config, "cli": f"cli_zoo:{cli}"},
        "data": {"partitions": 3},
        "search": {"space": {name: [value] for name, value in POINT.items()}},
        "objective": {"metric": "val_loss"},
    }
    return load_recipe({**recipe, **keys}, root=FOLDER)


def test_a_recipe_has_the_files_values_and_its_own_count() -> None:
    recipe = recipe_of()
    assert (recipe.epochs, recipe.seed) == (2, 5)
    assert load_recipe(recipe.resolved(), root=FOLDER) == recipe
    longer = recipe_of(epochs=7, seed=3)
    assert (longer.epochs, longer.seed) == (7, 3)
    assert longer.task.config["trainer"]["max_epochs"] == 7  # type: ignore[attr-defined]


def test_units_equal_the_fit_of_the_cli_itself(tmp_path: Path) -> None:
    runner = runner_of(recipe_of(), tmp_path, POINT)
    *_, (_, last) = units(runner, POINT)

    options = [f"--{name}={value}" for name, value in POINT.items()]
    own = cli_zoo.Cli(
        args=["--config", str(FOLDER / "fit.yaml"), f"--trainer.default_root_dir={tmp_path}", *options],
        run=False,
        save_config_callback=None,
    )
    own.datamodule.train_dataloader = lambda: DataLoader(
        own.datamodule.rows, batch_sampler=InOrder(runner, POINT[SIZE], drop_last=False)
    )
    own.trainer.fit(own.model, datamodule=own.datamodule)

    assert own.model.hparams["epochs"] == 2
    assert own.trainer.current_epoch == 2
    weights = own.model.state_dict()
    assert weights["encoder.layers.0.weight"].shape == (5, 6)
    assert weights["head.1.weight"].shape == (3, 5)
    assert all(torch.equal(value, last.state["state_dict"][name]) for name, value in weights.items())
    assert last.metrics == {name: float(value) for name, value in own.trainer.callback_metrics.items()}
    assert any("EarlyStopping" in name for name in last.state["callbacks"])


def hydras(space: dict[str, Any], **task: Any) -> Recipe:
    return load_recipe(
        {
            "task": {"kind": "lightning", "config": "hydra/train.yaml", **task},
            "data": {"partitions": 3},
            "search": {"space": {name: [value] for name, value in space.items()}},
            "objective": {"metric": "val_loss"},
        },
        root=FOLDER,
    )


def test_units_equal_the_fit_of_what_hydra_makes(tmp_path: Path) -> None:
    point = {"model.optimizer.lr": 0.03, "model.encoder.width": 5, "data.batch_size": 4}
    recipe = hydras(point, overrides=["trainer.gradient_clip_val=0.1"])
    assert load_recipe(recipe.resolved(), root=FOLDER) == recipe
    runner = runner_of(recipe, tmp_path, point)
    *_, (_, last) = units(runner, point)

    with initialize_config_dir(str(FOLDER / "hydra"), version_base="1.3"):
        options = [f"{name}={value}" for name, value in point.items()]
        own = compose(
            "train", overrides=[*options, f"output_dir={tmp_path}", "trainer.gradient_clip_val=0.1"]
        )
    L.seed_everything(own.seed, workers=True)
    data, model = instantiate(own.data), instantiate(own.model)
    callbacks = [instantiate(each) for each in own.callbacks.values()]
    trainer = instantiate(own.trainer, callbacks=callbacks, num_sanity_val_steps=0, logger=False)
    data.train_dataloader = lambda: DataLoader(data.rows, batch_sampler=InOrder(runner, 4, drop_last=False))
    trainer.fit(model, datamodule=data)

    weights = model.state_dict()
    assert weights["encoder.layers.0.weight"].shape == (5, 6)
    assert all(torch.equal(value, last.state["state_dict"][name]) for name, value in weights.items())
    assert last.metrics == {name: float(value) for name, value in trainer.callback_metrics.items()}


@pytest.mark.parametrize(
    ("point", "overrides", "message"),
    [
        ({"model.optimizer.lrr": 0.1}, (), "no such hyper-parameter.*lrr"),
        ({"width": 32}, ("data.rows=${width}",), "interpolated from width"),
        ({}, ("modle.classes=4",), "modle"),
        ({}, ("model.classes=${output_dir}",), "may be given by task.overrides"),
    ],
)
def test_what_of_hydra_a_unit_cannot_do_is_refused_before_the_start(
    tmp_path: Path, point: dict[str, Any], overrides: Sequence[str], message: str
) -> None:
    with pytest.raises(CerebroError, match=message):
        runner_of(hydras(point or {"width": 4}, overrides=overrides), tmp_path, point)


@pytest.mark.parametrize(
    ("changed", "cli", "point", "message"),
    [
        ({"trainer": {"limit_train_batches": 0.5}}, "Cli", {}, "limit_train_batches cannot be set"),
        ({}, "Cli", {"optimizer.init_args.lrr": 0.1}, "'lrr' is not accepted"),
        ({}, "Backwards", {"model.init_args.dropout": 0.5}, "depends by link_arguments on model"),
    ],
)
def test_what_a_unit_cannot_do_is_refused_before_the_start(
    tmp_path: Path, changed: dict[str, Any], cli: str, point: dict[str, Any], message: str
) -> None:
    values = yaml.safe_load((FOLDER / "fit.yaml").read_text())
    for name, value in changed.items():
        values[name] = {**values[name], **value} if isinstance(value, dict) else value
    (tmp_path / "fit.yaml").write_text(yaml.dump(values))
    with pytest.raises(CerebroError, match=message):
        runner_of(recipe_of(str(tmp_path / "fit.yaml"), cli), tmp_path, point)
