"""A project as a user has it, and the record of a run in a store."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from cerebro_elastic import __version__
from cerebro_elastic.core.model.run import Plan, Spec
from cerebro_elastic.store.client.base import Delete
from cerebro_elastic.store.client.embedded import EmbeddedEtcd
from cerebro_elastic.store.client.etcd import EtcdStore
from cerebro_elastic.system.run_key import RunKey
from support.ledger import Ledger

NET = """
import lightning as L
import torch
from torch import nn


class Net(L.LightningModule):
    def __init__(self, lr: float, width: int) -> None:
        super().__init__()
        self.lr, self.net = lr, nn.Linear(4, 2)

    def training_step(self, batch, batch_idx):
        return nn.functional.cross_entropy(self.net(batch[0]), batch[1])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.lr)


class Plain(nn.Module):
    pass


def function():
    pass
"""

DATA = """
import sys

import numpy as np


def load():
    return {"x": np.zeros((20, 4), np.float32), "y": np.zeros(20, np.int64)}


def three_rows():
    return {name: column[:3] for name, column in load().items()}


def uneven():
    return {**load(), "y": np.zeros(7, np.int64)}


def nan():
    return {**load(), "y": np.where(np.arange(20) == 5, np.nan, 1.0)}


def raises():
    return {}["images"]


def exits():
    sys.exit(3)


def nothing():
    pass


def words():
    return {"x": np.array(["a", "b"] * 10), "y": np.arange(20)}
"""

RECIPE = """\
epochs: 3
task: {kind: lightning, module: "a_users_net:Net"}
data: {source: "a_users_data:load", partitions: 4, valid: 0.2}
search:
  space:
    lr: [0.01, 0.001]
    width: [16, 64]
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder as a user would have it, in which the commands are typed."""
    (tmp_path / "a_users_net.py").write_text(NET)
    (tmp_path / "a_users_data.py").write_text(DATA)
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def ledger(etcd: EmbeddedEtcd, project: Path) -> Iterator[Ledger]:
    """The record of a run that goes on in a store."""
    run = f"digits-{uuid.uuid4().hex[:8]}"
    files = project / "files"
    files.mkdir(exist_ok=True)
    for name in ("manifest.json", "spec.json"):
        (files / name).touch()
    recipe = {
        "task": {"kind": "torch", "model_fn": "a_net:net", "loss": "mse_loss", "optimizer": "SGD"},
        "data": {"url": str(files)},
        "search": {"space": {"lr": [0.1]}},
    }
    spec = Spec(Plan(run, 1, 1), recipe, "", str(files), "", str(project), {}, str(files), __version__)
    with closing(EtcdStore(etcd.settings)) as store:
        ledger = Ledger(store, run, RunKey.from_env(os.environ))
        ledger.open_run(spec)
        yield ledger
        store.txn([], [Delete(item.key) for item in store.range(ledger.keys.prefix).items])


@pytest.fixture
def at_etcd(etcd: EmbeddedEtcd) -> list[str]:
    return ["--etcd", etcd.settings.endpoints[0]]
