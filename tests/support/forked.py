"""Programs as forks of the tests' fork server, if there is one: those that import torch start in no time."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import chdir
from pathlib import Path

from cerebro_elastic.system import forkserver
from support.waiting import SOON


def output(
    command: Sequence[str], folder: Path, environment: Mapping[str, str], seconds: float = SOON
) -> str:
    """What ``python -P -m ...`` prints in ``folder``; it has to succeed."""
    with tempfile.TemporaryFile("w+") as stdout, tempfile.TemporaryFile("w+") as stderr:
        with chdir(folder):
            files = {"stdout": stdout.fileno(), "stderr": stderr.fileno()}
            process = forkserver.start(command, environment, stdin=subprocess.DEVNULL, **files)
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        for file in (stdout, stderr):
            file.seek(0)
        printed = stdout.read()
        assert code == 0, f"{command}\n{printed}\n{stderr.read()}"
        return printed
