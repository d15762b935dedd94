"""Losses and metrics of the ready-made training and evaluation passes over batches of ``(x, y)``.

A loss or a metric is a function ``(model(x), y) -> mean over the batch``. A mean over several batches weighs
every row alike, as Lightning's epoch means do. On several ranks each weighs its part by its share of the
rows. A loss that is a mean over something else, such as tokens, has an attribute ``items``: a function of
``y`` that counts them.

With weights of rows the loss of a batch is ``sum(w * l) / sum(w)`` over its rows; a row's ``w`` is the
product of its weights. On several ranks it is that of the whole batch: each rank weighs its part by its share
of ``sum(w)``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

from cerebro_elastic.errors import TaskError
from cerebro_elastic.system import arguments
from cerebro_elastic.training.parallel import collectives
from cerebro_elastic.training.parallel.base import Parallelism, Stepwise
from cerebro_elastic.training.parallel.collectives import ranks
from cerebro_elastic.training.parallel.replicated import Single
from cerebro_elastic.training.task import LossWeights

BatchMean: TypeAlias = Callable[[Any, Any], Tensor]


class BatchLoss(NamedTuple):
    """The loss of a batch, or of this rank's portion of it."""

    x: Any
    """The model's input."""
    y: Any
    """The target of its output."""
    loss_of: BatchMean
    """The loss of the portion."""
    share: float
    """The portion's weight in the loss of the whole batch."""


LossOfBatch: TypeAlias = Callable[[Any, float], BatchLoss]
"""Takes a portion of a batch, and its share of the batch's rows."""


def unweighted(loss: BatchMean) -> LossOfBatch:
    """The mean of ``loss`` over the rows of batches ``(x, y)``, or over the items that its attribute
    ``items`` counts in ``y``."""
    items: Callable[[Any], Any] | None = getattr(loss, "items", None)

    def checked(output: Any, target: Any) -> Tensor:
        value = loss(output, target)
        if isinstance(value, Tensor):
            return value
        name, kind = getattr(loss, "__name__", loss), type(value).__name__
        raise TaskError(f"the loss {name} returned a {kind}: it must return a tensor, the mean over the rows")

    def of_batch(batch: Any, share: float) -> BatchLoss:
        x, y, _ = _parts(batch, samples=False)
        return BatchLoss(x, y, checked, share if items is None else _share(torch.as_tensor(items(y)), share))

    return of_batch


def accuracy(output: Tensor, target: Tensor) -> Tensor:
    """The share of rows whose largest of the last dimension's scores is the target class."""
    return (output.argmax(dim=-1) == target).double().mean()


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
        """The mean over all ranks. Every rank must read it, and at least one row must exist."""
        return collectives.total(self.total) / self.rows


def check_per_row(loss: Callable[..., Any] | None) -> None:
    """Raise ``TaskError`` unless the loss can give one value for each row."""
    names = arguments.accepted(loss) if loss is not None else frozenset()
    if names is not None and "reduction" not in names:
        raise TaskError(
            f"task.loss: {getattr(loss, '__name__', loss)} has no parameter `reduction`, and weights of "
            "classes or rows need the loss of each row: give it one that returns them for reduction='none', "
            "as torch's losses do, or leave the weights out"
        )


def refused_by(parallelism: Parallelism, name: str) -> str | None:
    """Why this parallelism cannot weigh rows; ``None`` if it can."""
    if isinstance(parallelism, Single | Stepwise):
        return None
    return (
        f"{name} takes the mean over the rows of each part of a batch, so that weights of classes or rows "
        "would not be exact: leave them out, or choose single, ddp, fsdp or deepspeed"
    )


def weighted(loss: Callable[..., Tensor], weights: LossWeights, device: torch.device) -> LossOfBatch:
    """The weighted loss of batches ``(x, y)``, or ``(x, y, w)`` if samples have weights."""
    classes = torch.tensor(weights.classes, device=device)

    def of_batch(batch: Any, share: float) -> BatchLoss:
        x, y, w = _parts(batch, samples=weights.samples)
        each = _row_weights(classes, y, w)
        return BatchLoss(x, y, _WeightedLoss(loss, each, weights.classes), _share(each, share))

    return of_batch


def _parts(batch: Any, *, samples: bool) -> tuple[Any, Any, Tensor | None]:
    wanted = 3 if samples else 2
    if isinstance(batch, tuple | list) and len(batch) == wanted:
        return batch[0], batch[1], batch[2] if samples else None
    kind = f"{len(batch)} of them" if isinstance(batch, tuple | list) else f"a {type(batch).__name__}"
    raise TaskError(
        f"the ready-made step needs batches {'(x, y, w), w for weights' if samples else '(x, y)'}, it got "
        f"{kind}: give an input_fn that makes them of a batch, or a train_fn"
    )


def _row_weights(classes: Tensor, y: Any, w: Tensor | None) -> Tensor:
    """The weight of each label; or of each row, if classes have none."""
    if not len(classes):
        assert w is not None
        return w
    each = _by_class(classes, y)
    return each if w is None else each * _widened(w.to(each.dtype), each.dim())


def _share(weights: Tensor, rows: float) -> float:
    """This rank's share of the weights of the whole batch. It has a share of 0 of the rows if it has none."""
    if ranks()[1] == 1:
        return rows
    own = float(weights.double().sum()) if rows else 0.0
    whole = collectives.total(own)
    return own / whole if whole else 0.0


@dataclass(frozen=True, slots=True)
class _WeightedLoss:
    loss: Callable[..., Tensor]
    weights: Tensor
    classes: tuple[float, ...]

    def __call__(self, output: Any, y: Any) -> Tensor:
        losses = self.loss(output, y, reduction="none")
        if self.classes and losses.shape != self.weights.shape:
            raise TaskError(
                f"class_weights need a loss for each label, of shape {list(self.weights.shape)}: the loss "
                f"gives {list(losses.shape)} with reduction='none'"
            )
        if not losses.dim() or len(losses) != len(self.weights):
            raise TaskError(
                f"weights of rows need a loss for each of {len(self.weights)} rows: the loss gives "
                f"{list(losses.shape)} with reduction='none'"
            )
        weights = _widened(self.weights, losses.dim()).expand_as(losses)
        # Where nothing weighs anything, the loss is 0 instead of NaN.
        return (losses * weights).sum() / weights.sum().clamp(min=torch.finfo(weights.dtype).tiny)


def _by_class(classes: Tensor, y: Tensor) -> Tensor:
    """The weight of each label. Labels below 0, which torch's losses ignore, weigh nothing."""
    if not isinstance(y, Tensor) or y.is_complex():
        raise TaskError(f"class_weights need labels that are class numbers, not a {type(y).__name__}")
    labels = y.long()
    if labels.numel() and int(labels.max()) >= len(classes):
        raise TaskError(
            f"a label is {int(labels.max())}, and class_weights has {len(classes)} weights, for classes 0 to "
            f"{len(classes) - 1}: give one for each class"
        )
    return torch.where(labels < 0, 0.0, classes[labels.clamp(min=0)])


def _widened(weights: Tensor, dim: int) -> Tensor:
    """With axes of length 1 appended, up to ``dim`` axes."""
    return weights.reshape(*weights.shape, *[1] * (dim - weights.dim()))
