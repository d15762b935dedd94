"""All of the model on every rank: on one as it is, on several with averaged gradients, which is faster.

``Single`` is the identity. Every other parallelism reads as a difference from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from cerebro_elastic.errors import TaskError
from cerebro_elastic.hop.optimizer_state import take, to_names
from cerebro_elastic.training.parallel._torch_internals import check_reducer_finished
from cerebro_elastic.training.parallel.base import LossOf, Make, Parallelism, Parts, Portion
from cerebro_elastic.training.parallel.construct import hand_over, made, place
from cerebro_elastic.training.parallel.data_parallel import DataParallel, taken


class Single(Parallelism):
    """Training on one rank."""

    def refusal(self, parts: Parts, ranks: int) -> str | None:  # noqa: ARG002
        """Anything can be trained on one rank."""
        return None if ranks == 1 else f"single takes one rank, not {ranks}"

    def portion(self, rows: int) -> Portion:
        """The whole batch."""
        return Portion(0, rows, 1.0)

    def build(self, make: Make, device: torch.device, *, loaded: bool = False) -> Parts:
        """The parts, on ``device``."""
        parts = made(make, loaded=loaded)
        place(parts.model, device)
        return parts

    def load(
        self, parts: Parts, model: Mapping[str, Any] | None, optimizer: Mapping[str, Any] | None
    ) -> None:
        """Take a neutral state; where it can be, it is trained in as it lies."""
        assert model is not None
        assert optimizer is not None
        hand_over(parts.model, model)
        take(parts.optimizer, parts.model, optimizer)

    def step(
        self, parts: Parts, x: Any, y: Any, loss_of: LossOf, *, share: float = 1.0, clip: float | None = None
    ) -> Tensor:
        """Backward, clip, step: the usual code."""
        assert share == 1.0
        loss = loss_of(parts.model(x), y)
        parts.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        if clip is not None:
            nn.utils.clip_grad_norm_(parts.model.parameters(), clip)
        parts.optimizer.step()
        return loss.detach()

    def export(self, parts: Parts) -> tuple[dict[str, Any], dict[str, Any]]:
        """The neutral state; on the CPU, the live tensors."""
        return parts.model.state_dict(), to_names(parts.optimizer, parts.model)

    def close(self) -> None:
        """Nothing to release."""


class Ddp(DataParallel):
    """``torch.nn.parallel.DistributedDataParallel``.

    ``find_unused_parameters``: set it if some parameters have no part in the loss of some batches.
    """

    def __init__(self, *, find_unused_parameters: bool = False) -> None:
        self._find_unused = find_unused_parameters

    def refusal(self, parts: Parts, ranks: int) -> str | None:
        """Anything that has something to train, on two ranks or more."""
        if ranks < 2:
            return (
                f"ddp takes two ranks or more, not {ranks}: take single, or give a unit more ranks "
                "(`node: {ranks: 2}`, or `gang: 2`)"
            )
        return None if any(p.requires_grad for p in parts.model.parameters()) else "nothing is trainable"

    def build(self, make: Make, device: torch.device, *, loaded: bool = False) -> Parts:
        """The model on ``device``, wrapped; rank 0's initial values count."""
        parts = made(make, loaded=loaded)
        place(parts.model, device)
        model = _Averaging(
            parts.model,
            device_ids=None if device.type == "cpu" else [device],
            init_sync=not loaded,
            gradient_as_bucket_view=True,
            find_unused_parameters=self._find_unused,
        )
        return Parts(model, parts.optimizer, parts.scheduler)

    def load(
        self, parts: Parts, model: Mapping[str, Any] | None, optimizer: Mapping[str, Any] | None
    ) -> None:
        """Every rank takes all of the state."""
        plain, device = _wrapper(parts).module, next(parts.model.parameters()).device
        hand_over(plain, taken(model, lambda _, full: full, device))
        take(parts.optimizer, plain, taken(optimizer, lambda _, full: full, device))

    def update(self, parts: Parts, clip: float | None) -> None:
        """As on one rank: all have the same gradients."""
        _wrapper(parts).check_averaged()
        super().update(parts, clip)

    def export(self, parts: Parts) -> tuple[dict[str, Any], dict[str, Any]]:
        """The neutral state, on every rank; on the CPU, the live tensors."""
        _wrapper(parts).check_averaged()  # a train_fn does its steps itself
        plain = _wrapper(parts).module
        return plain.state_dict(), to_names(parts.optimizer, plain)


class _Averaging(DistributedDataParallel):
    """Torch's DDP with a more helpful error, raised after the unit's last batch too; torch would raise it
    only at the next batch. Torch would not average gradients of parameters that are unfrozen later."""

    def __init__(self, module: nn.Module, **options: Any) -> None:
        super().__init__(module, **options)
        self._frozen = {name: p for name, p in module.named_parameters() if not p.requires_grad}

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if now := self._unfrozen():
            raise TaskError(
                f"{', '.join(now[:3])} unfrozen while a unit trains, where ddp would not average their "
                "gradients: take single or fsdp, or unfreeze them in the function that makes the model"
            )
        with _clear():
            return super().forward(*args, **kwargs)  # type: ignore[no-untyped-call]

    def _unfrozen(self) -> list[str]:
        """The parameters that got no gradient when this was made, and get one now."""
        return [name for name, own in self._frozen.items() if own.requires_grad]

    def check_averaged(self) -> None:
        """Raise ``TaskError`` if gradients of the last backward pass still wait for others."""
        with _clear():
            check_reducer_finished(self)


@contextmanager
def _clear() -> Iterator[None]:
    try:
        yield
    except RuntimeError as exc:
        if "find_unused_parameters=True" not in str(exc):
            raise
        raise TaskError(
            "some parameters have no part in the loss of a batch, for which ddp waits in vain: set its "
            "option `find_unused_parameters: true`, or freeze them"
        ) from exc


def _wrapper(parts: Parts) -> _Averaging:
    """It has the user's module, whose names are the neutral ones, as ``module``."""
    assert isinstance(parts.model, _Averaging)
    return parts.model
