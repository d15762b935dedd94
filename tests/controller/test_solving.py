"""The solver's process beside the leader: it is called and answers, its failure is reported, and it ends with
the leader."""

from __future__ import annotations

import errno
import os
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

from cerebro_elastic.core.model.events import Ordered
from cerebro_elastic.core.model.interfaces import RemainingWork
from cerebro_elastic.core.model.run import Plan
from cerebro_elastic.core.model.units import Order
from cerebro_elastic.scheduling.longest_remaining import LongestRemaining
from support.waiting import SOON
from support.world import World

ORDER: Order = (("a", "c0001", 0, 1),)
MODULES = {
    "answering": "import json, sys; print(json.dumps({'answer': json.load(sys.stdin)}))",
    "failing": "raise SystemExit('out of luck')",
    "babbling": "print('let me see')",
    "thinking": "import time; time.sleep(600)",
}


class SolverPolicy(LongestRemaining):
    """Calls ``solver`` once; the solver returns its question."""

    def __init__(self, solver: str) -> None:
        self.solver = solver
        self.questions = 0

    def due(self, before: RemainingWork | None, left: RemainingWork) -> bool:
        return before is None or len(before.nodes) != len(left.nodes)

    def question(self, left: RemainingWork, seed: int) -> Mapping[str, Any]:
        self.questions += 1
        return {"nodes": sorted(left.nodes), "seed": seed}

    def order(self, left: RemainingWork, question: Mapping[str, Any], answer: Any) -> Order:
        assert answer == question == {"nodes": sorted(left.nodes), "seed": 7}
        return ORDER


@pytest.fixture(autouse=True)
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in MODULES.items():
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")


def begun(policy: SolverPolicy, said: list[str]) -> World:
    """A run whose first unit is in training."""
    world = World(Plan("r", partitions=2, epochs=2, seed=7), 2, policy)
    world.elect()
    world.controllers[-1]._say = said.append
    world.join("a")
    while not world.ledger.state().attempts:
        world.control()
    world.control()
    return world


def no_room() -> None:
    raise OSError(errno.ENOSPC, "no space left")


def close(world: World) -> None:
    for controller in world.controllers:
        controller.__exit__()


def until(world: World, wanted: Any) -> None:
    deadline = time.monotonic() + SOON
    while not wanted():
        assert time.monotonic() < deadline
        world.control()


def test_the_answer_is_written_down() -> None:
    said: list[str] = []
    world = begun(SolverPolicy("answering"), said)
    until(world, lambda: world.ledger.state().order)
    assert world.ledger.state().order == ORDER
    assert sum(isinstance(event, Ordered) for event in world.trace()) == 1
    world.check_fold()
    assert world.check() == []
    assert not said


@pytest.mark.parametrize(
    ("solver", "story"),
    [
        ("failing", "failing died with status 1:\nout of luck"),
        ("babbling", "babbling died with status 0"),
        ("unasked", "unasked cannot be asked ([Errno 28] no space left"),
    ],
)
def test_a_failing_solver_is_reported_once_and_the_run_goes_on(
    solver: str, story: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    policy = SolverPolicy(solver)
    if solver == "unasked":
        monkeypatch.setattr(tempfile, "TemporaryFile", no_room)
    world = begun(policy, said)
    until(world, lambda: said)
    world.join("b")
    for _ in range(9):
        world.control()
    assert policy.questions == 1
    assert len(said) == 1
    assert story in said[0]
    assert world.finish("a", 30)
    close(world)


def test_a_former_leader_leaves_no_process_behind() -> None:
    world = begun(SolverPolicy("thinking"), [])
    (process,) = [each for each in psutil.Process().children() if "thinking" in each.cmdline()]
    deposed = world.controllers[0]
    world.elect()
    while deposed in world.controllers:
        world.control(0)
    assert not process.is_running()
    close(world)
