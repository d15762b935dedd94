"""The ready-made training and evaluation passes over batches of ``(x, y)``.

A loss or a metric is a function ``(model(x), y) -> mean over the batch``. A mean over several batches weighs
every row alike, as Lightning's epoch means do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn

from cerebro_elastic.errors import TaskError
from cerebro_elastic.training.parallel import collectives
from cerebro_elastic.training.parallel.base import Parallelism, Parts

BatchMean: TypeAlias = Callable[[Any, Any], Tensor]
Rows: TypeAlias = Iterable[int]
"""The number of rows of each batch."""


class BatchLoss(NamedTuple):
    """The loss of a batch, or of this rank's portion of it."""

    x: Any
    """What the model takes."""
    y: Any
    """What its output is compared with."""
    loss_of: BatchMean
    """The loss of the portion."""
    share: float
    """What the portion weighs in the loss of the whole batch."""


LossOfBatch: TypeAlias = Callable[[Any, float], BatchLoss]
"""Takes a portion of a batch, and its share of the batch's rows."""


def unweighted(loss: BatchMean) -> LossOfBatch:
    """The mean of ``loss`` over the rows of batches ``(x, y)``."""
    return lambda batch, share: BatchLoss(*_pair(batch), loss, share)


def accuracy(output: Tensor, target: Tensor) -> Tensor:
    """The share of rows whose largest of the last dimension's scores is the target class."""
    return (output.argmax(dim=-1) == target).double().mean()


def train_pass(
    parts: Parts,
    batches: Iterable[Any],
    rows: Rows,
    losses: LossOfBatch,
    mean: Mean,
    *,
    parallelism: Parallelism,
    clip: float | None,
    step_scheduler: Literal["epoch", "step"],
) -> None:
    """Train: one step of the optimizer for each batch.

    Args:
        parts: Model, optimizer and scheduler.
        batches: This rank's portion of each batch.
        rows: The number of rows of each whole batch.
        losses: The loss of each batch.
        mean: The losses are added to it.
        parallelism: Does the steps.
        clip: The norm that gradients are clipped to; ``None``: they are not.
        step_scheduler: Whether the scheduler steps once a batch here, or once an epoch elsewhere.
    """
    parts.model.train()
    for batch, count in zip(batches, rows, strict=True):
        x, y, loss_of, share = losses(batch, parallelism.portion(count).share)
        loss = parallelism.step(parts, x, y, loss_of, share=share, clip=clip)
        if parts.scheduler is not None and step_scheduler == "step":
            parts.scheduler.step()
        mean.add(loss, count)


@torch.no_grad()
def evaluation_pass(
    model: nn.Module,
    batches: Iterable[Any],
    rows: Rows,
    losses: LossOfBatch,
    measures: Mapping[str, BatchMean],
    *,
    parallelism: Parallelism,
) -> dict[str, float]:
    """The means of the ``loss`` and of each measure over all rows, with the model in evaluation mode. The
    arguments are as for ``train_pass``. No weights count in ``measures``."""
    model.eval()
    means = {name: Mean() for name in ("loss", *measures)}
    for batch, count in zip(batches, rows, strict=True):
        share = parallelism.portion(count).share
        x, y, loss_of, loss_share = losses(batch, share)
        output = model(x)
        weighed = {"loss": (loss_of, loss_share), **{name: (each, share) for name, each in measures.items()}}
        for name, (measure, part) in weighed.items():
            means[name].add(measure(output, y) * part, count)
    return {name: mean.value for name, mean in means.items()}


class Mean:
    """A mean over rows. The sum stays on a device, since reading every batch's loss would wait for it.

    It continues from ``total`` exactly as if it had never been read. On several ranks each adds its portion
    of a batch's mean, and ``total`` is this rank's sum.
    """

    def __init__(self, total: float = 0.0, rows: int = 0) -> None:
        self._total: Tensor | float = total
        self.rows = rows

    def add(self, batch_mean: Tensor, rows: int) -> None:
        """Add a batch's mean over its ``rows``."""
        mean = torch.as_tensor(batch_mean)
        self._total = self._total + (mean.item() if mean.is_cpu else mean.detach().double()) * rows
        self.rows += rows

    @property
    def total(self) -> float:
        """This rank's part of the sum over all rows."""
        return float(self._total)

    @property
    def value(self) -> float:
        """The mean over all ranks. Every rank must read it; there must be a row."""
        return collectives.total(self.total) / self.rows


def _pair(batch: Any) -> tuple[Any, Any]:
    if isinstance(batch, tuple | list) and len(batch) == 2:
        return batch[0], batch[1]
    kind = f"{len(batch)} of them" if isinstance(batch, tuple | list) else f"a {type(batch).__name__}"
    raise TaskError(
        f"the ready-made step needs batches (x, y), it got {kind}: give an input_fn that makes x and y of a "
        "batch, or a train_fn"
    )
