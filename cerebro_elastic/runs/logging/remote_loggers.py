"""Loggers in their own processes: they import torch and users' modules, or a tracker's client, and the
leader's process imports none of these.

``python -m cerebro_elastic.runs.logging.remote_loggers`` reads the logger to make from its first line, and a
call of it from each further line. It answers each line with a line, which has the error, if any.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar, TextIO

from cerebro_elastic.errors import CerebroError, RunError, TrackerAway
from cerebro_elastic.registry import load
from cerebro_elastic.reporting.logged import ConfigEnd, Logged
from cerebro_elastic.system.files import as_its_folder, redacted
from cerebro_elastic.system.subprocess_call import AnsweringProcess, answers_alone

_END_SECONDS = 30.0
_NICENESS = 10
"""If cores are scarce, training goes first."""
_ARGUMENTS = {"write": Logged, "end": ConfigEnd}
"""By callable method: the type of its argument."""


class RemoteLogger:
    """The logger registered as ``name`` in its ``group``, and made with ``settings``. Its process starts with
    the first call, and again with the first one after ``close``. It has ``env`` in its environment, besides
    this process's. Its output goes to the file ``log``. Calls raise ``RunError``."""

    group: ClassVar[str] = "cerebro.loggers"
    error: ClassVar[type[CerebroError]] = RunError

    def __init__(
        self, name: str, settings: Mapping[str, Any], log: Path, env: Mapping[str, str] | None = None
    ) -> None:
        self._request = {"group": self.group, "logger": name, "settings": settings}
        self._log = log
        self._env = env or {}
        self._process: _Process | None = None

    def write(self, logged: Logged) -> None:
        self._call("write", logged)

    def end(self, end: ConfigEnd) -> None:
        self._call("end", end)

    def close(self) -> None:
        process, self._process = self._process, None
        if process is not None and not process.close():
            raise self.error(f"its process did not end in time (what it printed is in {self._log})")

    def _call(self, method: str, argument: Logged | ConfigEnd) -> None:
        if self._process is None:
            self._process = _Process(self._log, {**os.environ, **self._env})
            self._ask(self._process, self._request)
        self._ask(self._process, {"method": method, "argument": asdict(argument)})

    def _ask(self, process: _Process, request: Mapping[str, Any]) -> None:
        answer = process.ask(request) or {"error": f"its process ended ({process.process.wait()})"}
        if answer["error"] is not None:
            raise self.error(f"{answer['error']} (what it printed is in {self._log})")


class RemoteTracker(RemoteLogger):
    """A tracker, which may be away for a while. Calls raise ``TrackerAway``."""

    group = "cerebro.trackers"
    error = TrackerAway


class _Process(AnsweringProcess):
    """This module as a program."""

    def __init__(self, log: Path, env: Mapping[str, str]) -> None:
        read_request, request_to = os.pipe()
        self._requests = os.fdopen(request_to, "w")
        with open(log, "ab", opener=as_its_folder) as errors, os.fdopen(read_request) as stdin:
            super().__init__(__name__, env, stdin=stdin.fileno(), stderr=errors.fileno())

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any] | None:
        """The answer to a request; ``None`` if the process has ended."""
        with suppress(BrokenPipeError):
            print(json.dumps(request), file=self._requests, flush=True)
        return self.next_answer()

    def close(self) -> bool:
        """Let it close the loggers; kill it if that takes too long. Returns whether it ended by itself."""
        with suppress(BrokenPipeError):
            self._requests.close()
        try:
            self.process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            return False
        finally:
            self.end()
        return True


class _Redacted(io.TextIOBase):
    """Text without passwords on its way to ``stream``."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(redacted(text))
        return len(text)

    def flush(self) -> None:
        self._stream.flush()

    def fileno(self) -> int:
        return self._stream.fileno()


def _main() -> None:
    answers = answers_alone()
    sys.stdout, sys.stderr = _Redacted(sys.stdout), _Redacted(sys.stderr)
    os.nice(_NICENESS)
    mode = os.fstat(2).st_mode  # the run's folder decides who may read, their files included
    os.umask(0o777 & ~(mode | (mode & 0o444) >> 2))
    logger: Any = None
    for request in map(json.loads, sys.stdin):
        problem = None
        try:
            if logger is None:
                logger = load(request["group"], request["logger"])(**request["settings"])
            else:
                method = request["method"]
                getattr(logger, method)(_ARGUMENTS[method](**request["argument"]))
        except Exception as error:  # a logger is foreign code; its process stays for later calls
            reason = str(error) if isinstance(error, CerebroError) else f"{type(error).__name__}: {error}"
            problem = " ".join(redacted(reason).split())
        print(json.dumps({"error": problem}), file=answers, flush=True)
    if logger is not None:
        logger.close()


if __name__ == "__main__":
    _main()
