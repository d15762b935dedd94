"""A possible history of a run in which much went wrong."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from cerebro_elastic.core.history.machine import fold
from cerebro_elastic.core.history.progress import next_units, position
from cerebro_elastic.core.model import events as ev
from cerebro_elastic.core.model.attempts import Attempt, Failure, FailureKind, Member, ProfileResult, Visit
from cerebro_elastic.core.model.configs import Config, Status
from cerebro_elastic.core.model.events import Event
from cerebro_elastic.core.model.nodes import Node
from cerebro_elastic.core.model.run import Plan, Spec
from cerebro_elastic.core.model.state import State
from cerebro_elastic.core.model.units import CheckpointRef, Phase, Strategy
from cerebro_elastic.data.manifest import Column, ColumnFile, Manifest, PartitionFiles

BEGIN = 1_700_000_000.0
"""When the first unit began."""
GANG = Strategy("ddp", 2, 2)


class Past:
    """Makes a history that the core machine accepts. Starts are seconds since ``BEGIN``."""

    def __init__(
        self, configs: Mapping[str, Mapping[str, Any]], partitions: int = 2, epochs: int = 2
    ) -> None:
        self.state = State()
        self.events: list[Event] = []
        self.plan = Plan("a-run", partitions, epochs, max_nodes=8, strategies=(Strategy(), GANG))
        self.tell(ev.RunOpened, plan=self.plan)
        self.tell(ev.LeaderChanged, leader="a-leader")
        for name, hparams in configs.items():
            self.tell(ev.ConfigCreated, config=Config(name, hparams))

    def tell(self, kind: type[Event], **values: Any) -> int:
        event: Any = kind(revision=len(self.events) + 2, **values)
        self.state = fold(self.state, event)
        self.events.append(event)
        return int(event.revision)

    @staticmethod
    def after(state: State, event: Event) -> State:
        return fold(state, event)

    def join(self, *names: str) -> None:
        for name in names:
            self.tell(ev.NodeJoined, node=Node(name, f"host-{name[-1]}", registration=len(self.events) + 2))

    def place(self) -> None:
        nodes = sorted(self.state.nodes)
        self.tell(ev.HomesAssigned, homes={j: (nodes[j % len(nodes)],) for j in range(self.plan.partitions)})

    def assign(self, config: str, node: str) -> Attempt:
        row = self.state.configs[config]
        unit = next_units(row, self.plan)[0]
        registration = self.state.nodes[node].registration
        token = self.tell(
            ev.UnitAssigned, attempt=Attempt(unit, node, registration, row.revision, input=row.head)
        )
        return Attempt(unit, node, registration, row.revision, input=row.head, token=token)

    def try_on(self, config: str, *nodes: str) -> None:
        """A trial on a gang."""
        row = self.state.configs[config]
        unit = replace(next_units(row, self.plan)[0], phase=Phase.PROFILE)
        lead, *gang = (Member(name, self.state.nodes[name].registration) for name in nodes)
        attempt = Attempt(unit, lead.node, lead.registration, row.revision, row.head, GANG, gang=tuple(gang))
        token = self.tell(ev.UnitAssigned, attempt=attempt)
        result = ProfileResult(unit, GANG, "cpu", lead.node, token, 0.25, 5_000_000, None)
        self.tell(ev.ProfileDone, profile=result)

    def commit(
        self, attempt: Attempt, start: float, metrics: Mapping[str, float], saving: float = 0.0
    ) -> None:
        """A unit of one second, a fifth of which is the hop, and perhaps ``saving`` behind it."""
        row, unit = self.state.configs[attempt.unit.config], attempt.unit
        name = f"{unit.config}/{unit.epoch}-{unit.partition}"
        visit = Visit(
            unit=unit,
            index_in_epoch=position(row),
            node=attempt.node,
            attempt=attempt.token,
            input=row.head,
            output=CheckpointRef(f"/states/{name}", "d" * 64, 1000),
            samples=100,
            batches=10,
            seconds=0.8,
            hop_seconds=0.2,
            started=BEGIN + start,
            metrics=metrics,
            save_seconds=saving,
        )
        self.tell(ev.UnitCommitted, visit=visit)

    def visit(self, config: str, node: str, start: float, **metrics: float) -> None:
        self.commit(self.assign(config, node), start, metrics)

    def fail(self, attempt: Attempt, kind: FailureKind, story: str) -> None:
        self.tell(ev.UnitFailed, failure=Failure(attempt.unit, attempt.node, attempt.token, kind, story))

    def end(self) -> None:
        for config in self.state.configs.values():
            if config.status is Status.LIVE:
                self.tell(ev.ConfigEnded, config=config.id, status=Status.STOPPED, reason="enough")
        self.tell(ev.RunEnded, outcome="finished")

    @property
    def spec(self) -> Spec:
        recipe = {
            "objective": {"metric": "val_acc", "mode": "max"},
            "search": {"space": {"lr": {"loguniform": [0.001, 0.1]}, "act": {"choice": ["relu", "tanh"]}}},
        }
        return Spec(
            self.plan, recipe, "r" * 64, "/data", "d" * 64, "/project", {"net.py": "c" * 64}, "/runs", "1.0"
        )


@pytest.fixture
def past() -> Past:
    """Four configs on three nodes: one node is lost in a unit, one leaves, a unit fails, a config fails
    for a NaN, one is stopped; nothing more happens after about nine seconds."""
    past = Past(
        {
            "c0000": {"lr": 0.1, "act": "relu"},
            "c0001": {"lr": 0.01, "act": "tanh"},
            "c0002": {"lr": 0.001, "act": "relu"},
            "c0003": {"lr": 0.05, "act": '<b>odd & "quoted"</b>'},
        }
    )
    past.join("node-0", "node-1", "node-2")
    past.place()
    past.visit("c0000", "node-0", 0.0)
    lost = past.assign("c0001", "node-1")
    past.visit("c0002", "node-2", 0.5)
    past.visit("c0000", "node-2", 1.5, val_acc=0.5, loss=1.0)
    past.tell(ev.NodeLeft, node="node-1")
    past.tell(ev.UnitWithdrawn, node="node-1", token=lost.token)
    past.visit("c0001", "node-0", 2.0)
    broken = past.assign("c0003", "node-2")
    past.visit("c0002", "node-0", 3.0, val_acc=0.7, loss=math.nan)
    past.fail(broken, FailureKind.DISK_FULL, "no space left")
    past.tell(ev.NodeQuarantined, node="node-2", why="its disk is full", failure=broken.token, seconds=60.0)
    past.join("node-1")
    past.visit("c0001", "node-1", 4.0, val_acc=0.9, loss=0.2)
    past.visit("c0001", "node-0", 5.0)
    past.visit("c0001", "node-0", 6.0, val_acc=0.8, loss=0.1)
    past.tell(ev.NodeDraining, node="node-1", grace=30.0)
    past.tell(ev.NodeLeft, node="node-1")
    past.visit("c0000", "node-0", 7.0)
    past.visit("c0000", "node-0", 8.0, val_acc=0.6, loss=0.5)
    past.tell(ev.ConfigEnded, config="c0003", status=Status.FAILED, reason="the loss is NaN")
    past.end()
    return past


@pytest.fixture
def manifest() -> Manifest:
    """Two partitions of 100,000 bytes, each on its own file."""
    partitions = tuple(
        PartitionFiles(100, (ColumnFile(f"train-{i}/000.npy", 100_000, "0" * 64),)) for i in range(2)
    )
    return Manifest((Column("x", "<f4", (4,)),), partitions, (), 0)
