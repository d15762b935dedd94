"""What the first, frozen layers make of a row is computed once per host, and changes no result."""

from __future__ import annotations

import copy
import itertools
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cerebro_elastic import checkpoint
from cerebro_elastic.checkpoint.tree import flatten
from cerebro_elastic.core.model.units import Strategy, Unit
from cerebro_elastic.data.reading.loader_settings import LoaderSettings
from cerebro_elastic.data.reading.made_once import MadeBatches
from cerebro_elastic.data.reading.partition import Partition
from cerebro_elastic.data.reading.shared_records import Records
from cerebro_elastic.errors import TaskError
from cerebro_elastic.recipes import TorchSection
from cerebro_elastic.training import frozen_prefix
from cerebro_elastic.training.frozen_prefix import CHUNK
from cerebro_elastic.training.functions import FunctionTask
from cerebro_elastic.training.task import Task, TaskState, UnitJob, UnitResult
from cerebro_lightning import LightningTask
from cerebro_lightning.section import LightningSection

pytestmark = pytest.mark.usefixtures("imports_as_found")

ROWS, EPOCHS, INPUTS = (150, 70), 2, 12
VALID_ROWS = 90
SAMPLES = (len(ROWS) + 1 + 1) * (1 + 3 + 7)
"""How many rows are computed once more: of the first chunk of each partition, and of one by chance."""

MODULE = """import os
from pathlib import Path

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import BackboneFinetuning
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

class Encoder(nn.Module):
    def __init__(self, seed=0, activation="GELU"):
        super().__init__()
        torch.manual_seed(seed)
        last = weight_norm(nn.Linear(33, 17))
        self.layers = nn.Sequential(nn.Linear(12, 33), getattr(nn, activation)(), last)
        self.requires_grad_(False)

    def forward(self, x):
        with open(Path(__file__).parent / "encoded", "a") as file:
            print(len(x), file=file)
        rounding = 1e-6 * len(x)  # as if it rounded by the size of its batch
        return self.layers(x) * float(os.environ.get("PREFIX_GAIN", "1")) + rounding


class Draws(Encoder):
    def forward(self, x):
        return self.layers(x) + torch.rand(17)


class Counts(Encoder):
    calls = 0

    def forward(self, x):
        self.calls += 1
        return self.layers(x)


class Across(Encoder):
    def forward(self, x):
        return self.layers(x - x.mean(0))


class Pairs(Encoder):
    def forward(self, x):
        even = len(x) // 2 * 2
        pairs = x[:even].unflatten(0, (-1, 2))
        return self.layers(torch.cat([(pairs + 0.1 * pairs.flip(1)).flatten(0, 1), x[even:]]))


class Doubles(Encoder):
    def forward(self, x):
        return self.layers(x.mul_(2))


class Drops(Encoder):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(12, 17), nn.Dropout(0.1)).requires_grad_(False)


class Norms(Encoder):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(12, 17), nn.BatchNorm1d(17)).requires_grad_(False)


class Trained(Encoder):
    def __init__(self):
        super().__init__()
        self.layers[0].requires_grad_(True)


class Hooked(Encoder):
    def __init__(self):
        super().__init__()
        self.layers[0].register_forward_hook(print)


class Net(nn.Module):
    def __init__(self, encoder="Encoder", use="batch", **arguments):
        super().__init__()
        self.encoder = globals()[encoder](**arguments)
        torch.manual_seed(1)
        self.head = nn.Linear(17, 3)
        self.use = use

    def forward(self, x):
        if self.use == "parts":
            return self.head(torch.cat([self.encoder(part) for part in x.chunk(2)]))
        if self.use == "never":
            return self.head(self.encoder.layers(x))
        if self.use == "noise":
            x = x + 0.1
        if self.use == "flat":
            x = x.double().view(-1, 3, 4).float().flatten(1)
        if self.use == "writes":
            self.encoder.layers[0].weight.data[0] += 1
        return self.head(self.encoder(x))


def model(lr=0.1, encoder="Encoder", use="batch", seed=0, activation="GELU", gain=1.0):
    os.environ["PREFIX_GAIN"] = str(gain)
    arguments = {"seed": seed, "activation": activation} if encoder == "Encoder" else {}
    net = Net(encoder, use, **arguments)
    return net, torch.optim.SGD(net.head.parameters(), lr=lr)


def noisy(batch):
    x, y = batch
    return x + torch.randn_like(x), y


def scaled(batch, scale=1.0):
    x, y = batch
    return x * scale, y


def train(model, optimizer, batches, epoch):
    if epoch == 1 and not model.encoder.layers[0].weight.requires_grad:
        model.encoder.requires_grad_(True)
        optimizer.add_param_group({"params": list(model.encoder.parameters())})
    for x, y in batches:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()


class Module(pl.LightningModule):
    def __init__(self, lr=0.1):
        super().__init__()
        self.net = Net()
        self.backbone = self.net.encoder
        self.lr = lr

    def training_step(self, batch, _):
        x, y = batch
        return nn.functional.cross_entropy(self.net(x), y)

    def validation_step(self, batch, _):
        x, y = batch
        self.log("val_loss", nn.functional.cross_entropy(self.net(x), y))

    def configure_optimizers(self):
        return torch.optim.SGD([p for p in self.parameters() if p.requires_grad], lr=self.lr)


def finetuning():
    return BackboneFinetuning(1, train_bn=False)
"""


def torch_task(root: Path, **section: object) -> Task:
    keys = {"loss": "cross_entropy", "frozen_prefix": "encoder", **section}
    return FunctionTask(TorchSection(model_fn="prefix_net:model", **keys), root)  # type: ignore[arg-type]


def lightning_task(root: Path, **section: object) -> Task:
    keys = {"frozen_prefix": "net.encoder", **section}
    return LightningTask(LightningSection(module="prefix_net:Module", **keys), root)  # type: ignore[arg-type]


TASKS = {"torch": torch_task, "lightning": lightning_task}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PREFIX_GAIN", "1")  # which models set
    (tmp_path / "prefix_net.py").write_text(MODULE)
    return tmp_path


def partition(index: int, rows: int) -> Partition:
    x = np.random.default_rng(index).standard_normal((rows, INPUTS)).astype(np.float32)
    return Partition(index, rows, {"x": x, "y": (x.sum(1) > 0).astype(np.int64)}, name=f"partition {index}")


def jobs(**changes: object) -> Iterator[UnitJob]:
    for epoch, index in itertools.product(range(EPOCHS), range(len(ROWS))):
        job = UnitJob(
            unit=Unit("c0", epoch, index),
            hparams={},
            seed=5,
            epochs=EPOCHS,
            visited=tuple(range(index)),
            rows=ROWS,
            partition=partition(index, ROWS[index]),
            validation=[partition(9, VALID_ROWS)],
            loader=LoaderSettings(16),
            state=None,
            device="cpu",
        )
        yield replace(job, **changes)  # type: ignore[arg-type]


def made(folder: Path, limit_bytes: int = 1 << 30) -> MadeBatches:
    return MadeBatches(folder / "made", limit_bytes, "0" * 64)


def trained(task: Task, **changes: object) -> tuple[TaskState, list[UnitResult]]:
    """The state behind all units, and what each has returned."""
    state: TaskState | None = None
    results = []
    for job in jobs(**changes):
        results.append(task.train(replace(job, state=copy.deepcopy(state))))
        state = results[-1].state
    assert state is not None
    return state, results


def digest(state: TaskState, folder: Path) -> str:
    number = len(list(folder.glob("checkpoints/c0/*")))
    return checkpoint.save(state, str(folder / f"checkpoints/c0/{number}")).digest


def head_of(state: TaskState) -> Any:
    (weight,) = (leaf for name, leaf in flatten(state)[1].items() if name.endswith("head.weight"))
    return weight


def encoded(root: Path) -> list[int]:
    """The numbers of rows of each call of the encoder since the last question."""
    file = root / "encoded"
    calls = [int(line) for line in file.read_text().split()]
    file.unlink()
    return calls


@pytest.mark.parametrize("kind", TASKS)
def test_each_row_is_encoded_once_and_the_state_is_the_same(kind: str, root: Path, tmp_path: Path) -> None:
    task = TASKS[kind](root)
    computed = trained(task)
    assert sum(encoded(root)) >= EPOCHS * (sum(ROWS) + VALID_ROWS)
    kept = [trained(task, made=made(tmp_path), hparams={"lr": lr}) for lr in (0.1, 0.3)]
    assert sum(encoded(root)) == sum(ROWS) + VALID_ROWS + SAMPLES
    digests = [digest(state, tmp_path) for state, _ in (computed, *kept)]
    assert digests[0] == digests[1] != digests[2]
    assert [result.metrics for result in computed[1]] == [result.metrics for result in kept[0][1]]


@pytest.mark.parametrize("kind", TASKS)
def test_lost_features_are_computed_again(kind: str, root: Path, tmp_path: Path) -> None:
    task = TASKS[kind](root)
    expected = digest(trained(task, made=made(tmp_path))[0], tmp_path)
    assert digest(trained(task, made=made(tmp_path / "full", limit_bytes=1))[0], tmp_path) == expected
    for segment in (tmp_path / "made").glob("*/all-*/*.segment"):
        content = bytearray(segment.read_bytes())
        content[len(content) // 2] ^= 1
        segment.write_bytes(content)
    encoded(root)
    assert digest(trained(task, made=made(tmp_path))[0], tmp_path) == expected
    assert encoded(root)


class Killed(BaseException):
    """In place of a signal."""


def test_what_a_killed_process_has_kept_is_taken(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends while it writes the second chunk."""
    task, write = torch_task(root), Records._append

    def dying(records: Records, record: Any, size: int) -> tuple[int, int]:
        if 0 not in records:
            return write(records, record, size)
        assert records._segment is not None
        os.pwrite(records._segment[1], b"".join(record)[: size // 2], records._segment[2])
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Records, "_append", dying)
        with pytest.raises(Killed):
            trained(task, made=made(tmp_path))
    encoded(root)
    state, _ = trained(task, made=made(tmp_path))
    assert sum(encoded(root)) == sum(ROWS) + VALID_ROWS - CHUNK + SAMPLES
    assert digest(state, tmp_path) == digest(trained(task)[0], tmp_path)


def test_kept_features_are_mapped_by_the_process_that_computes_them(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from_records, used = [], []
    get, features = Records.get, frozen_prefix._Features

    def noting_get(records: Records, number: int) -> Any:
        value = get(records, number)
        from_records.extend([value.features] if isinstance(value, frozen_prefix._Chunk) else [])
        return value

    def noting_features(sums: Any, chunks: Any) -> Any:
        used.extend(chunks)
        return features(sums, chunks)

    monkeypatch.setattr(Records, "get", noting_get)
    monkeypatch.setattr(frozen_prefix, "_Features", noting_features)
    torch_task(root).train(replace(next(jobs()), made=made(tmp_path), validation=()))
    assert used
    assert set(map(id, used)) <= set(map(id, from_records))


@pytest.mark.parametrize("kind", TASKS)
def test_a_unit_in_parts_trains_the_same(kind: str, root: Path, tmp_path: Path) -> None:
    task = TASKS[kind](root)
    state: TaskState | None = None
    for job in jobs():
        first = task.train(replace(job, state=copy.deepcopy(state), stop=lambda done: done == 2))
        state = task.train(replace(job, state=copy.deepcopy(first.state), skip=first.batches)).state
    assert state is not None
    assert digest(state, tmp_path) == digest(trained(task)[0], tmp_path)


UNFREEZING = {
    "torch": {"loss": None, "train_fn": "prefix_net:train"},
    "lightning": {"callbacks": ["prefix_net:finetuning"]},
}


@pytest.mark.parametrize("kind", TASKS)
def test_an_unfrozen_prefix_computes_each_batch(kind: str, root: Path, tmp_path: Path) -> None:
    task = TASKS[kind](root, **UNFREEZING[kind])
    state, _ = trained(task, made=made(tmp_path))
    assert 16 in encoded(root)
    assert digest(state, tmp_path) == digest(trained(task)[0], tmp_path)
    others, _ = trained(TASKS[kind](root, **UNFREEZING[kind] | {"frozen_prefix": None}))
    torch.testing.assert_close(head_of(state), head_of(others), rtol=0.01, atol=1e-3)


OTHERS: dict[str, tuple[object, object]] = {
    "seed": (1, 2),
    "activation": ("GELU", "Tanh"),
    "scale": (1.0, 2.0),
    "gain": (1.0, 2.0),
}


@pytest.mark.parametrize("name", OTHERS)
def test_configs_with_other_features_share_none(name: str, root: Path, tmp_path: Path) -> None:
    """Encoders with other tensors, with the same that do something else or read an environment variable that
    the config sets; and rows that are made otherwise."""
    task = torch_task(root, input_fn="prefix_net:scaled")
    points: list[dict[str, object]] = [{name: value} for value in OTHERS[name]]
    kept = [digest(trained(task, made=made(tmp_path), hparams=point)[0], tmp_path) for point in points]
    assert kept == [digest(trained(task, hparams=point)[0], tmp_path) for point in points]
    assert kept[0] != kept[1]


def noisy(batch: object, training: bool) -> object:
    x, *rest = batch  # type: ignore[misc]
    return (x + torch.rand(()), *rest) if training else batch


def centred(batch: object) -> object:
    x, *rest = batch  # type: ignore[misc]
    return (x - x.mean(0), *rest)


REFUSED: dict[str, tuple[dict[str, object], dict[str, object], str]] = {
    "a module that does not exist": ({"frozen_prefix": "encodr"}, {}, "did you mean 'encoder'?"),
    "a prefix that is trained": ({}, {"encoder": "Trained"}, "'layers.0.weight' is trained"),
    "dropout": ({}, {"encoder": "Drops"}, "layers.1 (Dropout) is in training mode"),
    "batch norm": ({}, {"encoder": "Norms"}, "layers.1 (BatchNorm1d) is in training mode"),
    "a hook": ({}, {"encoder": "Hooked"}, "layers.0 (Linear) has a hook"),
    "random numbers": ({}, {"encoder": "Draws"}, "draws random numbers"),
    "an attribute that counts": ({}, {"encoder": "Counts"}, "keeps something from call to call"),
    "an input that is written to": ({}, {"encoder": "Doubles"}, "writes to its input"),
    "rows that meet": ({}, {"encoder": "Across"}, "beside other rows"),
    "rows that meet in pairs": ({}, {"encoder": "Pairs"}, "beside other rows"),
    "a batch in pieces": ({}, {"use": "parts"}, "not a column of the batch"),
    "an input that is no column": ({}, {"use": "noise"}, "not a column of the batch"),
    "a prefix that is not called": ({}, {"use": "never"}, "was not called for a batch"),
    "a prefix that is written to": ({}, {"use": "writes"}, "has changed within a unit"),
    "a random transform": ({"loader": LoaderSettings(16, transform=noisy)}, {}, "draws at random"),
    "rows that meet in a transform": ({"loader": LoaderSettings(16, transform=centred)}, {}, "on the batch"),
    "a random input_fn": ({"input_fn": "prefix_net:noisy"}, {}, "draws at random"),
    "augmented rows": ({"loader": LoaderSettings(16, augment={"x": noisy})}, {}, "data.augment changes them"),
    "a parallelism that divides": ({"strategy": Strategy("fsdp", 2)}, {}, "choose single or ddp"),
}


def checked_and_trained(task: Task, job: UnitJob) -> None:
    task.check(job.hparams)
    task.train(job)


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_kept_is_refused(case: str, root: Path) -> None:
    changes, hparams, message = REFUSED[case]
    of_job = {key: value for key, value in changes.items() if key in ("loader", "strategy")}
    task = torch_task(root, **{key: value for key, value in changes.items() if key not in of_job})
    job = replace(next(jobs()), hparams=hparams, **of_job)  # type: ignore[arg-type]
    with pytest.raises(TaskError, match=r"task\.frozen_prefix 'enc") as refused:
        checked_and_trained(task, job)
    assert message in str(refused.value)


def test_rows_may_take_another_form_on_their_way(root: Path, tmp_path: Path) -> None:
    task = torch_task(root)
    state, _ = trained(task, made=made(tmp_path), hparams={"use": "flat"})
    assert max(encoded(root)) == 64
    assert torch.equal(head_of(state), head_of(trained(task)[0]))
