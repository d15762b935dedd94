"""Agents that cannot be a node of the run: they say why, and end instead of trying for ever."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

import pytest

from cerebro_elastic.core.model.run import Plan, Spec
from cerebro_elastic.runs.start.agents import agent_command
from cerebro_elastic.store.client.embedded import EmbeddedEtcd
from cerebro_elastic.store.client.etcd import EtcdStore
from cerebro_elastic.system import forkserver
from cerebro_elastic.system.run_key import RunKey
from support.ledger import Ledger

pytestmark = pytest.mark.cluster
SPEC = Spec(Plan("r", 1, 1), {}, "", "", "", "", {}, "", version="0.0.0")
Agent = Callable[[str, str], forkserver.Process]


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    """Starts a node of a run on an etcd; its log bears the run's id."""
    with ExitStack() as stack:

        def start(run: str, endpoint: str) -> forkserver.Process:
            log = stack.enter_context((tmp_path / run).open("wb"))
            env = {"CEREBRO_PARENT": str(os.getpid()), "CEREBRO_ETCD_PATIENCE": "2", "CEREBRO_PATIENCE": "3"}
            process = forkserver.start(
                agent_command(run, endpoint, "n", 1),
                {**os.environ, **env},
                stdin=subprocess.DEVNULL,
                stdout=log.fileno(),
                stderr=log.fileno(),
            )
            stack.callback(process.wait, 20)
            stack.callback(process.send_signal, signal.SIGTERM)
            return process

        yield start


@pytest.fixture
def closed_port() -> Iterator[str]:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        yield f"127.0.0.1:{taken.getsockname()[1]}"


def test_an_agent_that_cannot_join_says_why(
    etcd: EmbeddedEtcd, agent: Agent, closed_port: str, tmp_path: Path
) -> None:
    (endpoint,) = etcd.settings.endpoints
    other, ended, unreachable = (f"{name}-{uuid.uuid4().hex}" for name in ("other", "ended", "unreachable"))
    with closing(EtcdStore(etcd.settings)) as store:
        for run in (other, ended):
            Ledger(store, run, RunKey.from_env(os.environ)).open_run(
                replace(SPEC, plan=replace(SPEC.plan, run=run))
            )
        lease = store.grant(60)
        leader = Ledger(store, ended, RunKey.from_env(os.environ)).lead("me", lease)
        assert leader is not None
        assert leader.end_run("finished")

        agents = [agent(other, endpoint), agent(ended, endpoint), agent(unreachable, closed_port)]
        for process in agents:
            assert process.wait(90) not in (0, None)
        assert "install the same version on all machines of a run" in (tmp_path / other).read_text()
        assert "a node cannot join it" in (tmp_path / ended).read_text()
        assert "did not answer" in (tmp_path / unreachable).read_text()
        assert Ledger(store, other, RunKey.from_env(os.environ)).state().nodes == {}, (
            "the registration went with the agent"
        )
        store.revoke(lease)
