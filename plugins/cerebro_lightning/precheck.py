"""What several ranks will refuse of a module, checked before there are any: on a module without values.

A unit refuses by the values that it has (``distributed.py``). What needs more than a constructor's call, a
trainer or values, is left to it.
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
    so many ranks."""
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
    """The module's first; if it needs its trainer to tell, one that any parallelism takes."""
    try:
        told: Any = module.configure_optimizers()
    except Exception:  # whatever the user's code needs
        return SGD(module.parameters(), lr=0.0)
    optimizers, _, _ = configure_optimizers(MockOptimizer() if told is None else told)
    first: Optimizer = optimizers[0]
    return first
