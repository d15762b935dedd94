"""A cluster on one machine: an etcd, nodes, and candidates for the lead. Each is a process that a storm may
kill, pause, ask to leave, and start again."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from cerebro_elastic.recipes import load_recipe
from cerebro_elastic.runs.folder import RunFolder
from cerebro_elastic.runs.start.agents import TORCHRUN_LOGS, agent_command
from cerebro_elastic.runs.start.prepare_run import new_spec
from cerebro_elastic.runs.terminal_view import Watcher
from cerebro_elastic.store.client.etcd import EtcdStore
from cerebro_elastic.system import forkserver
from cerebro_elastic.system.process import PYTHON, SCRATCH
from cerebro_elastic.system.run_key import RunKey
from support.etcd_cluster import EtcdCluster
from support.faults.inject import FOLDER, FaultFolder
from support.ledger import Ledger
from support.processes import is_running

FAULTY = "support.faulty"
TESTS = Path(__file__).parents[1]
"""Child processes import ``support`` from here, wherever this process found it."""
GRACE = 0.7
"""Seconds that a node is given to leave: too few for most units."""


class Process:
    """A command that runs at most once at a time; its output goes to ``log``."""

    def __init__(self, command: list[str], log: Path, env: Mapping[str, str]) -> None:
        self._command, self._log, self._env = command, log, env
        self._popen: forkserver.Process | None = None
        self.starts = 0

    @property
    def pid(self) -> int:
        assert self._popen is not None, f"{self._command} was never started"
        return self._popen.pid

    @property
    def alive(self) -> bool:
        return self._popen is not None and self._popen.poll() is None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._popen = forkserver.start(
                self._command,
                {**os.environ, **self._env},
                stdin=subprocess.DEVNULL,
                stdout=log.fileno(),
                stderr=log.fileno(),
            )
        self.starts += 1

    def send(self, number: signal.Signals) -> None:
        """Send a signal, unless the process has ended."""
        if self._popen is not None:
            self._popen.send_signal(number)

    def wait(self, seconds: float) -> bool:
        """Whether it has ended within ``seconds``."""
        if self._popen is not None:
            with suppress(subprocess.TimeoutExpired):
                self._popen.wait(seconds)
        return not self.alive

    def end(self) -> None:
        """Kill the process, also a paused one."""
        if self.alive:
            self.send(signal.SIGKILL)
            self.wait(60)


class Cluster:
    """The run of a recipe, as processes: an etcd, nodes, and candidates for the lead.

    Entering the context starts the etcd; its user starts the other processes. Leaving the context ends all.
    """

    def __init__(
        self,
        recipe: Mapping[str, Any],
        folder: RunFolder,
        *,
        nodes: int,
        candidates: int,
        members: int = 1,
        grace: float = GRACE,
    ) -> None:
        self.folder = folder
        self._recipe = load_recipe(dict(recipe), root=folder.path.parent)
        self._names = ([f"node-{i}" for i in range(nodes)], [f"candidate-{i}" for i in range(candidates)])
        self._members = members
        self._grace = grace
        self._stack = ExitStack()
        self.faults = FaultFolder(folder.path / "faults")

    def __enter__(self) -> Self:
        with self._stack as stack:
            self.folder.logs.mkdir(parents=True, exist_ok=True)
            self.faults.make()
            self.etcd = stack.enter_context(EtcdCluster(self.folder.etcd, self._members))
            store = stack.enter_context(closing(EtcdStore(self.etcd.settings)))
            self._key = RunKey.kept(self.folder.key)
            self.ledger = Ledger(store, self.folder.run, self._key)
            self.spec = new_spec(self.folder, self._recipe, Watcher())
            self.ledger.open_run(self.spec)
            nodes, candidates = self._names
            self.nodes = {name: self._process(name, self._node(name)) for name in nodes}
            self.candidates = {name: self._process(name, self._candidate(name)) for name in candidates}
            for process in (*self.nodes.values(), *self.candidates.values()):
                stack.callback(process.end)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def log_of(self, name: str) -> Path:
        """The file with the output of a process and its children."""
        return self.folder.logs / f"{name}.log"

    def rank(self, node: str) -> int | None:
        """The pid of a node's rank, if it lives and is ready for units."""
        ranks = self.faults.ranks(node)
        return ranks[-1] if ranks and is_running(ranks[-1]) else None

    def _node(self, name: str) -> list[str]:
        command = agent_command(self.folder.run, ",".join(self.etcd.settings.endpoints), name, 1)
        return [FAULTY if part == "cerebro_elastic.worker" else part for part in command]

    def _candidate(self, name: str) -> list[str]:
        return [*PYTHON, "-m", "support.lead", str(self.folder.path), name]

    def _process(self, name: str, command: list[str]) -> Process:
        env = {
            **replace(self.etcd.settings, run_key=self._key).to_env(),
            "PYTHONPATH": os.pathsep.join(filter(None, (str(TESTS), os.environ.get("PYTHONPATH")))),
            FOLDER: str(self.folder.path / "faults"),
            "CEREBRO_CACHE": str(self.folder.cache),
            "CEREBRO_PARENT": str(os.getpid()),
            "CEREBRO_GRACE": str(self._grace),
            TORCHRUN_LOGS: str(self.folder.logs / "torchrun"),
            SCRATCH: str(self.folder.logs / "scratch"),
            "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "20",
        }
        return Process(command, self.log_of(name), env)
