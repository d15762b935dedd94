"""Common code of parallelisms: dividing a batch among ranks, a step on the parts, and moving a state from
rank 0 to the others or back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import torch
import torch.distributed as dist
from torch import Tensor, nn

from cerebro_elastic.system.torch_internals import buffers_of, normalizes, version_of
from cerebro_elastic.training.parallel import collectives
from cerebro_elastic.training.parallel.base import LossOf, Parts, Portion, Stepwise
from cerebro_elastic.training.parallel.collectives import ranks

Place: TypeAlias = Callable[[tuple[Any, ...], Tensor], Any]
"""Makes a rank's value of the full tensor at a path of the state."""

_SMALL = 16
"""Tensors of at most this many elements, such as step counts, are sent with the outline."""


def portion(rows: int) -> Portion:
    """This rank's contiguous part of a batch; parts differ by one row at most."""
    rank, size = ranks()
    each, more = divmod(rows, size)
    start = rank * each + min(rank, more)
    stop = start + each + (rank < more)
    return Portion(start, stop, (stop - start) / rows) if stop > start else Portion(0, 1, 0.0)


class DataParallel(Stepwise):
    """A parallelism that averages gradients over the ranks: each trains its portion of a batch, and all take
    the same step."""

    accumulates = True

    def portion(self, rows: int) -> Portion:
        """A contiguous part."""
        return portion(rows)

    def step(
        self, parts: Parts, x: Any, y: Any, loss_of: LossOf, *, share: float = 1.0, clip: float | None = None
    ) -> Tensor:
        """Each loss weighs by its rows, so that the mean over ranks becomes the mean over rows."""
        _, size = ranks()
        addend = loss_of(parts.model(x), y) * share
        parts.optimizer.zero_grad()
        self.backward(parts, addend * size)
        self.update(parts, clip)
        return addend.detach()

    def backward(self, parts: Parts, loss: Tensor) -> None:  # noqa: ARG002
        """Gradients are averaged as they come."""
        loss.backward()  # type: ignore[no-untyped-call]

    def update(self, parts: Parts, clip: float | None) -> None:
        """Clip the gradients that the model's parameters have; a step of the optimizer."""
        if clip is not None:
            nn.utils.clip_grad_norm_(parts.model.parameters(), clip)
        parts.optimizer.step()

    def close(self) -> None:
        """Nothing to release but memory."""


def averaged_gradients(parameters: Sequence[nn.Parameter]) -> None:
    """The gradients become their means over the ranks; one that a rank lacks counts there as zero. Done
    twice, it is as if done once."""
    _, size = ranks()
    has_gradient = torch.tensor([parameter.grad is not None for parameter in parameters], dtype=torch.uint8)
    dist.all_reduce(has_gradient, dist.ReduceOp.MAX)
    anywhere = has_gradient.tolist()
    trained = [parameter for parameter, trains in zip(parameters, anywhere, strict=True) if trains]
    if not trained:
        return
    grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in trained]
    flat = torch.cat([grad.flatten() for grad in grads])
    dist.all_reduce(flat)
    flat /= size
    means = torch.split(flat, [grad.numel() for grad in grads])
    for parameter, grad, mean in zip(trained, grads, means, strict=True):
        parameter.grad = grad.copy_(mean.view_as(grad))


class Buffers:
    """Rank 0's statistics of normalisation are everybody's, as under ddp."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[Tensor, int]] = {}

    def agree(self, model: nn.Module) -> None:
        """Take rank 0's buffers, as far as they were written to or assigned since the last time."""
        for name, module in model.named_modules():
            uncounted = normalizes(module)
            for key, buffer in buffers_of(module).items():
                if buffer is None:
                    continue
                seen, version = self._seen.get(f"{name}.{key}", (None, 0))
                if uncounted or version_of(buffer) != version or buffer is not seen:
                    dist.broadcast(buffer, src=0)
                    self._seen[f"{name}.{key}"] = buffer, version_of(buffer)


def taken(state: Mapping[str, Any] | None, place: Place, device: torch.device) -> Any:
    """``state`` with each tensor as ``place`` puts it; one at a time, so that no rank but 0 holds all of it.

    If every rank has the state, nothing is sent; else rank 0's is, through ``device``.
    """
    if collectives.least(state is not None):
        return mapped(state, place)
    outline = [None if state is None else mapped(state, _outlined)]
    dist.broadcast_object_list(outline, src=0)

    def receive(path: tuple[Any, ...], sketch: Tensor) -> Any:
        if not sketch.is_meta:
            return place(path, sketch)
        full = _empty(sketch, device) if state is None else _at(state, path).to(device)
        dist.broadcast(full, src=0)
        return place(path, full)

    return mapped(outline[0], receive)


def collected(state: Mapping[str, Any]) -> list[Mapping[str, Any]] | None:
    """On rank 0, the ``state`` of every rank, its tensors on the CPU; on the others ``None``."""
    rank, size = ranks()
    outlines: list[Any] | None = [None] * size if rank == 0 else None
    dist.gather_object(mapped(state, _outlined), outlines)

    def send(_path: tuple[Any, ...], tensor: Tensor) -> Tensor:
        if _outlined((), tensor).is_meta:
            dist.send(tensor.detach().cpu().contiguous(), dst=0)
        return tensor

    if outlines is None:
        mapped(state, send)
        return None
    return (
        [mapped(state, lambda _, tensor: tensor.detach().cpu())]
        + [
            mapped(outline, lambda _, sketch, source=source: _received(sketch, source))  # type: ignore[misc]
            for source, outline in enumerate(outlines[1:], start=1)
        ]
    )


def _received(sketch: Tensor, source: int) -> Tensor:
    if not sketch.is_meta:
        return sketch
    tensor = _empty(sketch, torch.device("cpu"))
    dist.recv(tensor, src=source)
    return tensor


def _empty(sketch: Tensor, device: torch.device) -> Tensor:
    """The receiving tensor: values are sent in the order of the indices, whatever their order in memory."""
    return torch.empty_like(sketch, device=device, memory_format=torch.contiguous_format)


def _outlined(_path: tuple[Any, ...], tensor: Tensor) -> Tensor:
    return tensor.cpu() if tensor.numel() <= _SMALL else tensor.to("meta")


def _at(state: Any, path: tuple[Any, ...]) -> Tensor:
    for key in path:
        state = state[key]
    tensor: Tensor = state
    return tensor.contiguous()


def mapped(value: Any, place: Place, path: tuple[Any, ...] = ()) -> Any:
    """The tree ``value`` with ``place`` applied to its tensors, in the order of its keys."""
    if isinstance(value, Tensor):
        return place(path, value)
    if isinstance(value, Mapping):
        return {key: mapped(item, place, (*path, key)) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(mapped(item, place, (*path, index)) for index, item in enumerate(value))
    return value
