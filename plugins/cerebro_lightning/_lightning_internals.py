"""All private names of Lightning and torchmetrics that the plugin uses. Tried with Lightning 2.5.6
and 2.6.6, and torchmetrics 1.9.

``tests/plugins/cerebro_lightning/test_lightning_internals.py`` names the ones that an upgrade takes away,
also those that ``subepoch.py`` and ``synced_logging.py`` override in classes from here.
"""

from __future__ import annotations

import csv
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from importlib.metadata import entry_points
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.fabric.utilities import registry
from lightning.fabric.utilities.device_dtype_mixin import _DeviceDtypeModuleMixin
from lightning.fabric.utilities.distributed import _all_gather_ddp_if_available as all_gather_if_distributed
from lightning.fabric.utilities.distributed import _sync_ddp_if_available as reduce_if_distributed
from lightning.pytorch import callbacks as stock
from lightning.pytorch.callbacks import ModelPruning
from lightning.pytorch.core.optimizer import _configure_optimizers as configure_optimizers
from lightning.pytorch.core.optimizer import _MockOptimizer as MockOptimizer
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.loggers.csv_logs import ExperimentWriter
from lightning.pytorch.loops.evaluation_loop import _EvaluationLoop
from lightning.pytorch.loops.fetchers import _DataFetcher as DataFetcher
from lightning.pytorch.loops.fit_loop import _FitLoop as FitLoop
from lightning.pytorch.loops.loop import _Loop
from lightning.pytorch.loops.training_epoch_loop import _TrainingEpochLoop as TrainingEpochLoop
from lightning.pytorch.trainer import call
from lightning.pytorch.trainer.connectors.logger_connector.logger_connector import (
    _LoggerConnector as LoggerConnector,
)
from lightning.pytorch.trainer.connectors.logger_connector.result import _Metadata as ResultMetadata
from lightning.pytorch.trainer.connectors.logger_connector.result import _ResultCollection as ResultCollection
from lightning.pytorch.trainer.connectors.logger_connector.result import _ResultMetric as ResultMetric
from lightning.pytorch.trainer.connectors.logger_connector.result import _Sync
from lightning.pytorch.trainer.connectors.signal_connector import _SignalConnector as SignalConnector
from lightning.pytorch.utilities.exceptions import _TunerExitException as TunerExit
from torch import Tensor, nn
from torchmetrics import Metric

from cerebro_elastic.extending.state import Tree, parameters_of

__all__ = [
    "DataFetcher",
    "FitLoop",
    "LoggerConnector",
    "MockOptimizer",
    "ResultCollection",
    "ResultMetadata",
    "ResultMetric",
    "SignalConnector",
    "TunerExit",
    "all_gather_if_distributed",
    "configure_optimizers",
    "reduce_if_distributed",
]

CONNECTOR_STATE = (
    "_progress_bar_metrics",
    "_logged_metrics",
    "_callback_metrics",
    "_first_loop_iter",
    "_current_fx",
)
"""Attributes of the logger connector that last from batch to batch."""

MODULE_ATTRIBUTES = frozenset(vars(pl.LightningModule()).keys() - {"training"}) | {
    "_hparams_initial",
    "_hparams_name",
}
"""Attributes of a ``LightningModule`` that no user's code has set."""

HPARAMS = "_hparams"
"""The attribute with the arguments that ``save_hyperparameters`` took; made empty on its first use."""

RESULT_STATE = ("value", "cumulated_batch_size", "_forward_cache", "_computed", "_update_count", "has_reset")
"""Attributes of a ``ResultMetric`` that last from batch to batch."""

RESULT_MEANS = ("value", "cumulated_batch_size", "_update_count")
"""Attributes of a ``ResultMetric`` that make up its value for the epoch."""

METADATA_SYNC = "_sync"
"""The field of ``ResultMetadata`` that holds a function of the trainer."""

METRIC_COUNT = ("_update_count", "_computed")
"""Attributes of a torchmetrics metric that last from batch to batch, besides its states."""

PRUNED_LAYERS = "_original_layers"
"""The attribute of ``ModelPruning`` with copies of the layers as they are built."""


def look_once_for_external_callbacks() -> None:
    """Remember the packages that offer callbacks. Every ``Trainer`` searches all installed packages, and each
    unit has a trainer: that took 16 ms. The callbacks themselves are made for each trainer."""
    registry.entry_points = functools.cache(entry_points)  # type: ignore[attr-defined, assignment]


@contextmanager
def hooks_wrapped(wrap_module: Callable[[Any], Any], wrap_callbacks: Callable[[Any], Any]) -> Iterator[None]:
    """Wrap the two functions by which Lightning calls all hooks of modules and of callbacks."""
    functions: Any = call
    of_module, of_callbacks = functions._call_lightning_module_hook, functions._call_callback_hooks
    functions._call_lightning_module_hook = wrap_module(of_module)
    functions._call_callback_hooks = wrap_callbacks(of_callbacks)
    try:
        yield
    finally:
        functions._call_lightning_module_hook, functions._call_callback_hooks = of_module, of_callbacks


# The trainer's parts


def callbacks_of(trainer: pl.Trainer) -> list[pl.Callback]:
    """The trainer's callbacks, those of the module included once the fit has begun; Lightning declares no
    type for them."""
    callbacks: list[pl.Callback] = vars(trainer)["callbacks"]
    return callbacks


def check_model_callbacks(
    trainer: pl.Trainer, checked: Callable[[list[pl.Callback]], list[pl.Callback]]
) -> None:
    """Filter the trainer's callbacks by ``checked`` when those of the module are added."""
    connector = trainer._callback_connector
    attach = connector._attach_model_callbacks

    def attach_checked() -> None:
        attach()
        vars(trainer)["callbacks"] = checked(callbacks_of(trainer))

    connector._attach_model_callbacks = attach_checked  # type: ignore[method-assign]


def dump_checkpoint(trainer: pl.Trainer) -> dict[str, Any]:
    """The checkpoint that the trainer would write to a file."""
    checkpoint: dict[str, Any] = trainer._checkpoint_connector.dump_checkpoint(weights_only=False)
    return checkpoint


def restore_stock_checkpoint(trainer: pl.Trainer, checkpoint: Mapping[str, Any]) -> None:
    """Put model, callbacks, precision, optimizers and schedulers to where they were; the loops stay."""
    connector = trainer._checkpoint_connector
    connector._loaded_checkpoint = dict(checkpoint)
    connector.restore_model()
    connector.restore_datamodule()
    connector.restore_callbacks()
    connector.restore_precision_plugin_state()
    connector.restore_optimizers_and_schedulers()
    connector._loaded_checkpoint = {}


def set_signal_connector(trainer: pl.Trainer, connector: SignalConnector) -> None:
    """Replace the signal connector."""
    trainer._signal_connector = connector


def logger_connector_of(trainer: pl.Trainer) -> LoggerConnector:
    """The logger connector: it receives the logged values."""
    return trainer._logger_connector


def set_logger_connector(trainer: pl.Trainer, connector: LoggerConnector) -> None:
    """Replace the logger connector."""
    trainer._logger_connector = connector


def active_results_of(trainer: pl.Trainer) -> ResultCollection | None:
    """The logged values of the active loop."""
    return trainer._results


def logged_step_value(result: ResultMetric) -> Any:
    """The last value that was logged for one batch."""
    return result._forward_cache


def set_logged_step_value(result: ResultMetric, value: Any) -> None:
    """Replace the last value that was logged for one batch."""
    result._forward_cache = value


def forget_epoch_value(result: ResultMetric) -> None:
    """Have the epoch's value computed again."""
    result._computed = None


_METADATA = [field.name for field in fields(ResultMetadata) if field.name not in ("reduce_fx", METADATA_SYNC)]
_REDUCTIONS: dict[str, Callable[..., Any]] = {
    **{f"torch.{name}": getattr(torch, name) for name in ("mean", "sum", "max", "min")},
    **{function.__name__: function for function in (sum, max, min)},
}


def results_tree(results: ResultCollection) -> Tree:
    """The running sums of ``self.log`` over an epoch, by key, as plain values. They hop: an epoch's metrics
    cover all its units."""
    return {key: _result_tree(result) for key, result in results.items()}


def put_results(
    results: ResultCollection, tree: Mapping[str, Tree], module: pl.LightningModule, trainer: pl.Trainer
) -> None:
    """Put the values that ``results_tree`` has returned into ``results``."""
    for key, saved in tree.items():
        results[key] = _result(saved, module, trainer)


def _result_tree(result: ResultMetric) -> Tree:
    """A logged torchmetrics object is part of the module, where it is found by its name."""
    hops = [name for name in RESULT_STATE if hasattr(result, name) and (result.is_tensor or name != "value")]
    start = result._defaults.get("value")
    return {
        **{name: getattr(result, name) for name in hops},
        "is_tensor": result.is_tensor,
        "metadata": {name: getattr(result.meta, name) for name in _METADATA},
        "reduction": next(n for n, function in _REDUCTIONS.items() if function is result.meta.reduce_fx),
        "rank_zero_only": result.meta.sync.rank_zero_only,
        "dtype": start.dtype if isinstance(start, Tensor) else None,
    }


def _result(tree: Tree, module: pl.LightningModule, trainer: pl.Trainer) -> ResultMetric:
    metadata = ResultMetadata(**tree["metadata"], reduce_fx=_REDUCTIONS[tree["reduction"]])
    metadata.sync = _Sync(fn=trainer.strategy.reduce, rank_zero_only=tree["rank_zero_only"])
    result = ResultMetric(metadata, tree["is_tensor"])
    if (dtype := tree["dtype"]) is not None:
        result._defaults["value"] = torch.as_tensor(result._defaults["value"]).to(dtype)
    for name in RESULT_STATE:
        if name in tree:
            setattr(result, name, tree[name])
    if not result.is_tensor and metadata.metric_attribute is not None:
        result.value = module.get_submodule(metadata.metric_attribute)
    return result


def after_closure(precision: pl.plugins.Precision, module: pl.LightningModule, optimizer: Any) -> None:
    """Run the hooks and the clipping between the backward pass and the optimizer's step."""
    precision._after_closure(module, optimizer)


# Loops


class SignalFreeEpochLoop(TrainingEpochLoop):
    """Lightning's, without the broadcast of a signal to terminate: signals are the rank's business."""

    def _broadcast_sigterm_tensor(self) -> None:
        pass


def training_results_of(trainer: pl.Trainer) -> ResultCollection:
    """The values logged in training."""
    return trainer.fit_loop.epoch_loop._results


def set_results(trainer: pl.Trainer, training: ResultCollection, validation: ResultCollection) -> None:
    """Replace the values logged in training and in validation."""
    trainer.fit_loop.epoch_loop._results = training
    trainer.fit_loop.epoch_loop.val_loop._results = validation


def continue_loops(trainer: pl.Trainer) -> None:
    """Have the loops continue from their states. Lightning takes that for a restart, and would skip steps."""
    for loop in _with_children(trainer.fit_loop):
        loop._restarting = loop._loaded_from_state_dict = loop._resuming_from_checkpoint = False


def seen_validation_batches(trainer: pl.Trainer) -> dict[int, int] | None:
    """The batches seen by loader; ``None`` before the fit has read the validation's loaders."""
    loop = _validation_of(trainer)
    return None if loop._combined_loader is None else dict(loop._seen_batches_per_dataloader)


def set_up_validation(trainer: pl.Trainer, seen: Mapping[int, int]) -> None:
    """Set up the validation's loaders, as if the ``seen`` number of batches of each had been read."""
    loop = _validation_of(trainer)
    trainer.validating = True
    loop.setup_data()
    trainer.training = True
    loop._seen_batches_per_dataloader.update(seen)


def accumulates(trainer: pl.Trainer) -> bool:
    """Whether the next batch adds to the gradients of the last one."""
    return trainer.fit_loop._should_accumulate()


def may_stop_early(trainer: pl.Trainer) -> bool:
    """Whether ``trainer.should_stop`` would end the fit now."""
    return trainer.fit_loop._can_stop_early


def batches_that_stepped(trainer: pl.Trainer) -> int:
    """How many batches have counted for the logger."""
    return trainer.fit_loop.epoch_loop._batches_that_stepped


def _validation_of(trainer: pl.Trainer) -> _EvaluationLoop:
    return trainer.fit_loop.epoch_loop.val_loop


def _with_children(loop: _Loop) -> Iterator[_Loop]:
    yield loop
    for value in vars(loop).values():
        if isinstance(value, _Loop):
            yield from _with_children(value)


# Modules, optimizers, callbacks and loggers


def note_device(module: nn.Module, device: torch.device) -> None:
    """Set ``device`` on a module that keeps its own device."""
    if isinstance(module, _DeviceDtypeModuleMixin):
        module._device = device


def lightning_optimizers_of(strategy: pl.strategies.Strategy) -> list[Any]:
    """The optimizers as ``LightningModule.optimizers()`` gives them."""
    return list(strategy._lightning_optimizers)


def averages_weights(callback: pl.Callback) -> bool:
    """Whether it is a ``WeightAveraging``. Lightning 2.5 has none."""
    return isinstance(callback, getattr(stock, "WeightAveraging", ()))


def average_model_of(callback: Any) -> Any:
    """The averaged model of a ``WeightAveraging``; ``None`` before the fit."""
    return callback._average_model


def made_in_setup(owner: object) -> frozenset[str]:
    """Names of attributes that the callback's ``setup`` makes again: copies of the layers as they are
    built."""
    return frozenset({PRUNED_LAYERS}) if isinstance(owner, ModelPruning) else frozenset()


@contextmanager
def masks_kept(callbacks: Iterable[pl.Callback]) -> Iterator[None]:
    """A checkpoint made inside the block has the weights and their masks. By default ``ModelPruning`` would
    save weights that are pruned for good."""
    permanent = [callback for callback in _pruning(callbacks) if callback._make_pruning_permanent]
    for callback in permanent:
        callback._make_pruning_permanent = False
    try:
        yield
    finally:
        for callback in permanent:
            callback._make_pruning_permanent = True


def rewound_parameters(callbacks: Iterable[pl.Callback]) -> list[list[int]]:
    """For each ``ModelPruning``, the indices of parameters whose stored initial value has become the trained
    tensor: Lightning rewinds a parameter to its initial value by reference, so that from then on both are
    one."""
    return [
        [number for number, first, own in _first_values(callback) if first.data_ptr() == own.data_ptr()]
        for callback in _pruning(callbacks)
    ]


def put_rewound(callbacks: Iterable[pl.Callback], numbers: Sequence[Sequence[int]]) -> None:
    """Apply the result of ``rewound_parameters``; called after the parameters' values are loaded."""
    for callback, trained in zip(_pruning(callbacks), numbers, strict=False):
        for number, first, own in _first_values(callback):
            if number in trained:
                first.data = own.data


def _pruning(callbacks: Iterable[pl.Callback]) -> list[ModelPruning]:
    return [callback for callback in callbacks if isinstance(callback, ModelPruning)]


def _first_values(callback: ModelPruning) -> Iterator[tuple[int, Tensor, Tensor]]:
    """The pruned parameters by number: their initial values and their own."""
    layers: Mapping[Any, Mapping[str, Any]] = callback._original_layers or {}
    for layer in layers.values():
        for number, name in layer["names"]:
            present = parameters_of(callback._parameters_to_prune[number][0])
            first = parameters_of(layer["data"]).get(name)
            own = present.get(f"{name}_orig", present.get(name))
            if first is not None and own is not None:
                yield number, first, own


class AppendingWriter(ExperimentWriter):
    """Lightning's writer of CSV files; it continues a file that exists, and deletes none."""

    def _check_log_dir_exists(self) -> None:
        if self._fs.isfile(self.metrics_file_path):
            with self._fs.open(self.metrics_file_path, "r", newline="") as file:
                self.metrics_keys = next(csv.reader(file), [])


def set_writer(logger: CSVLogger, writer: ExperimentWriter) -> None:
    """Have the logger write by ``writer``."""
    logger._experiment = writer


# torchmetrics


def state_names_of(metric: Metric) -> list[str]:
    """The names of a metric's states."""
    return list(metric._defaults)


def list_states_of(metric: Metric) -> list[str]:
    """The names of the states that are lists of rows."""
    return [name for name, default in metric._defaults.items() if isinstance(default, list)]


def reductions_of(metric: Metric) -> list[Any]:
    """How the states of several ranks become one."""
    return list(metric._reductions.values())


def keep_synced(metric: Metric) -> None:
    """Have the metric keep the states of all ranks: torchmetrics would undo its ``sync``."""
    metric._is_synced, metric._cache = False, None


def value_of_batch(metric: Metric) -> Any:
    """The value of the last batch with which the metric was called; ``None`` if it was only updated."""
    return metric._forward_cache


def reset_but_count(metric: Metric) -> None:
    """Reset a metric's states, and keep how often it was updated."""
    count = metric._update_count
    metric.reset()
    metric._update_count = count
