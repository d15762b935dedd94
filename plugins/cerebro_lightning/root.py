"""What a parallelism wraps in place of a LightningModule."""

from __future__ import annotations

from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.plugins.precision import Precision
from torch import nn

from cerebro_elastic.extending.state import (
    buffers_of,
    modules_of,
    non_persistent_buffers_of,
    parameters_of,
)


class Root(nn.Module):
    """``root("training_step", batch, 0)`` is ``module.training_step(batch, 0)``, in ``precision``.

    It shares the module's parameters, buffers and parts, under the same names, but is another object: a hook
    that a parallelism adds to it runs once a step, and ``self(x)`` inside a step is a plain call.
    """

    def __init__(self, module: pl.LightningModule, precision: Precision) -> None:
        super().__init__()
        self._parameters = parameters_of(module)
        self._buffers = buffers_of(module)
        self._modules = modules_of(module)
        self._non_persistent_buffers_set = non_persistent_buffers_of(module)
        self._before_batch = (module, precision)  # in a tuple, so that the module is not registered as a part

    def forward(self, step: str, *args: Any) -> Any:
        module, precision = self._before_batch
        with precision.forward_context():
            return getattr(module, step)(*args)
