"""Nodes by real torchrun, driven through the ledger as a controller would: they leave, sleep, hang, and wait
for an etcd that is away."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cerebro_elastic import __version__
from cerebro_elastic.core.history.progress import next_units, skipped
from cerebro_elastic.core.model.attempts import Attempt, Failure, FailureKind
from cerebro_elastic.core.model.configs import Config
from cerebro_elastic.core.model.events import Event, NodeDraining, UnitCommitted
from cerebro_elastic.core.model.nodes import Node
from cerebro_elastic.core.model.run import Plan, Spec
from cerebro_elastic.recipes import load_recipe
from cerebro_elastic.runs.start.agents import agent_command
from cerebro_elastic.store.client.embedded import EmbeddedEtcd
from cerebro_elastic.store.client.etcd import EtcdStore
from cerebro_elastic.store.client.lease import LeaseKeeper
from cerebro_elastic.system import forkserver
from cerebro_elastic.system.run_key import RunKey
from support.agents import Agents
from support.ledger import Ledger
from support.prepared import prepare
from support.processes import ranks_of
from support.waiting import SOON, wait_for

pytestmark = pytest.mark.cluster
Agent = forkserver.Process
TTL = 1.0

FUNCTIONS = """
import time
from torch import nn


def model():
    return nn.Linear(2, 2)


def prepared(batch, pause):
    # Yields only when the test says so: the test decides when a unit progresses.
    time.sleep(pause)
    return batch
"""

RECIPE = {
    "epochs": 1,
    "task": {"kind": "torch", "model_fn": "paused:model", "input_fn": "paused:prepared", "optimizer": "SGD",
             "loss": "cross_entropy"},
    "search": {"space": {"pause": [0.0], "lr": [0.1]}},
    # Much more than the imports of the first unit take, on a machine that is busy.
    "limits": {"hang_seconds": 10, "hang_factor": 1},
}  # fmt: skip

BATCHES = 30


def rows() -> dict[str, np.ndarray]:
    x = np.random.default_rng(0).normal(size=(2 * BATCHES, 2)).astype(np.float32)
    return {"x": x, "y": (x[:, 0] > 0).astype(np.int64)}


class Stage(Agents):
    """A run on an etcd, led by the test, and its nodes."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        super().__init__(folder, stack)
        (folder / "paused.py").write_text(FUNCTIONS)
        data = str(folder / "data")
        manifest = prepare(rows, data, partitions=2, seed=1, valid=0.0)
        recipe = load_recipe({**RECIPE, "data": {"url": data, "batch_size": 1}}, root=folder)
        self.plan = Plan("r", 2, 1)
        where = (data, manifest.digest, str(folder), {}, str(folder))
        self.etcd = EmbeddedEtcd(folder / "etcd")
        stack.callback(self.end_etcd)
        self.etcd.__enter__()
        self.ledger = Ledger(
            stack.enter_context(closing(EtcdStore(self.etcd.settings))), "r", RunKey.from_env(os.environ)
        )
        self.ledger.open_run(Spec(self.plan, recipe.resolved(), recipe.digest, *where, __version__))
        keeper = stack.enter_context(LeaseKeeper(self.ledger.store, 30))
        leader = self.ledger.lead("test", keeper.lease)
        assert leader is not None
        self.leader = leader

    def begin_etcd(self) -> None:
        """Over the same data, where it was."""
        self.etcd = EmbeddedEtcd(self.etcd.data_dir)
        self.etcd.__enter__()

    def end_etcd(self) -> None:
        self.etcd.__exit__(None, None, None)

    def start(self, name: str, ranks: int = 1, **env: str) -> Agent:
        (endpoint,) = self.etcd.settings.endpoints
        command = [
            f"{part},lease={TTL}" if part.startswith("--rdzv-conf") else part
            for part in agent_command("r", endpoint, name, ranks)
        ]
        return self.launch(name, command, **{"CEREBRO_ETCD_PATIENCE": "1", **env})

    def ready(self, name: str) -> None:
        wait_for(lambda: self.said(name, "ready"), f"{name} to be ready")

    def config(self, name: str, pause: float) -> None:
        assert self.leader.create_config(Config(name, {"pause": pause, "lr": 0.1}))

    def assign(self, config: str, name: str) -> Attempt:
        at, node = self.ledger.config(config), self.registered(name)
        assert at is not None
        unit = next_units(at, self.plan)[0]
        attempt = Attempt(unit, name, node.registration, at.revision, at.head, skip=skipped(at))
        token = self.leader.assign(attempt)
        assert token is not None
        return replace(attempt, token=token)

    def registered(self, name: str) -> Node:
        node = self.ledger.node(name)
        assert node is not None
        return node

    def failures(self, config: str) -> tuple[Failure, ...]:
        at = self.ledger.config(config)
        assert at is not None
        return at.failures

    def began(self, name: str, attempt: Attempt) -> bool:
        return any(line["attempt"] == attempt.token for line in self.said(name, "began"))

    def history(self, start: int, until: int) -> list[Event]:
        events: list[Event] = []
        with self.ledger.events(start) as stream:
            while not events or events[-1].revision < until:
                events += stream.next(SOON)
        return events


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with ExitStack() as stack:
        yield Stage(tmp_path, stack)


def rank_of(agent: Agent) -> int:
    """The pid of an agent's only rank."""
    wait_for(lambda: ranks_of(agent.pid), "a rank")
    return ranks_of(agent.pid)[0]


def test_a_node_leaves_on_every_kind_of_request(stage: Stage) -> None:
    """By SIGTERM in the middle of a unit, by hand (one of two ranks), by SIGTERM to its rank, and while it
    still imports."""
    stage.config("c", pause=0.2)
    early = stage.start("early")
    rank_of(early)
    early.send_signal(signal.SIGTERM)

    node = stage.start("node", CEREBRO_GRACE="2")
    by_hand, by_rank = stage.start("by-hand", ranks=2), stage.start("by-rank")
    for name in ("node", "by-hand", "by-rank"):
        stage.ready(name)
    assert early.wait(SOON) != 0
    assert stage.ledger.node("early") is None
    assert not stage.said("early", "ready")

    attempt = stage.assign("c", "node")
    wait_for(lambda: stage.began("node", attempt), "the unit to begin")
    for _ in range(3):  # to the rank as well, as Slurm does
        os.kill(rank_of(node), signal.SIGTERM)
    node.send_signal(signal.SIGTERM)
    assert node.wait(SOON) != 0, "as torchrun has it"
    history = stage.history(attempt.token + 1, stage.ledger.revision())
    draining, committed = (e for e in history if isinstance(e, NodeDraining | UnitCommitted))
    assert isinstance(draining, NodeDraining)
    assert isinstance(committed, UnitCommitted)
    assert (draining.node, draining.grace) == ("node", 2.0)
    assert not committed.visit.whole
    assert 0 < committed.visit.batches < BATCHES
    assert stage.ledger.node("node") is None, "its lease went with it"

    # The rest of the unit, on another node.
    rest = stage.assign("c", "by-hand")
    assert rest.skip == committed.visit.batches
    wait_for(lambda: stage.began("by-hand", rest), "the rest to begin")
    assert stage.ledger.drain("by-hand", 600.0)
    assert by_hand.wait(SOON) == 0, "it need not be started anew"
    visits = stage.ledger.visits()
    assert [visit.whole for visit in visits] == [False, True]
    assert sum(visit.batches for visit in visits) == BATCHES

    os.kill(rank_of(by_rank), signal.SIGTERM)
    assert by_rank.wait(SOON) == 0
    assert stage.ledger.state().nodes == {}
    for name in ("node", "by-hand", "by-rank"):
        assert stage.said(name, "left"), stage.log(name)
        assert not [line for line in stage.log(name) if line["level"] == "error"]


def test_nodes_that_slept_or_waited_continue_without_a_restart(stage: Stage) -> None:
    """A zombie's commit is refused, and it registers anew; an etcd that was away costs nothing."""
    stage.config("c", pause=0.05)
    agent = stage.start("node")
    stage.ready("node")
    rank, first = rank_of(agent), stage.registered("node")

    # Asleep for longer than the lease.
    attempt = stage.assign("c", "node")
    wait_for(lambda: stage.began("node", attempt), "the unit to begin")
    os.kill(rank, signal.SIGSTOP)
    agent.send_signal(signal.SIGSTOP)
    wait_for(lambda: stage.ledger.node("node") is None, "the lease to end")
    assert stage.leader.withdraw(attempt)
    os.kill(rank, signal.SIGCONT)
    agent.send_signal(signal.SIGCONT)
    wait_for(lambda: stage.said("node", "refused: the assignment was withdrawn"), "the refusal")
    wait_for(lambda: stage.ledger.node("node"), "the new registration")
    second = stage.registered("node")
    assert second.registration > first.registration
    wait_for(lambda: not list((stage.folder / "checkpoints/c").iterdir()), "its checkpoint to be collected")

    # etcd is away for longer than the lease, from the middle of a unit until after its end.
    attempt = stage.assign("c", "node")
    wait_for(lambda: stage.began("node", attempt), "the unit to begin")
    stage.end_etcd()
    wait_for(lambda: stage.said("node", "waiting for the store"), "the rank to wait")
    wait_for(lambda: stage.said("node", "store out of reach, the node stays"), "the agent to notice")
    wait_for(lambda: list((stage.folder / "checkpoints" / "c").glob("*/manifest.json")), "the unit's end")
    time.sleep(TTL)
    stage.begin_etcd()
    wait_for(lambda: len(stage.ledger.visits()) == 1, "the commit")
    assert stage.ledger.visits()[0].attempt == attempt.token
    assert stage.registered("node") == second, "the lease was there when etcd was"
    wait_for(lambda: stage.said("node", "no longer waiting for the store"), "the end of the waiting")

    attempt = stage.assign("c", "node")
    wait_for(lambda: len(stage.ledger.visits()) == 2, "the next unit")
    assert rank_of(agent) == rank, "no process was started anew"
    assert not [line for line in stage.log("node") if line["level"] == "error"]


def test_a_hanging_and_a_killed_rank_are_distinguished(stage: Stage) -> None:
    stage.config("hangs", pause=600.0)
    stage.config("c", pause=0.05)
    agent = stage.start("node")
    stage.ready("node")
    stage.assign("hangs", "node")
    wait_for(lambda: stage.failures("hangs"), "the hang to be seen")
    (hang,) = stage.failures("hangs")
    assert hang.kind is FailureKind.HANG
    assert "no progress for 10 s" in hang.story
    assert f"{stage.folder}/paused.py:12 in prepared" in hang.story

    wait_for(lambda: len(stage.said("node", "ready")) == 2, "the rank to be started anew")
    attempt = stage.assign("c", "node")
    wait_for(lambda: stage.began("node", attempt), "the unit to begin")
    os.kill(rank_of(agent), signal.SIGKILL)
    wait_for(lambda: stage.failures("c"), "the death to be seen")
    (crash,) = stage.failures("c")
    assert crash.kind is FailureKind.CRASH
    assert "killed from outside" in crash.story


def test_a_name_belongs_to_one_living_node(stage: Stage) -> None:
    """The second says so and ends; after a kill the name can be taken again."""
    first = stage.start("node")
    wait_for(lambda: stage.ledger.node("node"), "the registration")
    before = stage.registered("node")
    second = stage.start("node")
    assert second.wait(SOON) != 0
    assert "give this one another name" in (stage.folder / "node.log").read_text()
    assert stage.registered("node").registration == before.registration
    first.send_signal(signal.SIGKILL)
    third = stage.start("node")
    wait_for(lambda: (stage.ledger.node("node") or before).boot != before.boot, "the name to be taken")
    assert third.poll() is None
