"""Nodes by real torchrun, which end with their test."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from cerebro_elastic.system import forkserver


class Agents:
    """The agents of nodes. Each logs to ``folder``; they are killed at the end of ``stack``."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self._stack = stack

    def launch(self, name: str, command: Sequence[str], **env: str) -> forkserver.Process:
        """Start the agent of a node by its command."""
        ours = {
            "CEREBRO_PARENT": str(os.getpid()),
            "CEREBRO_CACHE": str(self.folder / "cache"),
            "TMPDIR": str(self.folder),  # for what those leave who are killed
        }
        with (self.folder / f"{name}.log").open("ab") as log:
            agent = forkserver.start(
                command,
                {**os.environ, **ours, **env},
                stdin=subprocess.DEVNULL,
                stdout=log.fileno(),
                stderr=log.fileno(),
            )
        self._stack.callback(agent.wait, 20)
        self._stack.callback(agent.kill)
        return agent

    def log(self, name: str) -> list[dict[str, Any]]:
        lines = (self.folder / f"{name}.log").read_text(errors="replace").splitlines()
        return [json.loads(line) for line in lines if line.startswith('{"time"')]

    def said(self, name: str, event: str) -> list[dict[str, Any]]:
        return [line for line in self.log(name) if line["event"] == event]
