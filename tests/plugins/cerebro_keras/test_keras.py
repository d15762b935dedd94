"""The task ``keras`` keeps the contract on each backend: one process has one of them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
FILES = ["keras_contract.py", "keras_held.py"]


@pytest.mark.parametrize(
    ("backend", "chosen", "passed"),
    [("torch", "", 20), ("jax", "sequential or one_go or refused_by_name", 7)],
)
def test_the_contract_on(backend: str, chosen: str, passed: int) -> None:
    """On jax, which compiles for seconds: what depends on the backend."""
    options = ["--noconftest", "-p", "no:cacheprovider", "-p", "no:warnings"]  # keras has thousands of them
    command = [sys.executable, "-m", "pytest", *options, "-k", chosen, *FILES]
    env = {**os.environ, "KERAS_BACKEND": backend, "PYTHONPATH": os.pathsep.join([str(HERE), *sys.path])}
    done = subprocess.run(command, cwd=HERE, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:]
    assert f"{passed} passed" in done.stdout
