"""Plain models whose parts are no fixed set of dense tensors, against a hand-written loop."""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn

from cerebro_elastic.core.model.units import Unit
from cerebro_elastic.data.reading.batches import batches
from cerebro_elastic.data.reading.loader_settings import LoaderSettings
from cerebro_elastic.data.reading.partition import Partition, sample_order
from cerebro_elastic.errors import TaskError
from cerebro_elastic.hop.checkpoint.tree import flatten, unflatten
from cerebro_elastic.hop.generators import rng
from cerebro_elastic.recipes import TorchSection
from cerebro_elastic.registry import import_object
from cerebro_elastic.training.functions import FunctionTask
from cerebro_elastic.training.task import TaskState, UnitJob
from support.same import assert_same

SEED, BATCH, ROWS = 5, 4, (10, 7)
ORDERS = ((1, 0), (0, 1))

USERS_MODULE = """
import torch
from torch import nn

class Buffers(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 2)
        self.register_buffer("mean", None)
        self.register_buffer("bank", torch.zeros(0, 2))
        self.register_buffer("mask", torch.ones(2))
        self.register_buffer("hidden", torch.zeros(2), persistent=False)
        self.register_buffer("constant", torch.ones(2), persistent=False)
        self.register_buffer("adjacency", torch.eye(2).to_sparse())

    def forward(self, x):
        out = self.linear(x)
        if self.training:
            last = out.detach()
            self.mean = last.mean(0) if self.mean is None else self.mean + last.mean(0)
            self.bank = torch.cat([self.bank, last])[-6:]
            self.mask = self.mask > 0 if self.mask.dtype is torch.float32 else ~self.mask
            self.hidden += last.sum(0)
            self.adjacency = (self.adjacency * 1.01).coalesce()
        extra = self.mean + self.bank.mean(0) + self.mask + self.hidden + self.constant
        return out * (1 + 0.01 * (extra + torch.sparse.mm(self.adjacency, torch.ones(2, 1)).T))

def sgd(model):
    return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

def lazy():
    return sgd(nn.Sequential(nn.LazyLinear(4), nn.LazyBatchNorm1d(), nn.ReLU(), nn.LazyLinear(2)))

def buffers():
    return sgd(Buffers())

def thaws():
    model = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 2))
    return model, torch.optim.SGD(model[0].parameters(), lr=0.1, momentum=0.9)

def plain():
    return sgd(nn.Sequential(nn.Linear(3, 2)))

def train(model, optimizer, batches, epoch):
    if epoch and len(optimizer.param_groups) == 1:
        model[0].requires_grad_(False)
        optimizer.add_param_group({"params": model[2].parameters()})
    for x, y in batches:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

def train_with_hook(model, batches):
    model[0].register_forward_hook(lambda *_: None)
    for x, y in batches:
        model(x)

def train_with_layer(model, batches):
    for x, y in batches:
        model(x)
    model.append(nn.Linear(2, 2))
"""


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "users_ordinary.py").write_text(USERS_MODULE)
    path = list(sys.path)
    with rng.borrowed():
        yield tmp_path
    sys.path[:] = path
    sys.modules.pop("users_ordinary", None)


def partition(index: int, rows: int) -> Partition:
    x = np.random.default_rng(index).standard_normal((rows, 3)).astype(np.float32)
    return Partition(index, rows, {"x": x, "y": (x.sum(1) > 0).astype(np.int64)})


TRAIN = [partition(index, rows) for index, rows in enumerate(ROWS)]


def job(epoch: int, position: int, state: TaskState | None, **hparams: Any) -> UnitJob:
    order = ORDERS[epoch]
    return UnitJob(
        unit=Unit("c0", epoch, order[position]),
        hparams=hparams,
        seed=SEED,
        epochs=len(ORDERS),
        visited=order[:position],
        rows=ROWS,
        partition=TRAIN[order[position]],
        validation=(),
        loader=LoaderSettings(BATCH),
        state=state,
        device="cpu",
    )


def hop(state: TaskState) -> TaskState:
    tree, tensors = flatten(state)
    return unflatten(json.loads(json.dumps(tree)), copy.deepcopy(tensors))


def units(root: Path, name: str, train_fn: str | None = None) -> list[TaskState]:
    section = TorchSection(
        model_fn=f"users_ordinary:{name}",
        loss="cross_entropy",
        train_fn=train_fn and f"users_ordinary:{train_fn}",
    )
    states: list[TaskState] = []
    for epoch, order in enumerate(ORDERS):
        for position in range(len(order)):
            state = hop(states[-1]) if states else None
            states.append(FunctionTask(section, root).train(job(epoch, position, state)).state)
    return states


def by_hand(root: Path, name: str, train_fn: str | None) -> nn.Module:
    rng.seed_all(SEED)
    model, optimizer = import_object(f"users_ordinary:{name}", root)()
    model.train()
    for epoch, order in enumerate(ORDERS):
        for index in order:
            chosen = sample_order(SEED, epoch, index, ROWS[index])
            loader = batches(TRAIN[index], chosen, LoaderSettings(BATCH))
            if train_fn:
                import_object(f"users_ordinary:{train_fn}", root)(model, optimizer, loader, epoch)
                continue
            for x, y in loader:
                loss = nn.functional.cross_entropy(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
    return model


@pytest.mark.parametrize(
    ("name", "train_fn"),
    [
        ("lazy", None),
        ("buffers", None),
        ("thaws", "train"),
    ],
)
def test_units_equal_the_loop_that_anybody_would_write(root: Path, name: str, train_fn: str | None) -> None:
    expected = by_hand(root, name, train_fn)
    last = units(root, name, train_fn)[-1]
    assert_same(_dense(last["model"]), _dense(expected.state_dict()))
    moved = hidden(last)
    assert_same(moved, {key: value for key, value in expected.named_buffers() if key in moved})


def hidden(state: TaskState) -> dict[str, Any]:
    """The buffers that the model's state dict leaves out, as far as they are carried."""
    parts = state["objects"]["model"]["buffers"]
    return {f"{at}.{name}".lstrip("."): value for at, part in parts.items() for name, value in part.items()}


def test_only_hidden_buffers_that_training_writes_to_are_carried(root: Path) -> None:
    assert list(hidden(units(root, "buffers")[-1])) == ["hidden"]
    assert units(root, "plain")[-1]["structure"] == {}


@pytest.mark.parametrize(
    ("train_fn", "message"),
    [
        ("train_with_hook", r"Sequential\.0 has got or lost a hook during training"),
        ("train_with_layer", r"Sequential\.1: layers or parameters have come, gone or been replaced"),
    ],
)
def test_a_hook_or_a_layer_that_comes_is_refused_by_name(root: Path, train_fn: str, message: str) -> None:
    with pytest.raises(TaskError, match=message):
        units(root, "plain", train_fn)


def _dense(tensors: Any) -> dict[str, Any]:
    return {name: value.to_dense() if value.is_sparse else value for name, value in tensors.items()}
