"""Units of plain PyTorch functions against the loop that anybody would write: equal in every bit."""

from __future__ import annotations

import copy
import random
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from cerebro_elastic.core.model.units import Phase, Unit
from cerebro_elastic.data.reading.loader_settings import LoaderSettings
from cerebro_elastic.data.reading.partition import Partition, sample_order
from cerebro_elastic.errors import TaskError
from cerebro_elastic.hop.checkpoint.tree import flatten, unflatten
from cerebro_elastic.hop.generators import rng
from cerebro_elastic.recipes import TorchSection
from cerebro_elastic.training.functions import FunctionTask
from cerebro_elastic.training.task import TaskState, UnitJob, UnitResult
from support.same import assert_same

SEED, EPOCHS, BATCH = 5, 3, 4
ROWS = (10, 7, 8)
ORDERS = ((2, 0, 1), (0, 1, 2), (1, 2, 0))

USERS_MODULE = """
import numpy as np
import torch
from torch import nn

def net(width=8):
    first = [nn.Linear(3, width), nn.BatchNorm1d(width), nn.ReLU()]
    return nn.Sequential(*first, nn.Dropout(0.3), nn.Linear(width, 2))

def sgd(lr, width=8):
    return sgd_of(net(width), lr)

def one_cycle(lr, steps):
    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    return model, optimizer, torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=lr, total_steps=steps)

def step_lr(lr):
    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    return model, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)

def plateau(lr):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    return model, optimizer, torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, threshold=0.5)

def warm_up(lr):
    model = net()
    optimizer = torch.optim.NAdam(model.parameters(), lr=lr)
    warm = torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=4)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 12)
    return model, optimizer, torch.optim.lr_scheduler.SequentialLR(optimizer, [warm, cosine], [4])

class Halving:
    # As those of timm: no LRScheduler, and step takes the epoch.
    def __init__(self, optimizer, lr):
        self.optimizer, self.lr, self.updates = optimizer, lr, 0
    def step(self, epoch, metric=None):
        self.optimizer.param_groups[0]["lr"] = self.lr / 2 ** epoch
    def step_update(self, num_updates, metric=None):
        self.updates = num_updates
        self.step(num_updates // 4)
    def state_dict(self):
        return {"lr": self.lr, "updates": self.updates}
    def load_state_dict(self, state):
        vars(self).update(state)

class Modal(torch.optim.SGD):
    # As those of schedulefree: it evaluates with other weights than it trains.
    def train(self): self._move("train", 0.5)
    def eval(self): self._move("eval", 2.0)
    def _move(self, mode, factor):
        for group in self.param_groups:
            if group.get("mode", "eval") != mode:
                group["mode"] = mode
                for p in group["params"]:
                    p.data.mul_(factor)

def halving(lr):
    model = net()
    optimizer = Modal(model.parameters(), lr=lr)
    return model, optimizer, Halving(optimizer, lr)

def accumulate(model, optimizer, batches):
    for number, (x, y) in enumerate(batches):
        nn.functional.cross_entropy(model(x), y).backward()
        if number % 2:
            optimizer.step()
            optimizer.zero_grad()

def noisy(batch, noise=0.1):
    x, y = batch
    return x + noise * torch.from_numpy(np.random.standard_normal(x.shape).astype("float32")), y

def train(model, optimizer, batches, epoch, label_smoothing=0.0):
    losses = []
    for x, y in batches:
        loss = nn.functional.cross_entropy(model(x), y, label_smoothing=label_smoothing)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"loss": sum(losses) / len(losses)}

def evaluate(model, batches):
    assert not model.training and not torch.is_grad_enabled()
    right = total = 0
    for x, y in batches:
        right += (model(x).argmax(1) == y).sum().item()
        total += len(y)
    return {"accuracy": right / total}

def half(output, target):
    return torch.tensor(0.5)

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

def sgd_of(model, lr):
    return model, torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)

def buffers(lr):
    return sgd_of(Buffers(), lr)

def lazy(lr):
    return sgd_of(nn.Sequential(nn.LazyLinear(4), nn.LazyBatchNorm1d(), nn.ReLU(), nn.LazyLinear(2)), lr)

def train_with_hook(model, batches):
    model[0].register_forward_hook(lambda *_: None)
    for x, y in batches:
        model(x)

def train_with_layer(model, batches):
    for x, y in batches:
        model(x)
    model.append(nn.Linear(2, 2))

def returns_three_models(): return net(), net(), net()
def returns_nothing(): return None
def returns_list(batches): return [1]
not_a_function = 3
"""


@pytest.fixture(autouse=True)
def process_as_found() -> Iterator[None]:
    path, modules = list(sys.path), set(sys.modules)
    with rng.borrowed():
        yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if name.startswith("users_"):
            del sys.modules[name]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "users_net.py").write_text(USERS_MODULE)
    return tmp_path


def partition(index: int, rows: int) -> Partition:
    generator = np.random.default_rng(index)
    x = generator.standard_normal((rows, 3)).astype(np.float32)
    return Partition(index, rows, {"x": x, "y": (x.sum(1) > 0).astype(np.int64)})


TRAIN = [partition(j, rows) for j, rows in enumerate(ROWS)]
VALID = [partition(9, 6)]


def task(root: Path, **section: Any) -> FunctionTask:
    return FunctionTask(TorchSection(**{"loss": "cross_entropy", **section}), root)


def job(state: TaskState | None, epoch: int, visited: tuple[int, ...], index: int, **hparams: Any) -> UnitJob:
    last = len(visited) + 1 == len(ROWS)
    return UnitJob(
        unit=Unit("c0", epoch, index),
        hparams=hparams,
        seed=SEED,
        epochs=EPOCHS,
        visited=visited,
        rows=ROWS,
        partition=TRAIN[index],
        validation=VALID if last else (),
        loader=LoaderSettings(BATCH),
        state=state,
        device="cpu",
    )


def run(trained: FunctionTask, **hparams: Any) -> list[UnitResult]:
    """All units of a config. Between them the state goes the way of a checkpoint, and what anybody
    else does with the generators must not matter."""
    results: list[UnitResult] = []
    state: TaskState | None = None
    for epoch, order in enumerate(ORDERS):
        for k, index in enumerate(order):
            torch.rand(1), np.random.random(), random.random()
            results.append(trained.train(job(state, epoch, order[:k], index, **hparams)))
            state = unflatten(*flatten(copy.deepcopy(results[-1].state)))
    return results


class Reference:
    """The hand-written sequential loop."""

    def __init__(self, module: Any, model_fn: str, *, per: str = "epoch", **hparams: Any) -> None:
        rng.seed_all(SEED)
        self.model, *rest = getattr(module, model_fn)(**hparams)
        self.optimizer, self.scheduler = (*rest, None)[:2]
        self.per = per
        self.steps = 0
        self.clip: float | None = None
        self.input_fn: Any = lambda batch: batch
        self.train_loss: list[float] = []
        self.val_loss: list[float] = []

    def run(self) -> None:
        for epoch, order in enumerate(ORDERS):
            total = 0.0
            self.set_mode("train")
            for index in order:
                total += sum(self.step(batch) * len(batch[1]) for batch in self.batches(epoch, index))
            self.train_loss.append(total / sum(ROWS))
            self.validate()
            if self.scheduler is not None and self.per == "epoch":
                plateau = isinstance(self.scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau)
                numbered = [epoch + 1] if type(self.scheduler).__name__ == "Halving" else []
                self.scheduler.step(*self.val_loss[-1:] if plateau else numbered)

    def set_mode(self, mode: str) -> None:
        getattr(self.model, mode)()
        getattr(self.optimizer, mode, int)()

    def batches(self, epoch: int, index: int) -> Iterator[Any]:
        order = sample_order(SEED, epoch, index, ROWS[index])
        for start in range(0, len(order), BATCH):
            rows = order[start : start + BATCH]
            columns = TRAIN[index].columns
            yield torch.from_numpy(columns["x"][rows]), torch.from_numpy(columns["y"][rows])

    def step(self, batch: Any) -> float:
        x, y = self.input_fn(batch)
        self.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(self.model(x), y)
        loss.backward()
        if self.clip is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
        self.optimizer.step()
        self.steps += 1
        if self.scheduler is not None and self.per == "step":
            timm = getattr(self.scheduler, "step_update", None)
            timm(self.steps) if timm else self.scheduler.step()
        return loss.item()

    def validate(self) -> None:
        self.set_mode("eval")
        x, y = (torch.from_numpy(VALID[0].columns[name]) for name in ("x", "y"))
        with torch.no_grad():
            parts = [
                nn.functional.cross_entropy(
                    self.model(self.input_fn((x[i : i + 4], y[i : i + 4]))[0]), y[i : i + 4]
                )
                for i in (0, 4)
            ]
        self.val_loss.append((float(parts[0]) * 4 + float(parts[1]) * 2) / 6)


CASES: dict[str, dict[str, Any]] = {
    "adamw_one_cycle_per_step": {"model_fn": "users_net:one_cycle", "step_scheduler": "step"},
    "adamw_step_lr_per_epoch": {"model_fn": "users_net:step_lr"},
    "sequential_lr_per_step": {"model_fn": "users_net:warm_up", "step_scheduler": "step"},
    "plateau": {"model_fn": "users_net:plateau"},
    "as timm's and schedulefree's": {"model_fn": "users_net:halving"},
    "as timm's, per step": {"model_fn": "users_net:halving", "step_scheduler": "step"},
    "layers made by the first batch": {"model_fn": "users_net:lazy"},
    "buffers that grow, come, and change their type": {"model_fn": "users_net:buffers"},
    "clip, noise of numpy": {"model_fn": "users_net:sgd", "clip": 0.05, "input_fn": "users_net:noisy"},
}


@pytest.mark.parametrize("case", CASES)
def test_units_are_the_sequential_loop(case: str, root: Path) -> None:
    section = CASES[case]
    results = run(task(root, **section), lr=0.1)

    import users_net  # type: ignore[import-not-found]  # found by the task

    name = section["model_fn"].partition(":")[2]
    more = {"steps": EPOCHS * 7} if name == "one_cycle" else {}
    reference = Reference(users_net, name, per=section.get("step_scheduler", "epoch"), lr=0.1, **more)
    reference.clip = section.get("clip")
    if "input_fn" in section:
        reference.input_fn = users_net.noisy
    reference.run()

    state = results[-1].state
    assert_same(_dense(state["model"]), _dense(reference.model.state_dict()))
    assert_same(hidden(state), {k: v for k, v in reference.model.named_buffers() if k in hidden(state)})
    assert list(hidden(state)) == (["hidden"] if name == "buffers" else []), "those that training writes to"
    packed = reference.optimizer.state_dict()
    for slots, expected in zip(state["optimizer"]["state"].values(), packed["state"].values(), strict=True):
        assert_same(slots, expected)
    for key in ("lr", "momentum", "betas", "max_lr"):
        assert state["optimizer"]["param_groups"][0].get(key) == packed["param_groups"][0].get(key)
    assert_same(state["scheduler"], reference.scheduler and reference.scheduler.state_dict())
    assert_same(state["rng"], rng.capture())
    assert state["step"] == EPOCHS * 7
    epochs = [result.metrics for result in results if "val_loss" in result.metrics]
    assert [m["train_loss"] for m in epochs] == pytest.approx(reference.train_loss, abs=1e-12)
    assert [m["val_loss"] for m in epochs] == pytest.approx(reference.val_loss, abs=1e-12)


def hidden(state: TaskState) -> dict[str, Any]:
    """The buffers that the model's state dict leaves out, as far as they are carried."""
    parts = state["objects"]["model"]["buffers"]
    return {f"{at}.{name}".lstrip("."): value for at, part in parts.items() for name, value in part.items()}


def _dense(tensors: Any) -> dict[str, Any]:
    return {name: value.to_dense() if value.is_sparse else value for name, value in tensors.items()}


@pytest.mark.parametrize(
    ("train_fn", "message"),
    [
        ("train_with_hook", r"Sequential\.0 has got or lost a hook during training"),
        ("train_with_layer", r"Sequential\.5: layers or parameters have come, gone or been replaced"),
    ],
)
def test_a_hook_or_a_layer_that_comes_is_refused_by_name(root: Path, train_fn: str, message: str) -> None:
    with pytest.raises(TaskError, match=message):
        run(task(root, model_fn="users_net:sgd", train_fn=f"users_net:{train_fn}"), lr=0.1)


def test_gradients_that_a_train_fn_leaves_hop(root: Path) -> None:
    section = {"model_fn": "users_net:sgd", "train_fn": "users_net:accumulate"}
    *_, last = run(task(root, **section), lr=0.1)
    import users_net

    reference = Reference(users_net, "sgd", lr=0.1)
    for epoch, order in enumerate(ORDERS):
        for index in order:
            reference.model.train()
            users_net.accumulate(reference.model, reference.optimizer, reference.batches(epoch, index))
        reference.model.eval()
    assert_same(dict(last.state["model"]), dict(reference.model.state_dict()))
    assert last.state["grads"]
    *_, stepped = run(task(root, model_fn="users_net:sgd", train_fn="users_net:train"), lr=0.1)
    assert not stepped.state["grads"], "the optimizer has used them"


def test_results_give_samples_batches_rows_and_metrics(root: Path) -> None:
    results = run(
        task(root, model_fn="users_net:sgd", metrics={"accuracy": "accuracy", "half": "users_net:half"}),
        lr=0.1,
    )
    assert [r.samples for r in results[:3]] == [8, 10, 7]
    assert [r.batches for r in results[:3]] == [2, 3, 2]
    assert [row["step"] for r in results for row in r.log][:4] == [2, 5, 7, 10]
    assert set(results[0].metrics) == {"train_loss"}
    assert set(results[2].metrics) == {"train_loss", "val_loss", "val_accuracy", "val_half"}
    weighted = sum(r.log[0]["train_loss"] * r.samples for r in results[:3]) / 25
    assert results[2].metrics["train_loss"] == pytest.approx(weighted)
    assert results[2].metrics["val_half"] == 0.5
    assert results[2].metrics["val_accuracy"] in {n / 6 for n in range(7)}


def test_hyper_parameters_go_to_the_functions_that_take_them(root: Path) -> None:
    trained = task(
        root, model_fn="users_net:net", optimizer="AdamW", input_fn="users_net:noisy", args={"noise": 0.0}
    )
    hparams = {"width": 16, "lr": 0.02, "weight_decay": 0.3, "batch_size": 5}
    trained.check(hparams)
    result = trained.train(job(None, 0, (), 0, **hparams))
    group = result.state["optimizer"]["param_groups"][0]
    assert (group["lr"], group["weight_decay"]) == (0.02, 0.3)
    assert result.state["model"]["0.weight"].shape == (16, 3)
    assert result.batches == 2, "10 rows in batches of 5"


def test_users_own_passes(root: Path) -> None:
    own = task(
        root, model_fn="users_net:sgd", train_fn="users_net:train", eval_fn="users_net:evaluate", loss=None
    )
    own.check({"lr": 0.1, "label_smoothing": 0.0})
    results = run(own, lr=0.1)
    ready = run(task(root, model_fn="users_net:sgd"), lr=0.1)
    assert_same(results[-1].state["model"], ready[-1].state["model"])
    assert set(results[-1].metrics) == {"train_loss", "val_accuracy"}
    assert own.evaluates


def test_evaluate_changes_nothing_and_repeats(root: Path) -> None:
    trained = task(root, model_fn="users_net:sgd", metrics={"accuracy": "accuracy"})
    state = trained.train(job(None, 0, (), 0, lr=0.1)).state
    before = copy.deepcopy(state)
    evaluation = replace(
        job(state, 0, (0, 1, 2), 0, lr=0.1),
        unit=Unit("c0", 0, 0, Phase.EVALUATE),
        partition=VALID[0],
        validation=(),
    )
    first, second = trained.evaluate(evaluation), trained.evaluate(evaluation)
    assert first.metrics == second.metrics
    assert set(first.metrics) == {"val_loss", "val_accuracy"}
    assert first.samples == 6
    assert_same(first.state, before)


@pytest.mark.parametrize(
    ("section", "hparams", "words"),
    [
        ({}, {"lr": 0.1, "widht": 8}, "takes no hyper-parameter 'widht'; did you mean 'width'?"),
        ({}, {"width": 8}, "model_fn needs lr: search over it"),
        ({"args": {"lr": 0.1}}, {"lr": 0.1}, "lr: both in task.args and searched"),
        ({"args": {"depth": 1}}, {"lr": 0.1}, "takes no hyper-parameter 'depth'"),
        ({}, {"lr": 0.1, "epochs": 3}, "epochs: a name of the system's own"),
        ({}, {"lr": 0.1, "batch_size": 0}, "batch_size is 0"),
        ({}, {"lr": 0.1, "batch_size": "8"}, "batch_size is '8'"),
        ({"input_fn": "users_net:noisy"}, {"lr": 0.1, "batch": 8}, "takes a hyper-parameter 'batch'"),
    ],
)
def test_hyper_parameters_are_checked(
    section: dict[str, Any], hparams: dict[str, Any], words: str, root: Path
) -> None:
    with pytest.raises(TaskError) as caught:
        task(root, model_fn="users_net:sgd", **section).check(hparams)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"model_fn": "users_net:sdg"}, "users_net has no 'sdg'; did you mean 'sgd'?"),
        ({"model_fn": "users_net:not_a_function"}, "is a int, expected a function"),
        ({"model_fn": "users_net:sgd", "loss": "cross_entrpy"}, "did you mean 'cross_entropy'?"),
        ({"model_fn": "users_net:net", "optimizer": "AdmW"}, "did you mean 'AdamW'?"),
        (
            {"model_fn": "users_net:sgd", "metrics": {"acc": "acuracy"}},
            "task.metrics.acc is 'acuracy'; did you",
        ),
    ],
)
def test_functions_that_cannot_be_found(section: dict[str, Any], words: str, root: Path) -> None:
    with pytest.raises(TaskError) as caught:
        task(root, **section)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"model_fn": "users_net:net"}, "returns a model alone: name a class of torch.optim"),
        ({"model_fn": "users_net:sgd", "optimizer": "SGD", "args": {"lr": 0.1}}, "names another: keep one"),
        ({"model_fn": "users_net:returns_three_models"}, "returned (Sequential, Sequential, Sequential)"),
        ({"model_fn": "users_net:returns_nothing"}, "returned a NoneType"),
        (
            {"model_fn": "users_net:sgd", "args": {"lr": 0.1}, "train_fn": "users_net:returns_list"},
            "returned a list: expected metrics by name",
        ),
    ],
)
def test_functions_that_return_something_else(section: dict[str, Any], words: str, root: Path) -> None:
    with pytest.raises(TaskError) as caught:
        task(root, **section).train(job(None, 0, (), 0))
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("model_fn", "optimizer", "hparams"),
    [("net", "SGD", {"lr": 0.1, "width": 5}), ("sgd", None, {"lr": 0.1}), ("one_cycle", None, {"lr": 0.1})],
)
def test_an_exported_model_is_loaded_by_the_code_of_its_card(
    model_fn: str, optimizer: str | None, hparams: dict[str, Any], root: Path, tmp_path: Path
) -> None:
    trained = task(root, model_fn=f"users_net:{model_fn}", optimizer=optimizer)
    state = trained.train(job(None, 0, (), 0, **hparams)).state
    exported = trained.export(hparams, state, SEED, EPOCHS, batches=8)
    save_file(dict(exported.weights), tmp_path / "a.safetensors")
    names: dict[str, Any] = {}
    exec(exported.load.replace("MODEL", str(tmp_path / "a.safetensors")), names)
    assert_same(dict(names["model"].state_dict()), dict(state["model"]))
    assert exported.checkpoint is None
    left_out = " ".join(exported.not_carried)
    assert "optimizer" in left_out
    assert ("scheduler" in left_out) == (model_fn == "one_cycle")
    assert "random generators" in left_out
