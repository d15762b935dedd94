"""Local nodes: torchrun agents as processes of this machine, the same command that anybody may type."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Self

from cerebro_elastic.config import StoreSettings
from cerebro_elastic.errors import RunError
from cerebro_elastic.runs.folder import RunFolder

GRACE = 10.0
"""Seconds between SIGTERM and SIGKILL."""
_TAIL_LINES = 15


def agent_command(run: str, endpoint: str, node: str, ranks: int) -> list[str]:
    """The torchrun command that makes this machine a node of ``run``."""
    return [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nnodes=1:1000",
        f"--nproc-per-node={ranks}",
        "--rdzv-backend=cerebro",
        f"--rdzv-endpoint={endpoint}",
        f"--rdzv-id={run}",
        f"--rdzv-conf=node={node}",
        # torchrun counts over the agent's life; the run has budgets of its own, per unit.
        "--max-restarts=1000000",
        "-m",
        "cerebro_elastic.worker",
    ]


class LocalAgents:
    """``count`` agents, ended with this context or with this process."""

    def __init__(self, folder: RunFolder, settings: StoreSettings, count: int, ranks: int) -> None:
        self._folder = folder
        self._settings = settings
        self._names = [f"node-{i}" for i in range(count)]
        self._ranks = ranks
        self._agents: dict[str, subprocess.Popen[bytes]] = {}
        self._logs: list[IO[bytes]] = []

    def __enter__(self) -> Self:
        self._folder.logs.mkdir(parents=True, exist_ok=True)
        try:
            for name in self._names:
                self._start(name)
        except BaseException:  # Ctrl-C, too
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def check(self) -> None:
        """Raise ``RunError`` with the last words of one if no agent is left."""
        codes = {name: agent.poll() for name, agent in self._agents.items()}
        if all(code is not None for code in codes.values()):
            log = self.log_of(self._names[-1])
            said = last_words(log.read_text(errors="replace"))
            raise RunError(f"all nodes have ended (exit codes {codes}); from {log}:\n{said}")

    def log_of(self, name: str) -> Path:
        """The file with all that a node's processes write."""
        return self._folder.logs / f"{name}.log"

    def stop(self) -> None:
        """Let go: SIGTERM, and SIGKILL for whoever is still there after the grace."""
        for agent in self._running():
            agent.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + GRACE
        for agent in self._running():
            try:
                agent.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                agent.kill()
                agent.wait()
        for log in self._logs:
            log.close()

    def wait(self, timeout: float) -> None:
        """Give the agents time to end by themselves after the run's end."""
        deadline = time.monotonic() + timeout
        for agent in self._running():
            try:
                agent.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                return

    def _running(self) -> Sequence[subprocess.Popen[bytes]]:
        return [agent for agent in self._agents.values() if agent.poll() is None]

    def _start(self, name: str) -> None:
        log = self.log_of(name).open("ab")
        self._logs.append(log)
        command = agent_command(self._folder.run, ",".join(self._settings.endpoints), name, self._ranks)
        environment = {
            **os.environ,
            **self._settings.to_env(),
            "CEREBRO_PARENT": str(os.getpid()),
            "CEREBRO_CACHE": str(self._folder.cache),
            "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "5",
        }
        self._agents[name] = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )


def last_words(log: str) -> str:
    """The last error that a node's processes logged themselves, else the log's last lines."""
    lines = log.splitlines()
    for line in reversed(lines):
        try:
            record = json.loads(line)
            if record["level"] == "error":
                return f"{record['event']}: {record['error'].splitlines()[-1]}"
        except (ValueError, KeyError, TypeError):
            continue
    return "\n".join(lines[-_TAIL_LINES:])
