"""The agents of this machine's nodes: restarted when they die, not when they leave, and the message when all
have ended. Other programs stand in for torchrun."""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cerebro_elastic.config import StoreSettings
from cerebro_elastic.core.model.attempts import Visit
from cerebro_elastic.core.model.events import Event, NodeDraining, NodeJoined, UnitCommitted
from cerebro_elastic.core.model.nodes import Node
from cerebro_elastic.core.model.units import CheckpointRef, Unit
from cerebro_elastic.errors import RunError
from cerebro_elastic.runs.folder import RunFolder
from cerebro_elastic.runs.start.agents import LocalAgents, last_error
from cerebro_elastic.runs.start.machine import Accelerators
from cerebro_elastic.system import logs
from cerebro_elastic.system.forkserver import SOCKET
from support.processes import is_running
from support.waiting import SOON, wait_for

SINCE = 100
Make = Callable[..., LocalAgents]


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: list[str]) -> Make:
    """``make(script)``: one node whose agent is that script; it notes each of its starts in ``starts``."""
    for name in ("_FIRST_PAUSE", "_MARGIN"):
        monkeypatch.setattr(f"cerebro_elastic.runs.start.agents.{name}", 0.05)

    def agents(script: str, grace: float = 0.1) -> LocalAgents:
        program = tmp_path / "program"
        program.write_text(f"#!/bin/sh\necho started >> {tmp_path}/starts\n{script}\n")
        program.chmod(0o755)
        monkeypatch.setattr("cerebro_elastic.runs.start.agents.PYTHON", (str(program),))
        monkeypatch.setenv(SOCKET, "off")
        return LocalAgents(
            "a-run",
            RunFolder(tmp_path / "a-run"),
            StoreSettings(endpoints=("127.0.0.1:1",)),
            ["n"],
            ranks=1,
            accelerators=Accelerators(),
            grace=grace,
            since=SINCE,
            say=said.append,
        )

    return agents


def starts(folder: Path) -> int:
    return len((folder / "starts").read_text().splitlines()) if (folder / "starts").exists() else 0


def keep_until(agents: LocalAgents, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SOON
    while not condition():
        agents.keep()
        assert time.monotonic() < deadline
        time.sleep(0.01)


def commit(revision: int) -> Event:
    output = CheckpointRef("mem:", "", 0)
    return UnitCommitted(revision, Visit(Unit("c", 0, 0), 0, "n", 1, None, output, 1, 1, 1.0, 0.0, 0.0))


def test_processes_that_users_code_has_started_end_with_the_nodes(make: Make, tmp_path: Path) -> None:
    """Also what has left its parent, process group and session: it is nobody's child any more."""
    daemon = f"setsid sh -c 'sleep 1000 & echo $! > {tmp_path}/daemon' &"
    with make(f"{daemon}\nsleep 1000 & echo $! > {tmp_path}/child\nwait"):
        pids = [tmp_path / name for name in ("daemon", "child")]
        wait_for(lambda: all(pid.exists() and pid.read_text().strip() for pid in pids), "the processes")
        assert all(is_running(int(pid.read_text())) for pid in pids)
    assert not any(is_running(int(pid.read_text())) for pid in pids)


def test_a_dead_agent_is_restarted_after_longer_and_longer_pauses(
    make: Make, tmp_path: Path, said: list[str]
) -> None:
    with make("exit 3") as agents:
        assert not agents.gone
        keep_until(agents, lambda: len(said) >= 4)
        keep_until(agents, lambda: agents.gone)
        assert "n has ended with exit code 3" in agents.last_error()
    assert starts(tmp_path) >= 4
    pauses = [text.split(" in ")[1].split(" s ")[0] for text in said]
    assert pauses[:4] == ["0.05", "0.1", "0.2", "0.4"]
    assert said[0] == (
        f"n has ended with exit code 3; to be started anew in 0.05 s (see {tmp_path}/a-run/logs/n.log)"
    )


def test_a_commit_ends_the_count(make: Make, said: list[str]) -> None:
    with make("exit 3") as agents:
        keep_until(agents, lambda: agents.gone)
        agents.observe([commit(SINCE + 1)])
        assert not agents.gone
        tries = len(said)
        keep_until(agents, lambda: len(said) > tries)
        assert "in 0.05 s" in said[-1]


def test_an_agent_of_a_drained_node_is_not_restarted(make: Make, tmp_path: Path, said: list[str]) -> None:
    with make("exit 1") as agents:
        agents.observe([NodeDraining(SINCE + 1, "n", 30.0), NodeDraining(SINCE + 2, "another", 30.0)])
        keep_until(agents, lambda: agents.left)
        for _ in range(20):
            agents.keep()
        assert agents.gone
        assert agents.last_error().startswith("n has left")
    assert starts(tmp_path) == 1
    assert said == []


@pytest.mark.parametrize(
    "events",
    [
        [NodeDraining(SINCE - 1, "n", 30.0)],
        [NodeDraining(SINCE + 1, "n", 30.0), NodeJoined(SINCE + 2, Node("n", "host"))],
        [NodeDraining(SINCE + 1, "another", 30.0)],
    ],
    ids=["before this start", "under an older registration", "another node"],
)
def test_these_events_do_not_drain_this_node(make: Make, tmp_path: Path, events: list[Event]) -> None:
    with make("exit 1") as agents:
        for event in events:
            agents.observe([event])
        keep_until(agents, lambda: starts(tmp_path) == 2)


def test_the_end_of_the_run_ends_a_node_for_good(make: Make, tmp_path: Path, said: list[str]) -> None:
    with make("exit 0") as agents:
        keep_until(agents, lambda: agents.gone)
        agents.wait(1.0)
    assert starts(tmp_path) == 1
    assert said == []


def test_stopping_gives_the_grace(make: Make, tmp_path: Path, said: list[str]) -> None:
    script = f"trap 'echo $CEREBRO_GRACE $TORCH_ELASTIC_SHUTDOWN_TIMEOUT >> {tmp_path}/note' TERM\n"
    loop = f"touch {tmp_path}/ready\nuntil test -s {tmp_path}/note; do sleep 0.01; done; sleep 0.1"
    with make(script + loop, grace=12.5) as agents:
        keep_until(agents, (tmp_path / "ready").exists)
        agents.ask()  # in the handler of a signal; a second signal would end an agent before its ranks
    assert (tmp_path / "note").read_text() == "11.5 13\n", "a second is for their exit"
    assert said == [
        "stopping the nodes: within 12.5 s they finish their units or save them part-way (Ctrl-C: at once)"
    ]


def test_an_agent_that_does_not_end_in_time_is_killed(make: Make, tmp_path: Path) -> None:
    script = f"trap '' TERM\ntouch {tmp_path}/ready\nwhile :; do sleep 0.01; done"
    with make(script) as agents:
        keep_until(agents, (tmp_path / "ready").exists)
    assert agents.last_error().startswith(f"n was killed ({signal.SIGKILL.name})")


def test_the_last_words_are_our_own_error_whatever_torchrun_says_after_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    logger = logging.getLogger("cerebro")
    before = logger.handlers[:], logger.level, logger.propagate
    try:
        logs.start()
        try:
            raise RunError("this node has another version")
        except RunError:
            logs.EventLog(node="n").exception("this machine cannot be a node of the run")
        logs.EventLog(node="n").info("bye")
    finally:
        logger.handlers[:], logger.level, logger.propagate = before
    log = capsys.readouterr().err + "Traceback (most recent call last):\n  SignalException: got signal: 15\n"
    expected = (
        "this machine cannot be a node of the run: cerebro_elastic.errors.RunError: this node has another"
    )
    assert last_error(log).startswith(expected)
