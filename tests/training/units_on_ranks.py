"""Units of the task ``torch`` on several ranks: what each of them does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from cerebro_elastic.core.model.units import Strategy, Unit
from cerebro_elastic.data.reading.loader_settings import LoaderSettings
from cerebro_elastic.data.reading.partition import Partition
from cerebro_elastic.hop.checkpoint.tree import flatten, unflatten
from cerebro_elastic.recipes import TorchSection
from cerebro_elastic.training.functions import FunctionTask
from cerebro_elastic.training.parallel.collectives import ranks
from cerebro_elastic.training.task import EVEN, LossWeights, TaskState, UnitJob, UnitResult
from support.hops import packed
from support.parts import in_parts

ROWS, BATCH = (14, 9), 3
"""Five and three batches; the last of the first has two rows, of which each rank takes one."""
EPOCHS = 2


def model(lr: float, dropout: float = 0.0) -> Any:
    net = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Dropout(dropout), nn.Linear(8, 2))
    optimizer = torch.optim.SGD(net.parameters(), lr=lr, momentum=0.9)
    return net, optimizer, torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, threshold=0.9)


def own_train(model: Any, optimizer: Any, batches: Any) -> dict[str, float]:
    losses = []
    for x, y in batches:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"seen": float(np.mean(losses))}


def own_eval(model: Any, batches: Any) -> dict[str, float]:
    right = rows = 0
    for x, y in batches:
        right += int((model(x).argmax(1) == y).sum())
        rows += len(y)
    return {"right": right, "rows": rows, "loss": 1 - right / rows}


@cache
def drawn() -> list[float]:
    """What this rank has drawn: kept where a unit may change it."""
    return []


def noisy(batch: Any, noise: float = 0.0) -> Any:
    x, y = batch
    added = noise * torch.randn_like(x)
    drawn().append(float(added[0, 0]))
    return x + added, y


def some_labelled(batch: Any) -> Any:
    x, y = batch
    return x, torch.where(x[:, 0] > 0.2, -100, y)


def of_labelled(output: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The mean over the rows that have a label."""
    return nn.functional.cross_entropy(output, y, reduction="sum") / labelled(y).clamp(min=1)


def labelled(y: torch.Tensor) -> torch.Tensor:
    return (y != -100).sum()


of_labelled.items = labelled  # type: ignore[attr-defined]


SECTIONS: dict[str, dict[str, Any]] = {
    "ready-made": {"metrics": {"accuracy": "accuracy"}, "clip": 0.5, "input_fn": f"{__name__}:noisy"},
    "weighted": {"metrics": {"accuracy": "accuracy"}, "class_weights": [0.5, 2.0]},
    "items": {"input_fn": f"{__name__}:some_labelled", "loss": f"{__name__}:of_labelled"},
    "own": {"train_fn": f"{__name__}:own_train", "eval_fn": f"{__name__}:own_eval"},
}


def task(name: str) -> FunctionTask:
    section = {"model_fn": f"{__name__}:model", "loss": "cross_entropy", **SECTIONS[name]}
    return FunctionTask(TorchSection(**section), Path(__file__).parent)


def partition(index: int, rows: int) -> Partition:
    x = np.random.default_rng(index).standard_normal((rows, 3)).astype(np.float32)
    return Partition(index, rows, {"x": x, "y": (x.sum(1) > 0).astype(np.int64)})


def weighted(index: int, rows: int) -> Partition:
    """With a weight for each row: in some batches all rows of one rank weigh nothing."""
    plain = partition(index, rows)
    return Partition(index, rows, {**plain.columns, "w": (np.arange(rows) % 3).astype(np.float32)})


def units(name: str, strategy: Strategy, hparams: Mapping[str, float], cuts: Sequence[int] = ()) -> bytes:
    """All units of a config, each cut after so many batches: the last state but for its generators, what each
    unit returned, and what this rank has drawn."""
    torch.set_num_threads(1)
    drawn().clear()
    state: TaskState | None = None
    make, weights = (weighted, LossWeights((0.5, 2.0), True)) if name == "weighted" else (partition, EVEN)
    results: list[UnitResult] = []
    for number in range(EPOCHS * len(ROWS)):
        epoch, index = divmod(number, len(ROWS))
        job = UnitJob(
            unit=Unit("c", epoch, index),
            hparams={"lr": 0.1, **hparams},
            seed=5,
            epochs=EPOCHS,
            visited=tuple(range(index)),
            rows=ROWS,
            partition=make(index, ROWS[index]),
            validation=[make(9, 7)] if index else (),
            loader=LoaderSettings(BATCH),
            state=state,
            strategy=strategy,
            loss_weights=weights,
            device="cpu",
        )
        results.append(in_parts(task(name).train, job, cuts, hopped)[-1])
        state = hopped(results[-1].state)
    assert state is not None
    return packed(
        {
            "state": {key: state[key] for key in ("model", "optimizer", "scheduler", "step", "sums")},
            "results": [(dict(r.metrics), [dict(row) for row in r.log], r.not_finite) for r in results],
            "drawn": drawn(),
        }
    )


def hopped(state: TaskState) -> TaskState:
    """The way of a checkpoint: rank 0's, to all ranks."""
    taken: list[Any] = [dict(state)]
    if ranks()[1] > 1:
        dist.broadcast_object_list(taken, src=0)
    after: TaskState = unflatten(*flatten(taken[0]))
    return after
