"""Units of a small model with all state that is hard to hop, and that every parallelism has to carry.

A frozen parameter, a tied weight, a buffer that changes, a parameter whose rows no number of ranks divides,
two parameter groups, a schedule, clipping, batches that do not divide evenly and one with a single row.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from cerebro_elastic.core.model.units import CheckpointRef
from cerebro_elastic.hop import checkpoint
from cerebro_elastic.hop.checkpoint import Part
from cerebro_elastic.training.parallel.base import Parts, make_parallelism
from cerebro_elastic.training.parallel.collectives import ranks
from cerebro_elastic.training.parallel.fsdp import Fsdp

_WIDTH = 12
_ROWS = (8, 7, 1)
CLIP = 0.5

OPTIMIZERS: Mapping[str, Any] = {
    "adamw": lambda groups: torch.optim.AdamW(groups, lr=0.01, weight_decay=0.1),
    "sgd": lambda groups: torch.optim.SGD(groups, lr=0.01, momentum=0.9, weight_decay=0.01),
}


class Net(nn.Module):
    """Rows of 5 numbers to rows of 5 numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.inward = nn.Linear(5, _WIDTH, bias=False)
        self.layers = nn.ModuleList(nn.Linear(_WIDTH, _WIDTH) for _ in range(3))
        self.frozen = nn.Linear(_WIDTH, _WIDTH).requires_grad_(False)
        self.odd = nn.Parameter(torch.randn(7, 1))
        self.tied = nn.Linear(5, _WIDTH, bias=False)
        self.tied.weight = self.inward.weight
        self.calls: Tensor
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.calls.add_(1)
        hidden = self.inward(x)
        for layer in self.layers:
            hidden = torch.tanh(layer(hidden))
        hidden = self.frozen(hidden) + self.tied(x)
        outward: Tensor = hidden[:, :5] * self.odd.sum()
        return outward


def make(optimizer: str) -> Parts:
    """The model with one of ``OPTIMIZERS``, from the present state of the generator."""
    model = Net()
    biases = [parameter for name, parameter in model.named_parameters() if "bias" in name]
    weights = [parameter for name, parameter in model.named_parameters() if "bias" not in name]
    built = OPTIMIZERS[optimizer]([{"params": weights}, {"params": biases, "weight_decay": 0.0, "lr": 0.02}])
    return Parts(model, built, torch.optim.lr_scheduler.LambdaLR(built, lambda step: 0.9**step))


def unit(
    name: str,
    options: Mapping[str, Any],
    optimizer: str,
    given: bytes | None,
    steps: Sequence[int],
    everywhere: bool = True,
) -> bytes:
    """The state after some steps with a parallelism, from that ``given``: on every rank, or on rank 0 alone.

    ``steps`` are numbers of global batches; ``losses`` are this rank's addends.
    """
    torch.manual_seed(0)
    parallelism = make_parallelism(name, options)
    try:
        parts = parallelism.build(lambda: make(optimizer), torch.device("cpu"), loaded=given is not None)
        assert parts.scheduler is not None
        if given is not None:
            state = unpacked(given) if everywhere or ranks()[0] == 0 else {}
            parts.scheduler.last_epoch = steps[0] if steps else 0
            parallelism.load(parts, state.get("model"), state.get("optimizer"))
        losses = [float(_step(parallelism, parts, step)) for step in steps]
        model, named = parallelism.export(parts)
        return packed({"model": model, "optimizer": named, "losses": losses})
    finally:
        parallelism.close()


def shards_go_on(
    options: Mapping[str, Any], optimizer: str, steps: Sequence[int], folder: str
) -> tuple[bytes, CheckpointRef]:
    """The state after ``steps`` of fsdp, the second half in a unit that takes over the first one's shards;
    and the checkpoint in ``folder`` that they were in between."""
    torch.manual_seed(0)
    device, half = torch.device("cpu"), len(steps) // 2
    one, next_one, part = Fsdp(**options), Fsdp(**options), Part(*ranks())
    parts = one.build(lambda: make(optimizer), device)
    for step in steps[:half]:
        _step(one, parts, step)
    model, named = one.export_shards(parts)
    ref = _saved({"model": model, "optimizer": named}, folder, part)
    following = next_one.build(lambda: make(optimizer), device, loaded=True)
    assert following.scheduler is not None
    following.scheduler.last_epoch = half
    state = checkpoint.load(ref, part)
    assert len(state["model"]["inward.weight"]) < len(checkpoint.load(ref)["model"]["inward.weight"])
    next_one.load(following, state["model"], state["optimizer"])
    for step in steps[half:]:
        _step(next_one, following, step)
    model, named = next_one.export(following)
    return packed({"model": model, "optimizer": named}), ref


def _saved(state: Mapping[str, Any], folder: str, part: Part) -> CheckpointRef:
    heard: list[Any] = [None] * part.count
    dist.all_gather_object(heard, checkpoint.save_part(state, folder, part))
    ref = [checkpoint.complete(heard, folder) if part.index == 0 else None]
    dist.broadcast_object_list(ref, src=0)
    assert ref[0] is not None
    return ref[0]


def evaluated(name: str) -> list[float]:
    """What a rank gets from the model in evaluation, also for rows that microbatches do not divide."""
    torch.manual_seed(0)
    parallelism = make_parallelism(name)
    parts = parallelism.build(lambda: make("sgd"), torch.device("cpu"))
    parts.model.eval()
    with torch.no_grad():
        outputs = torch.cat([parts.model(torch.randn(rows, 5)) for rows in (4, 3)]).flatten().tolist()
    parallelism.close()
    return list(outputs)


def failing(name: str) -> None:
    """A step whose loss raises."""

    def raise_it(output: Tensor, y: Tensor) -> Tensor:  # noqa: ARG001
        raise ZeroDivisionError("the user's own")

    parallelism = make_parallelism(name)
    parts = parallelism.build(lambda: make("sgd"), torch.device("cpu"))
    parallelism.step(parts, torch.ones(4, 5), torch.ones(4, 5), raise_it)


def _step(parallelism: Any, parts: Parts, step: int) -> Tensor:
    generator = torch.Generator().manual_seed(step)
    rows = _ROWS[step % len(_ROWS)]
    x, y = torch.randn(2, rows, 5, generator=generator)
    part = parallelism.portion(rows)
    own = slice(part.start, part.stop)
    loss: Tensor = parallelism.step(
        parts, x[own], y[own], nn.functional.mse_loss, share=part.share, clip=CLIP
    )
    assert parts.scheduler is not None
    parts.scheduler.step()
    return loss


def packed(state: Mapping[str, Any]) -> bytes:
    """A state as bytes, for a pipe."""
    target = io.BytesIO()
    torch.save(state, target)
    return target.getvalue()


def unpacked(state: bytes) -> dict[str, Any]:
    """The state whose bytes ``packed`` returned."""
    loaded: dict[str, Any] = torch.load(io.BytesIO(state))
    return loaded
