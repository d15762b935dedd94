"""Loggers in a process of their own: they import torch and users' modules, and the leader's process imports
neither.

``python -m cerebro_elastic.runs.logging.remote_loggers`` reads the loggers to make from its first line, and
what was logged from each further one. It answers each line with a line: empty, or the error.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from cerebro_elastic import forkserver
from cerebro_elastic.errors import CerebroError, RunError
from cerebro_elastic.files import as_its_folder
from cerebro_elastic.registry import load
from cerebro_elastic.reporting.logged import Logged, Logger

_END_SECONDS = 10.0


class RemoteLoggers:
    """The loggers that ``specs`` name (see ``cerebro_lightning/loggers.py``). Their process starts with the
    first rows, and again with the first ones after ``close``. It has ``env`` in its environment, besides this
    process's. What they print goes to the file ``log``."""

    def __init__(
        self,
        specs: Sequence[str | Mapping[str, Any]],
        run: str,
        root: Path,
        folder: Path,
        log: Path,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self._env = env or {}
        self._request = {"specs": list(specs), "run": run, "root": str(root), "folder": str(folder)}
        self._log = log
        self._process: _Process | None = None

    def write(self, logged: Logged) -> None:
        if self._process is None:
            self._process = _Process(self._log, {**os.environ, **self._env})
            self._ask(self._request)
        self._ask(asdict(logged))

    def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.end()

    def _ask(self, value: Mapping[str, Any]) -> None:
        assert self._process is not None
        answer = self._process.ask(json.dumps(value))
        if answer != "\n":
            died = answer.strip() or f"their process ended with status {self._process.wait()}"
            raise RunError(f"{died} (what they printed is in {self._log})")


class _Process:
    """This module as a program, in a session of its own: Ctrl-C is for the run, which then ends it."""

    def __init__(self, log: Path, env: Mapping[str, str]) -> None:
        read_request, request_to = os.pipe()
        read_answer, answer_to = os.pipe()
        with (
            open(log, "ab", opener=as_its_folder) as errors,
            os.fdopen(read_request) as stdin,
            os.fdopen(answer_to, "w") as stdout,
        ):
            self._process = forkserver.start(
                [sys.executable, "-m", __name__],
                env,
                stdin=stdin.fileno(),
                stdout=stdout.fileno(),
                stderr=errors.fileno(),
            )
        self._requests, self._answers = os.fdopen(request_to, "w"), os.fdopen(read_answer)

    def ask(self, line: str) -> str:
        """The answer to a line; nothing if the process has ended."""
        with suppress(BrokenPipeError):
            print(line, file=self._requests, flush=True)
        return self._answers.readline()

    def wait(self) -> int:
        return self._process.wait()

    def end(self) -> None:
        """Let it close the loggers; kill it if that takes too long."""
        with suppress(BrokenPipeError), self._answers:
            self._requests.close()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _main() -> None:
    # Loggers may print; the answers alone go to the real stdout.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    lines = map(json.loads, sys.stdin)
    logger: Logger | None = None
    for value in lines:
        try:
            if logger is None:
                make = load("cerebro.loggers", "lightning")
                logger = make(value["specs"], value["run"], Path(value["root"]), Path(value["folder"]))
            else:
                logger.write(Logged(**value))
            print(file=answers, flush=True)
        except Exception as error:  # a logger is somebody else's code; its process stays for what comes
            reason = str(error) if isinstance(error, CerebroError) else f"{type(error).__name__}: {error}"
            print(reason.replace("\n", " "), file=answers, flush=True)
    if logger is not None:
        logger.close()


if __name__ == "__main__":
    _main()
