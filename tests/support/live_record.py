"""The record of a run that goes on in a real etcd; a test plays its leader and its node."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from cerebro_elastic import __version__
from cerebro_elastic.core.history.members import member
from cerebro_elastic.core.invariants import check
from cerebro_elastic.core.model.attempts import Attempt, Visit
from cerebro_elastic.core.model.configs import Config
from cerebro_elastic.core.model.events import ConfigCreated
from cerebro_elastic.core.model.nodes import Node
from cerebro_elastic.core.model.run import Plan, Spec
from cerebro_elastic.core.model.state import State
from cerebro_elastic.core.model.units import CheckpointRef, Unit
from cerebro_elastic.store.client.base import Delete
from cerebro_elastic.store.client.embedded import EmbeddedEtcd
from cerebro_elastic.store.client.etcd import EtcdStore
from cerebro_elastic.system.run_key import RunKey
from support.ledger import Leader, Ledger

PLAN = Plan("", 1, 4)


@contextmanager
def live_record(etcd: EmbeddedEtcd, project: Path, **keys: Any) -> Iterator[Ledger]:
    """A run in which c0000 has ended three of its four epochs, the second being its best, and c0001 none.
    ``keys`` are those of the recipe that differ; with ``repeats`` nothing was trained yet."""
    name = f"people-{uuid.uuid4().hex[:8]}"
    space = {"lr": {"loguniform": [0.01, 1.0]}}
    task = {"kind": "torch", "model_fn": "a_net:model", "loss": "cross_entropy", "optimizer": "SGD"}
    search = {"method": "random", "num": 2, "space": space}
    objective = {"metric": "val_acc", "mode": "max"}
    recipe = {"task": task, "data": {"source": "a:b"}, "objective": objective, "search": search, **keys}
    repeats = keys.get("repeats", 0)
    plan = Plan(name, PLAN.partitions, PLAN.epochs, repeats=repeats)
    with closing(EtcdStore(etcd.settings)) as store:
        ledger = Ledger(store, name, RunKey.from_env(os.environ))
        ledger.open_run(Spec(plan, recipe, "", "", "", str(project), {}, "", __version__))
        lease = store.grant(60)
        leader = ledger.lead("a-leader", lease)
        assert leader is not None
        for config in ("c0000", "c0001"):
            hparams = {"lr": 0.1, "act": "relu"}
            trainings = [member(config, hparams, None, repeat, plan) for repeat in range(repeats)]
            for each in trainings or [Config(config, hparams)]:
                leader.write(State(plan=plan), ConfigCreated(0, each))
        ledger.register(Node("n", "host"), lease)
        leader.assign_homes({0: ("n",)})
        for epoch, accuracy in enumerate(() if repeats else (0.5, 0.9, 0.7)):
            visit(ledger, leader, plan, epoch, accuracy)
        yield ledger
        assert check([ledger.read()]) == []
        store.txn([], [Delete(item.key) for item in store.range(ledger.keys.prefix).items])


def visit(ledger: Ledger, leader: Leader, plan: Plan, epoch: int, accuracy: float) -> None:
    state = ledger.state()
    config = state.configs["c0000"]
    unit = Unit("c0000", epoch, 0)
    registration = state.nodes["n"].registration
    leader.assign(Attempt(unit, "n", registration, config.revision, input=config.head))
    attempt = ledger.assignment("n")
    assert attempt is not None
    output = CheckpointRef(f"/states/{epoch}", str(epoch), 10)
    done = Visit(
        unit,
        0,
        "n",
        attempt.token,
        config.head,
        output,
        1,
        1,
        1.0,
        0.1,
        1000.0 + epoch,
        {"val_acc": accuracy},
    )
    assert ledger.commit(attempt, config, done, plan)
