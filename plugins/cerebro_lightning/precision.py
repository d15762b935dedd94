"""The precision of a unit on several ranks; in Lightning it also takes the optimizer's steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import lightning.pytorch as pl
import torch
from lightning.pytorch.plugins.precision import Precision
from lightning.pytorch.utilities import GradClipAlgorithmType
from torch import Tensor
from torch.optim import Optimizer

from cerebro_elastic.extending.errors import TaskError
from cerebro_elastic.extending.parallelism import averaged_gradients
from cerebro_lightning._lightning_internals import after_closure


class TakesSteps(Protocol):
    """The interface of a strategy that its precision uses."""

    @property
    def root_device(self) -> torch.device: ...

    @property
    def lightning_module(self) -> pl.LightningModule | None: ...

    def backward_through(self, loss: Tensor) -> None:
        """Compute the gradients, in place of ``loss.backward()``."""

    def update(self, clip: float | None) -> None:
        """Take the step, in place of ``optimizer.step()``."""


class DistributedPrecision(Precision):
    """Computes in ``precision``; the strategy computes gradients and takes steps."""

    def __init__(self, precision: str, strategy: TakesSteps) -> None:
        self.precision = precision  # type: ignore[assignment]
        self._strategy = strategy
        self._clip: float | None = None

    @contextmanager
    def forward_context(self) -> Iterator[None]:
        device = self._strategy.root_device.type
        mixed = self.precision == "bf16-mixed"
        with torch.autocast(device, dtype=torch.bfloat16, enabled=mixed, cache_enabled=False):
            yield

    def backward(  # type: ignore[override]
        self, tensor: Tensor, model: pl.LightningModule, optimizer: Any, *args: Any, **kwargs: Any
    ) -> None:
        if model.automatic_optimization:
            self._strategy.backward_through(tensor)
        else:
            super().backward(tensor, model, optimizer, *args, **kwargs)

    def clip_gradients(
        self,
        optimizer: Optimizer,
        clip_val: float = 0.0,
        gradient_clip_algorithm: GradClipAlgorithmType = GradClipAlgorithmType.NORM,
    ) -> None:
        module = self._strategy.lightning_module
        assert module is not None
        if not module.automatic_optimization:
            averaged_gradients(list(self.main_params(optimizer)))
            super().clip_gradients(optimizer, clip_val, gradient_clip_algorithm)
        elif clip_val > 0 and gradient_clip_algorithm == GradClipAlgorithmType.NORM:
            self._clip = float(clip_val)
        elif clip_val > 0:
            if all(parameter.grad is None for parameter in self.main_params(optimizer)):
                raise TaskError("gradients that the parallelism keeps to itself cannot be clipped by value")
            self.clip_grad_by_value(optimizer, clip_val)

    def optimizer_step(  # type: ignore[override]
        self, optimizer: Any, model: pl.LightningModule, closure: Callable[[], Any], **kwargs: Any
    ) -> Any:
        result = closure()
        if not model.automatic_optimization:
            averaged_gradients(list(self.main_params(optimizer)))
            after_closure(self, model, optimizer)
            optimizer.step(**kwargs)
            return result
        self._clip = None
        after_closure(self, model, optimizer)  # may require clipping
        self._strategy.update(self._clip)
        return result
