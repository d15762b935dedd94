"""Commands as users type them, in processes of their own, and a slow run for them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cerebro_elastic.system import forkserver
from cerebro_elastic.system.forkserver import Process
from cerebro_elastic.system.process import PYTHON

RECIPE = """
seed: 5
epochs: 12
nodes: "1:4"
task: {kind: torch, model_fn: "a_slow_model:model", loss: cross_entropy, optimizer: SGD,
       metrics: {accuracy: accuracy}}
data: {source: "a_dataset:load", partitions: 4, valid: 0.2, batch_size: 32}
search: {space: {lr: [0.1, 0.03]}}
objective: {metric: val_accuracy, mode: max}
"""

MODEL = """
import time
from pathlib import Path

from torch import nn

SLOWLY = Path(__file__).with_name("slowly")


class Net(nn.Sequential):
    def forward(self, x):
        if SLOWLY.exists():
            time.sleep(0.2)
        return super().forward(x)


def model():
    return Net(nn.Linear(64, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 10))
"""


@contextmanager
def process(command: list[str], log: Path, **env: str) -> Iterator[Process]:
    """A command; ``python -P -m ...`` is a fork of the tests' fork server, for imports take seconds."""
    with log.open("wb") as output:
        files = {"stdout": output.fileno(), "stderr": output.fileno()}
        started = forkserver.start(command, {**os.environ, **env}, stdin=subprocess.DEVNULL, **files)
        try:
            yield started
        finally:
            if started.poll() is None:
                started.kill()
            started.wait()


@contextmanager
def cerebro(log: Path, *words: str) -> Iterator[Process]:
    """The command as users type it."""
    with process([*PYTHON, "-m", "cerebro_elastic.cli", *words], log) as started:
        yield started
