"""Local nodes: torchrun agents as processes of this machine, started by a command that anybody may type."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from cerebro_elastic.config import StoreSettings, price_from
from cerebro_elastic.core.model.events import (
    Event,
    NodeDraining,
    NodeJoined,
    NodeQuarantined,
    NodeReleased,
    UnitCommitted,
)
from cerebro_elastic.core.model.state import State
from cerebro_elastic.errors import RunError
from cerebro_elastic.runs.folder import RunFolder
from cerebro_elastic.runs.start.imports import AGENTS
from cerebro_elastic.runs.start.machine import Accelerators
from cerebro_elastic.system import forkserver
from cerebro_elastic.system.departure import within
from cerebro_elastic.system.files import as_its_folder, make_folder
from cerebro_elastic.system.process import MARK, PYTHON, SCRATCH, end_marked

TORCHRUN_LOGS = "PET_LOG_DIR"
"""torchrun's ``--log-dir``: without it, torchrun leaves a folder among the temporary files each time."""
_MARGIN = 5.0
"""Seconds after the grace in which an agent kills its ranks, if this process has not killed it earlier."""
_LONGEST_EXIT, _EXIT_SHARE = 1.0, 0.1
"""Seconds, and the part of the grace, in which ranks and agents exit when their units are over."""
_TAIL_LINES = 15
_TRIES = 3
"""A node that has ended this many times in a row without a commit counts as unable to work."""
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
_PROVEN = 60.0
"""Seconds after which the death of an agent is the first in a row again."""


def agent_command(run: str, endpoint: str, node: str, ranks: int) -> list[str]:
    """The torchrun command that makes this machine a node of ``run``."""
    return [
        *PYTHON,
        "-m",
        "torch.distributed.run",
        "--nnodes=1:1000",
        f"--nproc-per-node={ranks}",
        "--rdzv-backend=cerebro",
        f"--rdzv-endpoint={endpoint}",
        f"--rdzv-id={run}",
        f"--rdzv-conf=node={node},ranks={ranks}",
        # torchrun counts over the agent's life; the run has its own budgets, per unit.
        "--max-restarts=1000000",
        "-m",
        "cerebro_elastic.worker",
    ]


@dataclass(slots=True)
class _Node:
    """A node of this machine."""

    name: str
    log: Path
    sees: Mapping[str, str] = field(default_factory=dict)
    """The variable with the accelerators that it sees."""
    agent: forkserver.Process | None = None
    """Its present or last agent."""
    started: float = 0.0
    """When the agent was started, on the monotonic clock."""
    ends: int = 0
    """The number of the agent's deaths in a row."""
    restart_at: float | None = None
    """When it is restarted, on the monotonic clock."""
    left: bool = False
    """Whether the node was requested to leave."""
    asked: bool = False
    """Whether the agent has got SIGTERM. A second one would end it before its ranks."""

    @property
    def running(self) -> bool:
        return self.agent is not None and self.agent.poll() is None

    @property
    def over(self) -> bool:
        """Whether it has ended for good: on request, or because the run has ended."""
        return not self.running and (self.left or (self.agent is not None and self.agent.returncode == 0))


class LocalAgents:
    """The agents of the nodes ``names``, ended with this context or with this process.

    An agent that dies is restarted, after a pause that grows with each death, unless it was asked to leave.
    ``since`` is the store's revision before their start. They share the ``accelerators``, and have ``env`` in
    their environment, besides this process's.
    """

    def __init__(
        self,
        run: str,
        folder: RunFolder,
        settings: StoreSettings,
        names: Sequence[str],
        *,
        ranks: int,
        accelerators: Accelerators,
        grace: float,
        since: int,
        say: Callable[[str], None],
        env: Mapping[str, str] | None = None,
    ) -> None:
        price_from(os.environ)  # nodes would refuse it one by one
        self._env = env or {}
        self._run = run
        self._folder = folder
        self._scratch = folder.logs / "scratch"
        self._mark = str(folder.path.resolve())
        self._settings = settings
        self._nodes = {
            name: _Node(name, folder.logs / f"{name}.log", sees)
            for name, sees in zip(names, accelerators.share(len(names)), strict=True)
        }
        self._ranks = ranks
        self.grace = grace
        """The seconds that nodes have to leave."""
        self._since = since
        self._say = say

    def __enter__(self) -> Self:
        make_folder(self._folder.logs / "torchrun")
        try:
            for node in self._nodes.values():
                self._start(node)
        except BaseException:  # Ctrl-C, too
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        # Leftovers of killed agents, and processes that users' code has started and not ended.
        end_marked(MARK, self._mark)
        shutil.rmtree(self._scratch, ignore_errors=True)

    @property
    def names(self) -> set[str]:
        return set(self._nodes)

    @property
    def left(self) -> bool:
        """Whether all nodes have left on request."""
        return all(node.left and not node.running for node in self._nodes.values())

    @property
    def gone(self) -> bool:
        """Whether no node works any more, nor is likely to."""
        nodes = self._nodes.values()
        return all(node.over or (not node.running and node.ends >= _TRIES) for node in nodes)

    @property
    def saw_the_end(self) -> bool:
        """Whether a node has seen the run's end, which this process will read: it ended well, without
        request."""
        return any(node.over and not node.left for node in self._nodes.values())

    def observe(self, events: list[Event]) -> None:
        """Take in the events of the run's history on the nodes."""
        for event in events:
            if event.revision <= self._since:
                continue
            match event:
                case NodeJoined(node=joined) if joined.name in self._nodes:
                    self._nodes[joined.name].left = False
                case NodeDraining(node=name) if name in self._nodes:
                    self._nodes[name].left = True
                case UnitCommitted(visit=visit) if visit.node in self._nodes:
                    self._nodes[visit.node].ends = 0

    def keep(self) -> None:
        """Restart dead agents when their pauses are over; call it often."""
        now = time.monotonic()
        for node in self._nodes.values():
            if node.running:
                node.ends = node.ends if now - node.started < _PROVEN else 0
            elif node.restart_at is None and not node.over:
                node.ends += 1
                pause = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0 ** (node.ends - 1))
                node.restart_at = now + pause
                self._say(f"{_end_of(node)}; to be started anew in {pause:g} s (see {node.log})")
            elif node.restart_at is not None and now >= node.restart_at:
                self._start(node)

    def last_error(self) -> str:
        """The ends of the nodes, and the last node's last error."""
        nodes = list(self._nodes.values())
        error = last_error(nodes[-1].log.read_text(errors="replace"))
        return f"{'; '.join(map(_end_of, nodes))}; from {nodes[-1].log}:\n{error}"

    def ask(self) -> None:
        """Ask the nodes to leave: they finish their units or save them part-way. A signal handler may call
        it."""
        for node in self._nodes.values():
            if node.agent is not None and not node.asked:
                node.asked = True
                node.agent.send_signal(signal.SIGTERM)

    def stop(self) -> None:
        """Stop the agents: SIGTERM, and SIGKILL after the grace."""
        running = [node.agent for node in self._nodes.values() if node.running and node.agent]
        if not running:
            return
        self.ask()
        self._say(
            f"stopping the nodes: within {self.grace:g} s they finish their units or save them part-way "
            "(Ctrl-C: at once)"
        )
        try:
            _wait(running, within(self.grace))
        finally:  # also after one more Ctrl-C
            for agent in running:
                agent.kill()
                agent.wait()

    def wait(self, timeout: float) -> None:
        """Give the agents time to end by themselves after the run's end."""
        _wait([node.agent for node in self._nodes.values() if node.agent], timeout)

    def _start(self, node: _Node) -> None:
        command = agent_command(self._run, ",".join(self._settings.endpoints), node.name, self._ranks)
        environment = {
            **os.environ,
            **self._env,
            **self._settings.to_env(),
            "CEREBRO_PARENT": str(os.getpid()),
            MARK: self._mark,
            "CEREBRO_CACHE": str(self._folder.cache),
            "CEREBRO_GRACE": f"{self.grace - min(_LONGEST_EXIT, _EXIT_SHARE * self.grace):g}",
            TORCHRUN_LOGS: str(self._folder.logs / "torchrun"),
            SCRATCH: str(self._scratch),
            "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": str(math.ceil(self.grace + _MARGIN)),
            **node.sees,
        }
        with open(node.log, "ab", opener=as_its_folder) as log:
            node.agent = forkserver.start(
                command,
                environment,
                stdin=subprocess.DEVNULL,
                stdout=log.fileno(),
                stderr=log.fileno(),
                grace_seconds=self.grace + 2 * _MARGIN,
                socket=AGENTS if AGENTS in environment else forkserver.SOCKET,
            )
        node.started, node.restart_at, node.left, node.asked = time.monotonic(), None, False, False


def last_error(log: str) -> str:
    """The last error logged by a node's processes themselves, else the log's last lines."""
    lines = log.splitlines()
    for line in reversed(lines):
        try:
            record = json.loads(line)
            if record["level"] == "error":
                return f"{record['event']}: {record['error'].splitlines()[-1]}"
        except (ValueError, KeyError, TypeError):
            continue
    return "\n".join(lines[-_TAIL_LINES:])


def _end_of(node: _Node) -> str:
    code = node.agent.returncode if node.agent else None
    if node.left:
        return f"{node.name} has left"
    if code is not None and code < 0:
        return f"{node.name} was killed ({signal.Signals(-code).name})"
    return f"{node.name} has ended with exit code {code}"


def _wait(agents: Sequence[forkserver.Process], timeout: float) -> None:
    deadline = time.monotonic() + timeout
    for agent in agents:
        try:
            agent.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            return


class NodeHealthCheck:
    """Raises ``RunError`` in a run in which no node can work any more: all have been in quarantine since this
    process began, for faults of their own (a full disk); or this machine's nodes have ended, and no other has
    joined."""

    def __init__(self) -> None:
        self._quarantined: dict[str, str] = {}

    def __call__(self, agents: LocalAgents, events: list[Event], state: State) -> None:
        for event in events:
            match event:
                case NodeQuarantined(node=name) if name in state.streaks and state.streaks[name].kind.of_node:
                    self._quarantined[name] = state.streaks[name].story
                case NodeReleased(node=name):
                    self._quarantined.pop(name, None)
        if state.nodes and state.nodes.keys() <= self._quarantined.keys():
            reasons = "\n".join(f"  {name}: {self._quarantined[name]}" for name in sorted(state.nodes))
            raise RunError(
                f"no node can work:\n{reasons}\n"
                "what was committed is safe: mend this, then the same command goes on"
            )
        stuck = agents.gone and not agents.saw_the_end
        if stuck and not state.nodes.keys() - agents.names:
            raise RunError(f"all nodes have ended: {agents.last_error()}")
