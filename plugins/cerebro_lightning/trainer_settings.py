"""A unit's trainer and its logger, and the callbacks that a recipe may use."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.fabric.plugins.environments.lightning import LightningEnvironment
from lightning.pytorch import callbacks as stock
from lightning.pytorch.loggers.logger import DummyLogger, Logger

from cerebro_elastic.extending.errors import TaskError
from cerebro_elastic.extending.recipes import named_class
from cerebro_lightning._lightning_internals import check_model_callbacks
from cerebro_lightning.optimizers import NamedStateStrategy

SHOWING = (stock.Checkpoint, stock.ProgressBar, stock.ModelSummary)
"""Callbacks that change no result: the run keeps each config's last and best checkpoint, and shows its
progress."""

_REFUSED_CALLBACKS: dict[type[pl.Callback], str] = {
    stock.Timer: "a unit's result must not depend on time",
    stock.ThroughputMonitor: "a unit's logged values must not depend on time; the report has the speeds",
    stock.DeviceStatsMonitor: "a unit's logged values must not depend on the machine",
    stock.BatchSizeFinder: "search over `batch_size` instead",
    stock.LearningRateFinder: "search over the learning rate instead",
    stock.StochasticWeightAveraging: "it adds an epoch to the fit; use WeightAveraging",
}


def _without_showing(callbacks: Iterable[pl.Callback]) -> list[pl.Callback]:
    """The callbacks except those that only keep checkpoints or show progress; for these the process notes
    once that a run does that itself."""
    callbacks = list(callbacks)
    for dropped in sorted({type(each).__name__ for each in callbacks if isinstance(each, SHOWING)}):
        _note_dropped(dropped)
    return [each for each in callbacks if not isinstance(each, SHOWING)]


@cache
def _note_dropped(name: str) -> None:
    warnings.warn(
        f"the callback {name} is left out: a run keeps each config's last and best checkpoint, and shows its "
        "progress, by itself",
        stacklevel=2,
    )


def checked_callbacks(callbacks: Iterable[pl.Callback]) -> list[pl.Callback]:
    """The callbacks that units call. Raises ``TaskError`` for a callback that cannot work exactly in
    sub-epochs."""
    taken = _without_showing(callbacks)
    for callback in taken:
        for refused, reason in _REFUSED_CALLBACKS.items():
            if isinstance(callback, refused):
                raise TaskError(f"the callback {type(callback).__name__} cannot be used: {reason}")
    return taken


def make_callbacks(specs: Sequence[str | Mapping[str, Any]], root: Path) -> list[pl.Callback]:
    """Fresh callbacks as the section names them. Raises ``TaskError``."""
    callbacks: list[pl.Callback] = []
    for spec in specs:
        callbacks += _make_callback(spec, root)
    return checked_callbacks(callbacks)


def _make_callback(spec: str | Mapping[str, Any], root: Path) -> list[pl.Callback]:
    known = {name: getattr(stock, name) for name in stock.__all__}
    name = spec if isinstance(spec, str) else spec["class"]
    factory, args = named_class(spec, known, root, "task.callbacks", "Lightning's callbacks")
    try:
        result = factory(**args)
    except Exception as exc:
        takes = f"; it takes {inspect.signature(factory)}" if callable(factory) else ""
        raise TaskError(
            f"task.callbacks: {name} with {dict(args)}: {type(exc).__name__}: {exc}{takes}"
        ) from exc
    callbacks = list(result) if isinstance(result, list | tuple) else [result]
    for callback in callbacks:
        if not isinstance(callback, pl.Callback):
            raise TaskError(
                f"task.callbacks: {name} gives a {type(callback).__name__}, expected a lightning Callback or "
                "a list of them"
            )
    return callbacks


def make_trainer(
    settings: Mapping[str, Any],
    callbacks: Iterable[pl.Callback],
    logger: RowLogger,
    epochs: int,
    device: torch.device,
    strategy: NamedStateStrategy | None = None,
) -> pl.Trainer:
    """A quiet trainer; ``settings`` are the user's own arguments. It trains by ``strategy``, by default as a
    script's own would on ``device``."""
    arguments = dict(settings) if strategy is None else strategy.settings_for(settings)
    trainer = pl.Trainer(
        **{**arguments, "plugins": [LightningEnvironment(), *arguments.get("plugins", ())]},
        strategy="auto" if strategy is None else strategy,
        max_epochs=epochs,
        callbacks=list(callbacks),
        logger=logger,
        accelerator=device.type,
        devices=1 if device.type == "cpu" else [device.index or 0],
        num_sanity_val_steps=0,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    check_model_callbacks(trainer, checked_callbacks)
    return trainer


class RowLogger(Logger):
    """The logger of a unit: it keeps the rows that the module logs, as ``CSVLogger`` would have them.

    Rows are ``{"epoch", metrics..., "step"}``. While ``muted``, nothing is kept: the hooks that fire again
    for every unit (``on_fit_start``, ``on_train_start``) have logged in the config's first one."""

    def __init__(self, epoch: int) -> None:
        super().__init__()
        self.rows: list[dict[str, float]] = []
        self.muted = False
        self._epoch = epoch

    @property
    def name(self) -> str:
        return "cerebro"

    @property
    def version(self) -> int:
        return 0

    @property
    def save_dir(self) -> str:
        """The process's working directory, so that ``trainer.log_dir`` exists: a folder on the unit's
        node."""
        return str(Path.cwd())

    log_dir = root_dir = save_dir

    @property
    def experiment(self) -> Any:
        """Accepts and drops what users log without ``self.log``: images, histograms, graphs."""
        return DummyLogger().experiment

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        if not self.muted:
            values = {name: float(value) for name, value in metrics.items()}
            self.rows.append({"epoch": self._epoch, **values, "step": step or 0})

    def log_hyperparams(self, *_: Any, **__: Any) -> None:
        """Does nothing: the run has the config's hyper-parameters."""
