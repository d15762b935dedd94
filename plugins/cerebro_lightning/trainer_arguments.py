"""The arguments of ``L.Trainer`` that a recipe may use; known without an import of Lightning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cerebro_elastic.extending.errors import TaskError, did_you_mean

TRAINER_SETTINGS = {
    "accumulate_grad_batches",
    "benchmark",
    "check_val_every_n_epoch",
    "detect_anomaly",
    "deterministic",
    "gradient_clip_algorithm",
    "gradient_clip_val",
    "inference_mode",
    "limit_val_batches",
    "log_every_n_steps",
    "min_epochs",
    "precision",
}
"""Arguments of ``L.Trainer`` that a sub-epoch honours exactly."""

_PLACES = (
    "the run decides where a unit trains: `nodes` is the number of nodes, node.ranks (`node: {ranks: 4}`) "
    "the devices of each, and `parallelism` says how a unit uses them"
)
_ROWS = "the rows that the module logs are kept by the run"
QUIET = "a unit is quiet; the run shows its progress"
_INSIDE = "a unit is one whole pass over its partition"
_EPOCHS = "a run ends after whole epochs: set `epochs` of the recipe"

_SYSTEM_OWNED = {
    **dict.fromkeys(("accelerator", "devices", "num_nodes", "strategy", "sync_batchnorm"), _PLACES),
    **dict.fromkeys(("use_distributed_sampler", "plugins"), _PLACES),
    **dict.fromkeys(("logger", "default_root_dir", "enable_autolog_hparams"), _ROWS),
    **dict.fromkeys(("enable_progress_bar", "enable_model_summary", "profiler", "barebones"), QUIET),
    **dict.fromkeys(("fast_dev_run", "limit_train_batches", "overfit_batches"), _INSIDE),
    **dict.fromkeys(("limit_test_batches", "limit_predict_batches"), "a run neither tests nor predicts"),
    **dict.fromkeys(("max_epochs", "max_steps", "min_steps", "max_time"), _EPOCHS),
    "callbacks": "name them in `callbacks` of the section",
    "enable_checkpointing": "the run keeps the checkpoints",
    "model_registry": "the run keeps the checkpoints",
    "num_sanity_val_steps": "it would run in every unit; a fit's result does not depend on it",
    "reload_dataloaders_every_n_epochs": "each unit loads its partition anyway",
    "val_check_interval": "validation runs at the end of an epoch",
}

DECIDED_BY_RUN = frozenset(
    {
        *("accelerator", "logger", "default_root_dir", "enable_autolog_hparams", "max_epochs", "profiler"),
        *("enable_progress_bar", "enable_model_summary", "enable_checkpointing", "model_registry"),
        *("num_sanity_val_steps", "limit_test_batches", "limit_predict_batches"),
    }
)
"""The arguments that do not change the result of a fit, or that a recipe sets otherwise."""


def checked_trainer_settings(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """The ``settings``. Raises ``TaskError`` for an argument of ``L.Trainer`` that is unknown or the
    system's own."""
    for name in settings:
        if name in _SYSTEM_OWNED:
            raise TaskError(f"task.trainer: {name} cannot be set: {_SYSTEM_OWNED[name]}")
        if name not in TRAINER_SETTINGS:
            raise TaskError(
                f"task.trainer: {name!r} is no argument of L.Trainer; {did_you_mean(name, TRAINER_SETTINGS)}"
            )
    if settings.get("benchmark"):
        raise TaskError(
            "task.trainer: benchmark is true: cuDNN would choose algorithms by their speed at the moment, so "
            "that results differ by chance; leave it out"
        )
    if settings.get("check_val_every_n_epoch", 1) is None:
        raise TaskError(
            "task.trainer: check_val_every_n_epoch is None, which is for validation inside an epoch: "
            "give a number of epochs"
        )
    return settings


def notes_on_dropped(trainer: Mapping[str, Any]) -> list[str]:
    """A sentence for people, if a file's section ``trainer`` has arguments that do not count in units."""
    given = {name for name, value in trainer.items() if value is not None}
    dropped = sorted(given & DECIDED_BY_RUN - {"max_epochs"})
    return [f"task.config: of its `trainer` the run decides itself: {', '.join(dropped)}"] if dropped else []
