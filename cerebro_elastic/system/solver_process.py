"""Runs a solver in a process of its own: a Python module that reads a question from its standard input and
writes the answer to its standard output, both as JSON. The solver ends with the process that asks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from typing import Any, Self

from cerebro_elastic.errors import CerebroError

_PROGRAM = """
import os, runpy, sys
from cerebro_elastic.system.process import die_with_parent
die_with_parent(int(sys.argv[2]))
os.nice(int(sys.argv[3]))
runpy.run_module(sys.argv[1], run_name="__main__")
"""
_SHOWN = 500
"""How many characters of a solver's standard error an error message repeats."""


class SolverFailed(CerebroError):
    """A solver did not answer, or not with JSON.

    Args:
        reason: What it did, as words that follow its name.
        status: Its exit status.
    """

    def __init__(self, solver: str, reason: str, status: int) -> None:
        super().__init__(f"the solver {solver} {reason}")
        self.reason, self.status = reason, status


class SolverProcess:
    """A solver, ``module``, that works on a question. Leaving the context kills it.

    Args:
        module: The solver, as ``python -m`` takes it.
        question: What it reads: JSON values.
        niceness: By how much its priority is lowered.

    Raises:
        OSError: It cannot be started, as where the disk is full.
    """

    def __init__(self, module: str, question: Mapping[str, Any], niceness: int = 0) -> None:
        self._module = module
        # Files and not pipes: neither process waits for the other to read.
        self._files = [tempfile.TemporaryFile() for _ in range(3)]  # noqa: SIM115 - they outlive this call
        stdin, self._stdout, self._stderr = self._files
        try:
            stdin.write(json.dumps(question).encode())
            stdin.seek(0)
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", _PROGRAM, module, str(os.getpid()), str(niceness)],
                stdin=stdin,
                stdout=self._stdout,
                stderr=self._stderr,
            )
        except OSError:
            self._close_files()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def ended(self) -> bool:
        """Whether the solver has ended, with an answer or without."""
        return self._process.poll() is not None

    def answer(self) -> Any:
        """Wait for the answer and return it. Raises ``SolverFailed``."""
        status = self._process.wait()
        self._stdout.seek(0)
        self._stderr.seek(0)
        if status:
            written = self._stderr.read().decode(errors="replace").strip()[-_SHOWN:]
            raise SolverFailed(self._module, f"ended with {status} ({written})", status)
        try:
            return json.loads(self._stdout.read())
        except ValueError as error:
            raise SolverFailed(self._module, f"gave an answer that is no JSON ({error})", 0) from error

    def close(self) -> None:
        """End the solver, if it has not ended."""
        self._process.kill()
        self._process.wait()
        self._close_files()

    def _close_files(self) -> None:
        for file in self._files:
            file.close()


def solve(module: str, question: Mapping[str, Any]) -> Any:
    """The answer of the solver ``module``. Raises ``SolverFailed``."""
    with SolverProcess(module, question) as solver:
        return solver.answer()
