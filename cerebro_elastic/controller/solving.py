"""The solver of a policy that has one (``core.ports.Planner``): a process beside the leader, which answers
while units run. The leader never waits for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from typing import IO, Any

from cerebro_elastic.core.decisions.assignment import remaining_work_now
from cerebro_elastic.core.model.interfaces import Planner, RemainingWork
from cerebro_elastic.core.model.state import State
from cerebro_elastic.core.model.units import Order

NICE = 10

_SOLVE = """
import os, runpy, sys
from cerebro_elastic.process import die_with_parent
die_with_parent(int(sys.argv[2]))
os.nice(int(sys.argv[3]))
runpy.run_module(sys.argv[1], run_name="__main__")
"""


class Solving:
    """What a leader asks of its policy's solver, one question at a time. A solver that fails, cannot be
    started (a full disk, no memory) or answers nonsense is told of (``say``), and asked no more: the run
    needs none."""

    def __init__(self, policy: Planner, seed: int, say: Callable[[str], None]) -> None:
        self._policy, self._seed, self._say = policy, seed, say
        self._before: RemainingWork | None = None
        self._asked: Mapping[str, Any] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._files: list[IO[bytes]] = []
        self._failed = False

    def step(self, state: State) -> Order | None:
        """The answer, if there is one now; else ask, if that is due."""
        if self._process is not None:
            return self._answer() if self._process.poll() is not None else None
        left = None if self._failed else remaining_work_now(state)
        if left is not None and self._policy.due(self._before, left):
            self._before = left
            question = self._policy.question(left, self._seed)
            if question is not None:
                try:
                    self._ask(question)
                except OSError as error:
                    self._give_up(f"cannot be asked ({error})")
        return None

    def close(self) -> None:
        """What is being solved is of no use any more."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._forget()

    def _ask(self, question: Mapping[str, Any]) -> None:
        # Files and not pipes: nobody waits for the other to read.
        self._asked = question
        self._files = [tempfile.TemporaryFile() for _ in range(3)]  # noqa: SIM115 - they outlive this call
        given, *told = self._files
        given.write(json.dumps(question).encode())
        given.seek(0)
        arguments = [self._policy.solver, str(os.getpid()), str(NICE)]
        self._process = subprocess.Popen(
            [sys.executable, "-c", _SOLVE, *arguments], stdin=given, stdout=told[0], stderr=told[1]
        )

    def _answer(self) -> Order | None:
        assert self._process is not None
        assert self._before is not None
        code, (_, answer, errors) = self._process.returncode, self._files
        answer.seek(0)
        errors.seek(0)
        if code:
            story = errors.read().decode(errors="replace").strip()[-500:]
            self._give_up(f"ended with {code} ({story})")
            return None
        try:
            told = json.loads(answer.read())
        except ValueError as error:
            self._give_up(f"gave an answer that is no JSON ({error})")
            return None
        self._forget()
        return self._policy.order(self._before, self._asked, told)

    def _give_up(self, why: str) -> None:
        self._failed = True
        self._forget()
        self._say(f"the solver {self._policy.solver} {why}: going on without it")

    def _forget(self) -> None:
        for file in self._files:
            file.close()
        self._files, self._process = [], None
