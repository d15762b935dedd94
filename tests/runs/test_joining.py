"""Machines that come and go: nodes join a run, by torchrun before it begins, and by `cerebro join`; one
is drained; the leader's process is killed, another finishes the run. The verdict is the survivors' record."""

from __future__ import annotations

import json
import os
import signal
from contextlib import ExitStack, closing
from pathlib import Path

import numpy as np
import pytest

import cerebro_elastic
from cerebro_elastic.core.model import events as ev
from cerebro_elastic.runs.results.replay import replay
from cerebro_elastic.runs.results.verify import verify
from cerebro_elastic.runs.start.agents import agent_command
from cerebro_elastic.store.client.embedded import EmbeddedEtcd
from cerebro_elastic.store.client.etcd import EtcdStore
from cerebro_elastic.store.ledger.journal import read_journal
from cerebro_elastic.system.forkserver import SOCKET
from cerebro_elastic.system.run_key import RunKey
from support.ledger import Ledger
from support.prepared import prepare
from support.processes_of_users import MODEL, RECIPE, cerebro, process
from support.proxy import Bad, BadProxy
from support.waiting import SOON, wait_for

pytestmark = pytest.mark.cluster
RUN = "joined"


def test_nodes_join_leave_and_take_over_the_lead(project: Path, etcd: EmbeddedEtcd, tmp_path: Path) -> None:
    (project / "a_slow_model.py").write_text(MODEL)
    (project / "joined.yaml").write_text(RECIPE)
    (project / "slowly").touch()
    (endpoint,) = etcd.settings.endpoints
    home, elsewhere = str(project / "runs"), str(tmp_path / "elsewhere")
    record = Path(elsewhere, RUN, "history.jsonl")

    def visits(node: str) -> int:
        return sum(visit.node == node for visit in ledger.visits())

    with ExitStack() as stack:
        ledger = Ledger(
            stack.enter_context(closing(EtcdStore(etcd.settings))), RUN, RunKey.from_env(os.environ)
        )
        # A node may come before its run; its rank is a child of its agent, as on a machine by itself.
        by_hand = agent_command(RUN, endpoint, "by-hand", 1)
        env = {"CEREBRO_CACHE": str(tmp_path / "cache"), "CEREBRO_PARENT": str(os.getpid()), SOCKET: "off"}
        hand = stack.enter_context(process(by_hand, tmp_path / "hand.log", **env))
        wait_for(lambda: ledger.node("by-hand") is not None, "a node that comes before its run")
        assert ledger.spec() is None
        words = ["run", str(project / "joined.yaml"), "--run-id", RUN, "--home", home, "--etcd", endpoint]
        first = stack.enter_context(cerebro(tmp_path / "run.log", *words))
        wait_for(lambda: ledger.node("node-0") is not None, "the run's own node")

        # Others come later; all are given partitions.
        words = ["join", RUN, "--name", "other", "--home", elsewhere, "--etcd", endpoint, "--grace", "5"]
        other = stack.enter_context(cerebro(tmp_path / "other.log", *words))
        words = ["join", RUN, "--name", "guest", "--home", home, "--etcd", endpoint, "--grace", "30"]
        guest = stack.enter_context(cerebro(tmp_path / "guest.log", *words))
        nodes = ("by-hand", "other", "guest")
        wait_for(lambda: all(visits(node) > 1 for node in nodes), "units on all nodes")
        state = cerebro_elastic.Run.open(RUN, home=elsewhere).result
        assert state.spec == ledger.spec()
        # By their speeds: a node that was slowed by the others' start may have given its own away.
        assert {name for home in ledger.state().homes.values() for name in home} >= set(nodes)

        # Asked to leave, by command or by SIGTERM, nodes finish what they have; their partitions move.
        with cerebro(tmp_path / "drain.log", "drain", RUN, "by-hand", "--etcd", endpoint) as drain:
            assert drain.wait(SOON) == 0, (tmp_path / "drain.log").read_text()
        guest.send_signal(signal.SIGTERM)
        wait_for(lambda: ledger.node("by-hand") is None, "the node to leave")
        hand.wait(SOON)
        assert guest.wait(SOON) == 130, (tmp_path / "guest.log").read_text()
        wait_for(
            lambda: set(ledger.state().homes.values()) == {("node-0",), ("other",)}, "its partitions to move"
        )

        # The process that joined takes over from the killed one, whose nodes end with it.
        leader = ledger.state().leader
        first.kill()
        wait_for(lambda: set(ledger.state().nodes) == {"other"}, "the dead ones' leases to end")
        wait_for(lambda: ledger.state().leader not in (None, leader), "another leader")
        (project / "slowly").unlink()
        assert other.wait(SOON) == 0, (tmp_path / "other.log").read_text()
        assert ledger.state().outcome == "finished"
        assert ledger.state().nodes == {}

    events = read_journal(record)
    shown = (tmp_path / "other.log").read_text()
    assert "by-hand is leaving" in shown
    assert "node-0 left" in shown
    logs = {
        "by-hand": tmp_path / "hand.log",
        "other": Path(elsewhere, RUN, "logs", "other.log"),
        "guest": Path(home, f"{RUN}.guest", "logs", "guest.log"),
    }
    assert {node: wasted(events, node) & begun(log) for node, log in logs.items()} == {
        "by-hand": set(),
        "other": set(),
        "guest": set(),
    }
    assert sum(isinstance(event, ev.NodeJoined) for event in events) <= 3, "no node was started again"
    assert "left the run" in (tmp_path / "guest.log").read_text()
    assert read_journal(Path(home, f"{RUN}.guest", "history.jsonl"))[-1] in events
    result = cerebro_elastic.Run.open(RUN, home=elsewhere).result
    assert [row.status for row in result.leaderboard] == ["finished"] * 2
    assert {visit.node for row in result.leaderboard for visit in row.visits} == {"node-0", *nodes}
    assert verify(result) == []
    # From a machine that has nothing of the run but the address of its etcd, and storage in common.
    reopened = cerebro_elastic.Run.open(RUN, home=tmp_path / "nowhere", store=etcd.settings).result
    assert verify(reopened) == []
    assert all(visit.same for visit in replay(reopened, reopened.best.config))
    assert not (tmp_path / "nowhere").exists()


def test_with_two_replicas_a_node_goes_on_without_the_data_when_another_is_killed(
    project: Path, etcd: EmbeddedEtcd, s3: BadProxy, tmp_path: Path
) -> None:
    run, data = "two-replicas", "s3://bucket/data"
    prepare(noise, data, partitions=4, seed=5, valid=0.2)
    (project / "a_slow_model.py").write_text(MODEL)
    recipe = RECIPE.replace("epochs: 12", "epochs: 5").replace('"1:4"', '"1:2"\nreplicas: 2')
    recipe = recipe.replace('source: "a_dataset:load", partitions: 4, valid: 0.2', f'url: "{data}"')
    (project / "replicas.yaml").write_text(recipe)
    (project / "slowly").touch()
    (endpoint,) = etcd.settings.endpoints
    own, others = tmp_path / "runs" / run, tmp_path / "cache"
    with ExitStack() as stack:
        ledger = Ledger(
            stack.enter_context(closing(EtcdStore(etcd.settings))), run, RunKey.from_env(os.environ)
        )
        words = ["--run-id", run, "--home", str(tmp_path / "runs"), "--etcd", endpoint]
        first = stack.enter_context(
            cerebro(tmp_path / "run.log", "run", str(project / "replicas.yaml"), *words)
        )
        env = {"CEREBRO_CACHE": str(others), "CEREBRO_PARENT": str(os.getpid())}
        command = agent_command(run, endpoint, "by-hand", 1)
        hand = stack.enter_context(process(command, tmp_path / "hand.log", **env))
        wait_for(lambda: all(has_all(cache) for cache in (own / "cache", others)), "all data on both nodes")

        s3.plan = lambda _request: Bad.DROP
        os.killpg(hand.pid, signal.SIGKILL)
        wait_for(lambda: ledger.node("by-hand") is None, "its lease to end")
        (project / "slowly").unlink()
        wait_for(lambda: ledger.ended() or first.poll() is not None, "the run to end")
        assert ledger.state().outcome == "finished", (tmp_path / "run.log").read_text()
        s3.reset()  # who reports on the run reads what its data are
        assert first.wait(SOON) == 0, (tmp_path / "run.log").read_text()

    result = cerebro_elastic.Run.open(run, home=tmp_path / "runs").result
    assert {visit.node for row in result.leaderboard for visit in row.visits} == {"node-0", "by-hand"}
    assert not any(isinstance(event, ev.UnitFailed) for event in result.events)
    assert verify(result) == []


def noise() -> dict[str, np.ndarray]:
    random = np.random.default_rng(5)
    return {"x": random.normal(size=(1600, 64)).astype(np.float32), "y": random.integers(10, size=1600)}


def has_all(cache: Path) -> bool:
    """Whether both columns of the four partitions to train on, and of the one to validate on, are there."""
    return len(list(cache.glob("*/*/*.sums"))) == 10


def wasted(events: list[ev.Event], node: str) -> set[int]:
    """The attempts of the node that came to nothing."""
    given = {e.revision for e in events if isinstance(e, ev.UnitAssigned) and e.attempt.node == node}
    lost = {e.token for e in events if isinstance(e, ev.UnitWithdrawn)}
    lost |= {e.failure.attempt for e in events if isinstance(e, ev.UnitFailed)}
    return given & lost


def begun(log: Path) -> set[int]:
    """The attempts of which the node has trained a batch. It got others at the moment of its drain; some it
    did not even see."""
    lines = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
    given_up = [line for line in lines if line["event"] == "given up" and "after 0 batches" in line["why"]]
    return {line["attempt"] for line in lines if line["event"] == "began"} - {
        line["attempt"] for line in given_up
    }
