"""Checks whether several ranks would refuse a module, before any rank starts: on a module without values.

A unit checks the module with its values (``distributed.py``). Checks that need a trainer or values are left
to it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lightning.pytorch as pl
import torch
from torch.optim import SGD, Optimizer

from cerebro_elastic.extending.errors import TaskError
from cerebro_elastic.extending.parallelism import Parts, Stepwise
from cerebro_lightning import refusals
from cerebro_lightning._lightning_internals import MockOptimizer, configure_optimizers
from cerebro_lightning.process import unit_process


def refuse(build: Callable[[], pl.LightningModule], by: Stepwise, name: str, ranks: int) -> None:
    """Raise ``TaskError`` if the module that ``build`` makes cannot be trained by ``by``, called ``name``, on
    ``ranks`` ranks."""
    with unit_process(torch.device("cpu")), torch.device("meta"):
        try:
            module = build()
            module.configure_model()
            optimizer = _optimizer(module)
        except Exception:  # whatever the user's code needs
            return
    refusals.refuse_lazy(module, name)
    refusals.refuse_module(module, by, name)
    if isinstance(optimizer, MockOptimizer):
        raise refusals.without_optimizer(module)
    if refusal := by.refusal(Parts(module, optimizer), ranks):
        raise TaskError(refusal)


def _optimizer(module: pl.LightningModule) -> Optimizer:
    """The module's first optimizer; a simple one if ``configure_optimizers`` needs the trainer."""
    try:
        configured: Any = module.configure_optimizers()
    except Exception:  # whatever the user's code needs
        return SGD(module.parameters(), lr=0.0)
    optimizers, _, _ = configure_optimizers(MockOptimizer() if configured is None else configured)
    first: Optimizer = optimizers[0]
    return first
