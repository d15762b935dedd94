"""Refusals of settings, callbacks and modules that cannot be honoured on several ranks: by name, before the
first batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch import callbacks as stock
from lightning.pytorch.utilities.model_helpers import is_overridden
from torch.distributed.tensor import DTensor
from torch.nn.parameter import is_lazy
from torch.optim import SGD, Optimizer

from cerebro_elastic.extending.errors import TaskError
from cerebro_elastic.extending.parallelism import Ddp, Parallelism, Parts, Stepwise
from cerebro_lightning._lightning_internals import MockOptimizer, averages_weights, configure_optimizers
from cerebro_lightning.process import unit_process
from cerebro_lightning.synced_logging import refuse_metrics

_PRECISIONS: Mapping[Any, str] = {
    **dict.fromkeys((None, 32, "32", "32-true"), "32-true"),
    **dict.fromkeys(("bf16", "bf16-mixed"), "bf16-mixed"),
}


def stepwise(by: Parallelism, name: str) -> Stepwise:
    """``by``, called ``name`` in errors. Raises ``TaskError`` if it takes whole steps only."""
    if not isinstance(by, Stepwise):
        raise TaskError(
            f"{name} makes whole steps alone, but a LightningModule has its own training step: choose "
            "single, ddp, fsdp or deepspeed"
        )
    return by


def precision_of(settings: Mapping[str, Any], name: str) -> str:
    """The precision that the trainer's ``settings`` name. Raises ``TaskError`` if ``name`` does not support
    it."""
    asked = settings.get("precision")
    if asked not in _PRECISIONS:
        raise TaskError(f"task.trainer: precision {asked!r} under {name}: choices there: 32-true, bf16-mixed")
    return _PRECISIONS[asked]


def refuse_settings(settings: Mapping[str, Any], by: Stepwise, name: str) -> None:
    """Raise ``TaskError`` for settings of the trainer that ``by``, called ``name``, cannot honour."""
    if by.accumulates:
        return
    if settings.get("accumulate_grad_batches", 1) != 1:
        raise TaskError(
            f"task.trainer: accumulate_grad_batches under {name}: set a larger batch_size instead"
        )
    if settings.get("gradient_clip_algorithm") == "value":
        raise TaskError(f"task.trainer: gradient_clip_algorithm value under {name}: it clips by norm only")


def refuse_callbacks(callbacks: Iterable[pl.Callback], by: Stepwise, name: str) -> None:
    """Refuse callbacks that this parallelism cannot honour."""
    for callback in callbacks:
        kind = type(callback).__name__
        if averages_weights(callback) and not isinstance(by, Ddp):
            raise TaskError(
                f"the callback {kind} under {name}: it copies whole weights; choose single or ddp"
            )
        if isinstance(callback, stock.BaseFinetuning):
            raise TaskError(
                f"the callback {kind} under {name}: it unfreezes layers while the module trains, which on "
                "several ranks has no effect; choose single"
            )
        if isinstance(callback, stock.GradientAccumulationScheduler) and not by.accumulates:
            raise TaskError(f"the callback {kind} under {name}: set a larger batch_size instead")


def refuse_module(module: pl.LightningModule, by: Stepwise, name: str) -> None:
    """Refuse a module, as made by its constructor and ``configure_model``, that this parallelism cannot
    honour."""
    kind = type(module).__name__
    if any(isinstance(parameter, DTensor) for parameter in module.parameters()):
        raise TaskError(f"{kind}.configure_model shards the model itself: under {name} leave it whole")
    refuse_metrics(module)
    if not module.automatic_optimization:
        if not isinstance(by, Ddp):
            raise TaskError(f"{kind} has manual optimization, which {name} cannot do: choose single or ddp")
    elif is_overridden("backward", module):
        raise TaskError(f"{kind} overrides backward, which under {name} is not the module's: choose single")
    if not by.accumulates and is_overridden("optimizer_zero_grad", module):
        raise TaskError(f"{kind} overrides optimizer_zero_grad, but {name} keeps its gradients to itself")
    if not isinstance(by, Ddp):
        for method in ("state_dict", "load_state_dict"):
            if getattr(type(module), method) is not getattr(pl.LightningModule, method):
                raise TaskError(
                    f"{kind} overrides {method}, which {name} does not call: choose single or ddp"
                )


def refuse_lazy(module: pl.LightningModule, name: str) -> None:
    """Refuse lazy layers, which have no parameters until they see a batch."""
    if lazy := [path for path, parameter in module.named_parameters() if is_lazy(parameter)]:
        raise TaskError(
            f"{type(module).__name__}.{lazy[0]} is lazy, and {name} needs its shape before the first "
            "batch: call the layers once, on a batch of zeros, in the constructor or configure_model; or "
            "choose single"
        )


def without_optimizer(module: pl.LightningModule) -> TaskError:
    """The error for a module without an optimizer."""
    return TaskError(f"{type(module).__name__} has no optimizer: on several ranks it needs one")


def refuse_unmade(build: Callable[[], pl.LightningModule], by: Stepwise, name: str, ranks: int) -> None:
    """Raise ``TaskError`` if the module that ``build`` makes cannot be trained by ``by``, called ``name``, on
    ``ranks`` ranks. It is called before any rank starts, on a module without values.

    A unit checks the module with its values (``distributed.py``). Checks that need a trainer or values are
    left to it.
    """
    with unit_process(torch.device("cpu")), torch.device("meta"):
        try:
            module = build()
            module.configure_model()
            optimizer = _first_optimizer(module)
        except Exception:  # the user's code may need anything
            return
    refuse_lazy(module, name)
    refuse_module(module, by, name)
    if isinstance(optimizer, MockOptimizer):
        raise without_optimizer(module)
    if refusal := by.refusal(Parts(module, optimizer), ranks):
        raise TaskError(refusal)


def _first_optimizer(module: pl.LightningModule) -> Optimizer:
    """The module's first optimizer; a simple one if ``configure_optimizers`` needs the trainer."""
    try:
        configured: Any = module.configure_optimizers()
    except Exception:  # the user's code may need anything
        return SGD(module.parameters(), lr=0.0)
    optimizers, _, _ = configure_optimizers(MockOptimizer() if configured is None else configured)
    first: Optimizer = optimizers[0]
    return first
