"""Nodes started by hand with torchrun, before and after the controller, on an etcd of one's own; a rank
that dies, a controller that sleeps; and evaluations as units of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

import cerebro_elastic
from cerebro_elastic.core.history.progress import advance
from cerebro_elastic.core.invariants import check
from cerebro_elastic.core.model.attempts import FailureKind
from cerebro_elastic.core.model.configs import Config
from cerebro_elastic.core.model.events import Event, LeaderChanged, UnitCommitted, UnitFailed
from cerebro_elastic.core.model.units import Phase
from cerebro_elastic.registry import import_object
from cerebro_elastic.runs.folder import RunFolder
from cerebro_elastic.runs.results.replay import replay
from cerebro_elastic.runs.results.verify import verify
from cerebro_elastic.runs.start.agents import agent_command
from cerebro_elastic.store.client.embedded import EmbeddedEtcd
from cerebro_elastic.store.client.etcd import EtcdStore
from cerebro_elastic.store.ledger.journal import read_journal
from cerebro_elastic.system.forkserver import SOCKET
from cerebro_elastic.system.run_key import RunKey
from cerebro_elastic.training.unit_runner import UnitRunner
from support.ledger import Ledger
from support.prepared import prepare
from support.processes import ranks_of

pytestmark = pytest.mark.cluster
DEADLINE = 120.0


def becomes(condition: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not (holds := condition()) and time.monotonic() < deadline:
        time.sleep(0.1)
    return holds


def wait_for(condition: Callable[[], bool], what: str) -> None:
    assert becomes(condition, DEADLINE), f"waited {DEADLINE} s for {what}"


@contextmanager
def process(command: list[str], log: Path, **env: str) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as output:
        started = subprocess.Popen(
            command,
            env={**os.environ, **env},
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        try:
            yield started
        finally:
            started.send_signal(signal.SIGCONT)
            started.terminate()
            try:
                started.wait(60)
            except subprocess.TimeoutExpired:
                started.kill()
                started.wait()


def kill_in_a_unit(ledger: Ledger, node: str, agent: subprocess.Popen[bytes]) -> None:
    """Stop the rank, and kill it unless it was just about to commit its unit."""
    wait_for(lambda: ranks_of(agent.pid) != [], "a rank")
    (rank,) = ranks_of(agent.pid)
    os.kill(rank, signal.SIGSTOP)
    while not in_a_unit(ledger, node):
        os.kill(rank, signal.SIGCONT)
        os.kill(rank, signal.SIGSTOP)
    os.kill(rank, signal.SIGKILL)


def in_a_unit(ledger: Ledger, node: str) -> bool:
    """Whether the node, whose rank is stopped, stays in its unit: no commit is on its way."""
    assigned = ledger.assignments(node)
    return bool(assigned) and not becomes(lambda: ledger.assignments(node)[:1] != assigned[:1], 0.3)


PATIENT_NET = """
import time

from a_plain_net import model as plain_model
from torch import nn


class Patient(nn.Module):
    def forward(self, x):
        time.sleep(0.03)
        return x


def model(width):
    return nn.Sequential(Patient(), plain_model(width))
"""
"""The run goes on while the test waits for something else: then units are to wait, too, not to compute."""


def test_nodes_come_before_and_after_the_controller(
    project: Path, etcd: EmbeddedEtcd, tmp_path: Path
) -> None:
    folder = RunFolder(project / "runs" / "by-hand")
    recipe = (project / "plain.yaml").read_text()
    (project / "patient.yaml").write_text(recipe.replace("a_plain_net", "a_patient_net"))
    (project / "a_patient_net.py").write_text(PATIENT_NET)
    (endpoint,) = etcd.settings.endpoints

    def node(name: str, **more: str) -> subprocess.Popen[bytes]:
        env = {"CEREBRO_CACHE": str(tmp_path / "cache"), "CEREBRO_PARENT": str(os.getpid()), **more}
        command = agent_command(folder.run, endpoint, name, 1)
        return stack.enter_context(process(command, tmp_path / f"{name}.log", **env))

    def history() -> list[Event]:
        return read_journal(folder.history) if folder.history.exists() else []

    def visits(name: str, since: int = 0) -> int:
        committed = [e for e in history()[since:] if isinstance(e, UnitCommitted)]
        return sum(event.visit.node == name for event in committed)

    with ExitStack() as stack:
        store = stack.enter_context(closing(EtcdStore(etcd.settings)))
        ledger = Ledger(store, folder.run, RunKey.from_env(os.environ))
        early = node("early")
        wait_for(lambda: ledger.node("early") is not None, "a node that comes before its run")
        assert ledger.spec() is None

        command = [sys.executable, "-m", "cerebro_elastic.cli", "run", str(project / "patient.yaml")]
        command += ["--run-id", folder.run, "--home", str(project / "runs"), "--etcd", endpoint]
        command += ["--nodes", "1:3", "--epochs", "10000"]
        controller = stack.enter_context(process(command, tmp_path / "controller.log"))
        wait_for(lambda: visits("early") > 2 and visits("node-0") > 2, "units on both nodes")
        late = node("late", **{SOCKET: "off"})  # its rank is a child of its agent, as on a machine by itself
        wait_for(lambda: visits("late") > 2, "units on the node that came late")
        everybody = {("early",), ("node-0",), ("late",)}
        wait_for(lambda: set(ledger.state().homes.values()) == everybody, "a share of the data for each")

        # A dead rank is seen at once, not by a lease's end; its unit is tried again.
        so_far = len(history())
        kill_in_a_unit(ledger, "late", late)
        wait_for(lambda: any(isinstance(e, UnitFailed) for e in history()[so_far:]), "the crash to be seen")
        (failure,) = (e.failure for e in history()[so_far:] if isinstance(e, UnitFailed))
        assert (failure.kind, failure.node) == (FailureKind.CRASH, "late")
        after = len(history())
        wait_for(lambda: visits("late", after) > 2, "units on the node again")

        # A controller that slept longer than its lease stands for election again.
        leader, asleep = store.get(ledger.keys.leader), len(history())
        controller.send_signal(signal.SIGSTOP)
        wait_for(lambda: store.get(ledger.keys.leader) is None, "the lease to run out")
        controller.send_signal(signal.SIGCONT)
        wait_for(lambda: store.get(ledger.keys.leader) not in (None, leader), "a new election")
        wait_for(lambda: visits("early", asleep) > 6, "units after the election")
        assert sum(isinstance(event, LeaderChanged) for event in history()[asleep:]) >= 2

        controller.send_signal(signal.SIGINT)
        assert controller.wait(90) == 130, (tmp_path / "controller.log").read_text()
        assert {early.poll(), late.poll()} == {None}, "nodes outlive the controller"
        assert check(history()) == []

        # With the run, its nodes end, and leave at once.
        lease = store.grant(30)
        leader_again = ledger.lead("test", lease)
        assert leader_again is not None
        assert leader_again.end_run("stopped")
        assert (early.wait(60), late.wait(60)) == (0, 0)
        assert ledger.state().nodes == {}
        store.revoke(lease)


RECIPE = """
seed: 3
epochs: 2
nodes: 2
task: {kind: torch, model_fn: "a_model:model", loss: cross_entropy, optimizer: SGD,
       metrics: {accuracy: accuracy}}
data: {url: "%s", batch_size: 32}
validation: evaluate
search: {space: {lr: [0.1, 0.03]}}
objective: {metric: val_accuracy, mode: max}
"""

MODEL = """
from torch import nn


def model():
    return nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 10))
"""


@pytest.mark.usefixtures("imports_as_found")
def test_evaluations_as_units_give_the_metrics_of_validation_at_the_epochs_end(project: Path) -> None:
    """Two validation partitions of different size, on whichever node is free."""
    (project / "a_model.py").write_text(MODEL)
    (project / "evaluated.yaml").write_text(RECIPE % (project / "evaluated"))
    source = import_object("a_dataset:load", project)
    prepare(source, str(project / "evaluated"), partitions=2, seed=3, valid=0.2, valid_partitions=2)
    result = cerebro_elastic.run(project / "evaluated.yaml", run_id="evaluated", home=project / "runs")
    assert [row.status for row in result.leaderboard] == ["finished"] * 2
    assert verify(result) == []
    assert all(visit.same for visit in replay(result))

    plan = replace(result.spec.plan, evaluations=0)
    bench = UnitRunner(replace(result.spec, plan=plan), result.folder.cache)
    for row in result.leaderboard:
        at, state, curve = Config(row.config, row.hparams), None, []
        assert len(row.visits) == 2 * (2 + 2)
        for visit in (v for v in row.visits if v.unit.phase is Phase.TRAIN):
            done = bench.perform(bench.job(at, visit.unit, state))
            if len(at.visited) == 1:
                curve.append(done.metrics)
            at, state = advance(at, visit, plan), done.state
        assert [dict(metrics) for metrics in row.curve] == [pytest.approx(dict(m), rel=1e-5) for m in curve]
