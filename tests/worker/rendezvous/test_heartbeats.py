"""Hanging ranks, as their agent sees them: real processes, stopped and killed; the test sets the agent's
clock."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from cerebro_elastic.core.model.attempts import Attempt, FailureKind
from cerebro_elastic.core.model.configs import Config
from cerebro_elastic.core.model.events import Event, NodeLeft, NodeRecovered, NodeStalled, UnitFailed
from cerebro_elastic.core.model.nodes import Node, Stall
from cerebro_elastic.core.model.run import Plan, Spec
from cerebro_elastic.core.model.units import Unit
from cerebro_elastic.system.logs import EventLog
from cerebro_elastic.worker.rendezvous.heartbeats import START_SECONDS, RankMonitor
from cerebro_elastic.worker.rendezvous.registration import Registration
from support.clocks import HandClock
from support.ledger import Ledger
from support.memory_store import MemoryStore
from support.waiting import SOON, wait_for

LIMIT = 60.0

RANK = """
import sys, time
from pathlib import Path
from cerebro_elastic.worker.rendezvous.heartbeats import RankActivity, Heartbeat

folder, silent = Path(sys.argv[1]), float(sys.argv[2])
(folder / "0.pid").write_text("{} {}".format(__import__("os").getpid(), __import__("os").getppid()))
heartbeat = Heartbeat(folder, 0)
if silent >= 0:
    heartbeat.ready(60.0, lambda: RankActivity(7, silent, 100.0) if silent else RankActivity())
sys.stdin.read()
heartbeat.stop()
"""


class Scene:
    """An agent, which is this process, and its rank, if it is ``begun``."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self.clock = HandClock()
        self.ranks = RankMonitor(folder, 1, self.clock)
        self._stack = stack

    def begin(self, silent: float = 0.0, *, command: str = RANK) -> subprocess.Popen[bytes]:
        """Start the rank; ``silent``: for so long it has made no progress, below 0: it is not ready yet."""
        rank = subprocess.Popen(
            [sys.executable, "-c", command, str(self.folder), str(silent)],
            stdin=subprocess.PIPE,
            env={**os.environ, "LOCAL_RANK": "0"},
        )
        self._stack.callback(rank.wait, SOON)
        self._stack.callback(rank.kill)
        assert rank.stdin is not None
        self._stack.callback(rank.stdin.close)
        if command is RANK:
            wait_for(lambda: self.line().split()[1:2] == ["1" if silent >= 0 else "0"])
        return rank

    def line(self) -> str:
        path = self.folder / "0.heartbeat"
        return path.read_text() if path.exists() else ""

    def _wait_for_a_heartbeat(self) -> None:
        before = self.line()
        wait_for(lambda: self.line() != before)

    def look(self, seconds: float, *, alive: bool = False) -> Stall | None:
        """Let time pass, look by look; a rank that is ``alive`` beats between two looks."""
        stall = self.ranks.look()
        for _ in range(round(seconds / 5.0)):
            if alive:
                self._wait_for_a_heartbeat()
            self.clock.sleep(5.0)
            stall = self.ranks.look()
        return stall


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with ExitStack() as stack:
        yield Scene(tmp_path, stack)


def test_a_rank_that_beats_is_left_alone_and_one_that_is_stopped_is_killed(scene: Scene) -> None:
    rank = scene.begin()
    assert scene.look(15.0, alive=True) is None
    rank.send_signal(signal.SIGSTOP)
    wait_for(lambda: _state(rank.pid) == "T")
    scene.look(0.0)
    assert scene.look(5.0) is None
    stall = scene.look(10.0)
    assert stall is not None
    assert "rank 0 shows no sign of life: it is stopped (SIGSTOP)" in stall.why
    scene.look(LIMIT - 20.0)
    assert _state(rank.pid) == "T", "its time is not over"
    scene.look(15.0)
    assert rank.wait(SOON) == -signal.SIGKILL
    failure = scene.ranks.take_rank_failure()
    assert failure.kind is FailureKind.HANG
    assert "no sign of life for 65 s (it is stopped (SIGSTOP)) and was killed by its agent" in failure.story
    scene.ranks.begin()
    assert scene.look(15.0) is None, "the next one is being started"


@pytest.mark.parametrize("comes", [True, False])
def test_a_rank_that_hangs_before_it_is_ready_is_killed_later(scene: Scene, comes: bool) -> None:
    """While it imports, or before it has said anything at all."""
    rank = scene.begin(-1.0, command=RANK if comes else "import sys; sys.stdin.read()")
    wait_for(lambda: b"LOCAL_RANK=0" in Path(f"/proc/{rank.pid}/environ").read_bytes())
    rank.send_signal(signal.SIGSTOP)
    wait_for(lambda: _state(rank.pid) == "T")
    scene.look(0.0)
    assert scene.look(START_SECONDS / 2 - 5.0) is None
    assert scene.look(10.0) is not None
    assert rank.poll() is None
    scene.look(START_SECONDS / 2)
    assert rank.wait(SOON) == -signal.SIGKILL


def test_a_rank_that_leaves_is_not_reported(scene: Scene) -> None:
    rank = scene.begin()
    scene.look(0.0)
    assert rank.stdin is not None
    rank.stdin.close()
    assert rank.wait(SOON) == 0
    assert scene.look(10 * LIMIT) is None
    assert scene.ranks.dead is None


def test_a_rank_without_progress_is_reported_and_left_to_its_watchdog(scene: Scene) -> None:
    rank = scene.begin(51.0)
    stall = scene.look(10.0, alive=True)
    assert stall is not None
    assert "rank 0 makes no progress" in stall.why
    assert stall.began == pytest.approx(scene.clock.wall() - 51.0, abs=1.0)
    assert rank.poll() is None


def test_a_rank_that_has_died_and_is_not_restarted_is_found(scene: Scene) -> None:
    """The agent's own thread stands, say."""
    rank = scene.begin()
    scene.look(0.0)
    rank.kill()
    wait_for(lambda: _state(rank.pid) == "Z")
    stall = scene.look(LIMIT + 10.0)
    assert stall is not None
    assert "it has died, and its agent does not restart it" in stall.why
    assert scene.ranks.dead is None
    scene.look(30.0)
    assert scene.ranks.dead is not None


def test_a_stall_is_recorded_and_a_node_whose_rank_cannot_be_ended_leaves(scene: Scene) -> None:
    ledger = Ledger(MemoryStore(), "r")
    ledger.open_run(Spec(Plan("r", 1, 1), {}, "", "", "", "", {}, "", ""))
    leader = ledger.lead("me", ledger.store.grant(99))
    assert leader is not None
    revision = leader.create_config(Config("c", {}))
    assert revision is not None
    registration = Registration(ledger, Node("n", "host"), 1.0, EventLog(), ranks=scene.ranks)
    try:
        rank = scene.begin()
        attempt = Attempt(Unit("c", 0, 0), "n", registration.node.registration, revision)
        assert leader.assign(attempt)
        _stop(rank)
        _pass_time(scene, lambda: ledger.state().nodes["n"].stalled is not None)
        rank.send_signal(signal.SIGCONT)
        wait_for(lambda: ledger.state().nodes["n"].stalled is None)
        rank.kill()  # and nobody starts it anew
        _pass_time(scene, lambda: ledger.node("n") is None)
    finally:
        registration.close()
    reports = [e for e in ledger.history() if isinstance(e, _REPORTS)]
    assert [type(event) for event in reports] == [NodeStalled, NodeRecovered, NodeStalled, UnitFailed]
    assert isinstance(reports[-1], UnitFailed)
    assert reports[-1].failure.kind is FailureKind.HANG
    with ledger.events(reports[-1].revision + 1) as stream:
        assert isinstance(stream.next(SOON)[0], NodeLeft)


_REPORTS: tuple[type[Event], ...] = (NodeStalled, NodeRecovered, UnitFailed)


def _pass_time(scene: Scene, until: Callable[[], object]) -> None:
    def later() -> object:
        scene.clock.sleep(1.0)
        return until()

    wait_for(later)


def _stop(rank: subprocess.Popen[bytes]) -> None:
    rank.send_signal(signal.SIGSTOP)
    wait_for(lambda: _state(rank.pid) == "T")


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
