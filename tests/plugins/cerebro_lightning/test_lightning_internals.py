"""The private names of Lightning that the plugin uses are still there, and do what they did."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import fields
from operator import attrgetter
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
import torchmetrics
from lightning.fabric.utilities import registry
from lightning.pytorch import callbacks as stock
from lightning.pytorch.callbacks import ModelPruning
from lightning.pytorch.demos.boring_classes import BoringModel, RandomDataset
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.trainer import call
from torch.utils.data import DataLoader
from torchmetrics import SumMetric

from cerebro_lightning import _lightning_internals as internals


class Offered:
    """An entry point of a package that offers callbacks."""

    name = "offered"

    def load(self) -> Any:
        return lambda: [pl.Callback()]


def test_external_callbacks_are_looked_for_once_and_made_for_each_trainer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    groups: list[str] = []

    def entry_points(*, group: str) -> list[Offered]:
        groups.append(group)
        return [Offered()]

    monkeypatch.setattr(registry, "entry_points", registry.entry_points)  # put back afterwards
    monkeypatch.setattr("cerebro_lightning._lightning_internals.entry_points", entry_points)
    internals.look_once_for_external_callbacks()
    first, second = (pl.Trainer(logger=False, enable_checkpointing=False) for _ in range(2))
    assert groups == ["lightning.pytorch.callbacks_factory"]
    own = [[c for c in vars(trainer)["callbacks"] if type(c) is pl.Callback] for trainer in (first, second)]
    assert [len(callbacks) for callbacks in own] == [1, 1]
    assert own[0][0] is not own[1][0]


@pytest.fixture(scope="module")
def trainer() -> pl.Trainer:
    """A trainer whose fit is over."""
    fitted = pl.Trainer(
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    rows = DataLoader(RandomDataset(32, 4))
    fitted.fit(BoringModel(), rows, rows)
    return fitted


def pruning() -> ModelPruning:
    callback = ModelPruning("l1_unstructured", amount=0.5)
    callback.setup(pl.Trainer(logger=False, enable_checkpointing=False), BoringModel(), "fit")
    return callback


def hyperparameters() -> BoringModel:
    module = BoringModel()
    module.save_hyperparameters({"lr": 0.1})
    return module


OF_TRAINER: dict[str, tuple[str, ...]] = {
    "": (
        "_callback_connector",
        "_checkpoint_connector",
        "_signal_connector",
        "_logger_connector",
        "_results",
    ),
    "_callback_connector": ("_attach_model_callbacks",),
    "_checkpoint_connector": (
        "_loaded_checkpoint",
        "dump_checkpoint",
        "restore_model",
        "restore_callbacks",
        "restore_precision_plugin_state",
        "restore_optimizers_and_schedulers",
    ),
    "_logger_connector": (*internals.CONNECTOR_STATE, "should_update_logs", "on_batch_start", "on_epoch_end"),
    "fit_loop": (
        *("_should_accumulate", "_can_stop_early"),
        *("_restarting", "_loaded_from_state_dict", "_resuming_from_checkpoint"),
        *("on_run_start", "on_advance_start", "on_advance_end"),
    ),
    "fit_loop.epoch_loop": (
        *("_results", "_batches_that_stepped", "_broadcast_sigterm_tensor"),
        *("reset", "advance", "on_advance_end"),
    ),
    "fit_loop.epoch_loop.val_loop": (
        *("_results", "_combined_loader", "_seen_batches_per_dataloader", "setup_data"),
    ),
    "strategy": ("_lightning_optimizers",),
    "lightning_module": ("_device",),
    "precision_plugin": ("_after_closure",),
}
"""What each part of a trainer has, also what our subclasses of it override."""


@pytest.mark.parametrize(
    ("part", "name"), [(part, name) for part, names in OF_TRAINER.items() for name in names]
)
def test_a_part_of_the_trainer_has(trainer: pl.Trainer, part: str, name: str) -> None:
    owner = attrgetter(part)(trainer) if part else trainer
    kind = type(owner).__name__
    assert hasattr(owner, name), f"Lightning {pl.__version__}: a {kind} has no {name} any more"


OTHERS: dict[str, Callable[[], Any]] = {
    "_call_lightning_module_hook": lambda: call,
    "_call_callback_hooks": lambda: call,
    # Lightning 2.5 has none.
    **({"_average_model": stock.WeightAveraging} if hasattr(stock, "WeightAveraging") else {}),
    "_make_pruning_permanent": pruning,
    internals.PRUNED_LAYERS: pruning,
    "_parameters_to_prune": pruning,
    "_experiment": lambda: CSVLogger("."),
    internals.HPARAMS: hyperparameters,
    "_hparams_initial": hyperparameters,
    "_hparams_name": hyperparameters,
    "_defaults": SumMetric,
    "_reductions": SumMetric,
    "_is_synced": SumMetric,
    "_cache": SumMetric,
    **dict.fromkeys(internals.METRIC_COUNT, SumMetric),
}
"""What has each of the other private names."""


@pytest.mark.parametrize("name", OTHERS)
def test_another_private_name_is_there(name: str) -> None:
    owner = OTHERS[name]()
    kind = type(owner).__name__
    versions = f"Lightning {pl.__version__}, torchmetrics {torchmetrics.__version__}"
    assert hasattr(owner, name), f"{versions}: a {kind} has no {name} any more"


def test_a_writer_of_csv_files_continues_one(tmp_path: Path) -> None:
    for step in range(2):
        writer = internals.AppendingWriter(str(tmp_path))
        writer.log_metrics({"loss": 1.0}, step)
        writer.save()
    assert len(Path(writer.metrics_file_path).read_text().splitlines()) == 3


def test_a_logged_value_consists_of_what_hops() -> None:
    results = internals.ResultCollection(training=True)
    results.log("on_train_batch_end", "loss", torch.tensor(1.0), on_step=True, on_epoch=True, batch_size=1)
    (result,) = results.values()
    assert internals.METADATA_SYNC in {field.name for field in fields(internals.ResultMetadata)}
    assert set(internals.RESULT_MEANS) < set(internals.RESULT_STATE)
    own = {name for name in vars(result) if name in internals.RESULT_STATE}
    assert own == set(internals.RESULT_STATE), f"Lightning {pl.__version__}"


def test_every_private_name_is_tried() -> None:
    used = set(re.findall(r"\w\.(_[a-z]\w+)", inspect.getsource(internals)))
    tried = OTHERS.keys() | {name for names in OF_TRAINER.values() for name in names}
    tried |= {*internals.RESULT_STATE, "_fs"}
    assert used - {"_lightning_internals"} <= tried | {"_average_model"}
