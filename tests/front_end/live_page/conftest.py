"""A run in a real etcd."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from cerebro_elastic import __version__
from cerebro_elastic.config import StoreSettings
from cerebro_elastic.core.model.configs import Config
from cerebro_elastic.core.model.nodes import Node
from cerebro_elastic.core.model.run import Plan, Spec
from cerebro_elastic.front_end.live_page.feeds import Places
from cerebro_elastic.store.client.base import Delete
from cerebro_elastic.store.client.embedded import EmbeddedEtcd
from cerebro_elastic.store.client.etcd import EtcdStore
from cerebro_elastic.system.run_key import RunKey
from support.ledger import Ledger
from support.ui_server import HOSTILE, LiveRun


@pytest.fixture
def run(etcd: EmbeddedEtcd, tmp_path: Path) -> Iterator[LiveRun]:
    """Two configs on one node; the second has a hyper-parameter that would like to be HTML."""
    name = f"ui-{uuid.uuid4().hex[:8]}"
    space = {"lr": {"loguniform": [0.01, 1.0]}, "act": {"choice": ["relu", "tanh", HOSTILE]}}
    recipe = {"objective": {"metric": "val_acc", "mode": "max"}, "search": {"space": space}}
    plan = Plan(name, 1, 4)
    with closing(EtcdStore(etcd.settings)) as store:
        ledger = Ledger(store, name, RunKey.from_env(os.environ))
        ledger.open_run(Spec(plan, recipe, "", "", "", str(tmp_path), {}, "", __version__))
        lease = store.grant(60)
        leader_lease = store.grant(60)
        leader = ledger.lead("a-leader", leader_lease)
        assert leader is not None
        leader.create_config(Config("c0000", {"lr": 0.1, "act": "relu"}))
        leader.create_config(Config("c0001", {"lr": 0.5, "act": HOSTILE}))
        ledger.register(Node("node-a", "host"), lease)
        leader.assign_homes({0: ("node-a",)})
        live = LiveRun(ledger, leader, plan, leader_lease)
        live.visit("c0000", 0.5)
        yield live
        store.txn([], [Delete(item.key) for item in store.range(ledger.keys.prefix).items])


@pytest.fixture
def places(etcd: EmbeddedEtcd, tmp_path: Path) -> Places:
    return Places(tmp_path, StoreSettings.at(etcd.settings.endpoints[0]))
