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
from dataclasses import asdict
from pathlib import Path
from typing import Any

from cerebro_elastic.errors import CerebroError, RunError
from cerebro_elastic.files import as_its_folder
from cerebro_elastic.registry import load
from cerebro_elastic.reporting.logged import Logged, Logger

_END_SECONDS = 10.0


class RemoteLoggers:
    """The loggers that ``specs`` name (see ``cerebro_lightning/loggers.py``). Their process starts with the
    first rows, and again with the first ones after ``close``. What they print goes to the file ``log``."""

    def __init__(
        self, specs: Sequence[str | Mapping[str, Any]], run: str, root: Path, folder: Path, log: Path
    ) -> None:
        self._request = {"specs": list(specs), "run": run, "root": str(root), "folder": str(folder)}
        self._log = log
        self._process: subprocess.Popen[str] | None = None

    def write(self, logged: Logged) -> None:
        if self._process is None:
            with open(self._log, "ab", opener=as_its_folder) as log:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "cerebro_elastic.runs.logging.remote_loggers"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                    start_new_session=True,  # Ctrl-C is for the run, which then closes them
                )
            self._ask(self._request)
        self._ask(asdict(logged))

    def close(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        try:
            process.communicate(timeout=_END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()

    def _ask(self, value: Mapping[str, Any]) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(value), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        if answer != "\n":
            died = answer.strip() or f"their process ended with status {self._process.wait()}"
            raise RunError(f"{died} (what they printed is in {self._log})")


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
