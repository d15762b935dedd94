"""One stage of a pipeline at work: GPipe's schedule (Huang et al. 2019, section 2.2) by
``torch.distributed.pipelining``.

A batch is divided into microbatches of one size, as the schedule requires: the largest allowed number that
divides the rows. Each number of rows has its own schedule. A trial run with the first microbatch finds the
shapes that the stages pass on; unlike torch's own it leaves the buffers unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.func import functional_call

from cerebro_elastic.extending.errors import TaskError
from cerebro_elastic.extending.parallelism import LossOf, ranks
from cerebro_pipeline._torch_internals import map_tensors, tensors_of
from cerebro_pipeline.stages import BATCH, takes_batch


@dataclass(frozen=True)
class _Shape:
    """Shape and dtype of a tensor that is sent."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    requires_grad: bool

    def example(self, device: torch.device | str) -> Tensor:
        return torch.zeros(self.shape, dtype=self.dtype, device=device, requires_grad=self.requires_grad)


@dataclass(frozen=True)
class _Planned:
    """A schedule for batches of one number of rows, and the shape of the model's output for a microbatch."""

    schedule: ScheduleGPipe
    microbatches: int
    output: _Shape


class Pipe:
    """This rank's stage: ``trains`` in training, ``evaluates`` in evaluation; they share their modules."""

    def __init__(
        self, trains: nn.Module, evaluates: nn.Module, device: torch.device, microbatches: int
    ) -> None:
        self._trains = trains
        self._evaluates = evaluates
        self._device = device
        self._most = microbatches
        self._planned: dict[tuple[bool, int], _Planned] = {}
        self._loss_of: LossOf

    def train(self, x: Any, y: Any, loss_of: LossOf) -> Tensor:
        """Gradients of the mean loss over the batch. Returns that on the last rank, zero on the others."""
        if not isinstance(y, Tensor):
            raise TaskError(f"pipeline takes targets that are one tensor, not a {type(y).__name__}")
        planned = self._plan(x, training=True)
        self._loss_of = loss_of
        losses: list[Tensor] = []
        rank, size = ranks()
        batch = {BATCH: x} if takes_batch(self._trains) else {}
        if rank == size - 1:
            _plainly(planned.schedule, target=y, losses=losses, return_outputs=False, **batch)
            return torch.stack(losses).sum().detach()
        _plainly(planned.schedule, **batch)
        return torch.zeros((), device=self._device)

    def evaluate(self, x: Any) -> Tensor:
        """The model's output, on every rank."""
        planned = self._plan(x, training=False)
        output: Tensor | None = _plainly(
            planned.schedule, **({BATCH: x} if takes_batch(self._evaluates) else {})
        )
        rows, *rest = planned.output.shape
        if output is None:
            shape = (rows * planned.microbatches, *rest)
            output = torch.empty(shape, dtype=planned.output.dtype, device=self._device)
        dist.broadcast(output, src=ranks()[1] - 1)
        return output

    def _plan(self, x: Any, *, training: bool) -> _Planned:
        rows = _rows(x)
        if (training, rows) not in self._planned:
            self._planned[training, rows] = self._new_plan(x, rows, training=training)
        return self._planned[training, rows]

    def _new_plan(self, x: Any, rows: int, *, training: bool) -> _Planned:
        count = max(number for number in range(1, self._most + 1) if rows % number == 0)
        stage = self._trains if training else self._evaluates
        microbatch = map_tensors(lambda tensor: tensor[: rows // count], x)
        shapes = self._shapes(stage, microbatch)
        rank, size = ranks()
        ours = PipelineStage(
            stage,
            rank,
            size,
            self._device,
            input_args=tuple(shape.example("meta") for shape in (shapes[rank - 1] if rank else ())),
            output_args=tuple(shape.example("meta") for shape in shapes[rank]),
        )

        def addend(output: Any, y: Any) -> Tensor:
            return self._loss_of(output, y) / count

        schedule = ScheduleGPipe(ours, count, loss_fn=addend if training else None, scale_grads=False)
        return _Planned(schedule, count, shapes[-1][0])

    def _shapes(self, stage: nn.Module, microbatch: Any) -> list[Sequence[_Shape]]:
        """The shapes that each stage returns for the microbatch."""
        rank, size = ranks()
        known: list[Sequence[_Shape]] = []
        for source in range(size):
            shapes = [self._tried(stage, known[-1] if known else (), microbatch) if source == rank else None]
            dist.broadcast_object_list(shapes, src=source)
            assert shapes[0] is not None
            known.append(shapes[0])
        return known

    def _tried(self, stage: nn.Module, received: Sequence[_Shape], microbatch: Any) -> Sequence[_Shape]:
        buffers = {name: buffer.clone() for name, buffer in stage.named_buffers()}
        given = tuple(shape.example(self._device) for shape in received)
        batch = {BATCH: microbatch} if takes_batch(stage) else {}
        kind = self._device.type
        with torch.random.fork_rng([] if kind == "cpu" else [self._device], device_type=kind):
            output = functional_call(stage, buffers, given, batch)
        output = output if isinstance(output, tuple) else (output,)
        for value in output:
            if not isinstance(value, Tensor):
                raise TaskError(
                    f"pipeline takes a model that returns one tensor, not a {type(value).__name__}"
                )
        return [_Shape(tuple(value.shape), value.dtype, value.requires_grad) for value in output]


def _rows(x: Any) -> int:
    for tensor in tensors_of(x):
        if tensor.dim():
            return len(tensor)
    raise TaskError(f"pipeline divides a batch by its rows, and this one has none: {type(x).__name__}")


def _plainly(schedule: ScheduleGPipe, **given: Any) -> Any:
    """A step of the schedule; exceptions of the user's code come out unchanged."""
    try:
        return schedule.step(**given)
    except RuntimeError as exc:
        if exc.__cause__ is not None and "failed to run" in str(exc).lower():
            raise exc.__cause__ from None
        raise
