"""A notebook's kernel, driven as a user drives it: cells are run, and interrupted."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import pytest
import requests
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager

from cerebro_elastic.system.process import PYTHON
from support.forked import output
from support.waiting import SOON

FIRST = """
import time
import numpy as np
import cerebro_elastic
from cerebro_elastic import Run
from torch import nn
from torch.utils.data import Dataset
ROWS = np.int64(40)
"""
CLASSES = """
class Points(Dataset):
    def __init__(self):
        rng = np.random.default_rng(0)
        self.x = rng.normal(size=(ROWS, 2)).astype(np.float32)
        self.y = (self.x[:, 0] > 0).astype(np.int64)

    def __len__(self): return len(self.x)
    def __getitem__(self, i): return self.x[i], self.y[i]

class Net(nn.Linear):
    def __init__(self, seconds):
        super().__init__(2, 2)
        self.seconds = seconds

    def forward(self, x):
        time.sleep(self.seconds)
        return super().forward(x)

def start(name, seconds=0.0, epochs=2, **how):
    recipe = {
        "name": name, "epochs": epochs,
        "task": {"kind": "torch", "model_fn": Net, "loss": nn.functional.cross_entropy, "optimizer": "SGD",
                 "metrics": {"acc": "accuracy"}, "args": {"seconds": seconds}},
        "data": {"dataset": Points, "partitions": 2, "batch_size": 5},
        "search": {"space": {"lr": [0.1, 0.01]}},
        "objective": {"metric": "val_acc", "mode": "max"},
    }
    return cerebro_elastic.run(recipe, **how)
"""
ELSEWHERE = """
from cerebro_elastic.front_end.notebook_view import NotebookView
with NotebookView(result.folder, result.recipe.objective) as view:
    view.watcher.show([], result.view.state)
"""


class Notebook:
    """Runs cells; what they show is a text of all outputs, the latest version of each."""

    def __init__(self, manager: KernelManager, client: BlockingKernelClient, folder: Path) -> None:
        self.folder = folder
        self._manager, self._client = manager, client
        self.shown: dict[str, str] = {}

    def run(self, cell: str, *, interrupt_at: str | None = None) -> str:
        """Run a cell to its end; interrupt it as soon as it shows this."""
        self.shown.clear()

        def take(message: dict[str, Any]) -> None:
            content, kind = message["content"], message["msg_type"]
            if kind == "stream":
                self._keep("", content["text"])
            elif kind == "error":
                self._keep("", "\n".join(content["traceback"]))
            elif "data" in content:
                key = content.get("transient", {}).get("display_id", "")
                data = content["data"]
                self._keep(key, data.get("text/html", data.get("text/plain", "")))
            nonlocal interrupt_at
            if interrupt_at is not None and interrupt_at in self.all():
                interrupt_at = None
                self._manager.interrupt_kernel()

        self._client.execute_interactive(cell, output_hook=take, timeout=SOON)
        return self.all()

    def _keep(self, key: str, text: str) -> None:
        self.shown[key] = text if key else self.shown.get(key, "") + text

    def all(self) -> str:
        return unescape("\n".join(self.shown.values()))


@pytest.fixture
def notebook(tmp_path: Path, _fork_server: None) -> Iterator[Notebook]:
    manager = KernelManager()
    manager.start_kernel(cwd=str(tmp_path), env={**os.environ, "IPYTHONDIR": str(tmp_path / "ipython")})
    client = manager.client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=SOON)
        notebook = Notebook(manager, client, tmp_path)
        notebook.run(FIRST)
        notebook.run(CLASSES)
        yield notebook
    finally:
        client.stop_channels()
        manager.shutdown_kernel()


@pytest.mark.cluster
def test_a_run_from_its_cell_to_its_replay(notebook: Notebook) -> None:
    cell = "start('slow', 0.05)"
    shown = notebook.run(cell, interrupt_at="first unit")
    assert "run 'slow' is stopped; what was committed is safe" in shown
    assert "Traceback" not in shown
    address = re.search(r'<iframe src="(http://127\.0\.0\.1:\d+/run/slow\?token=[^"]+)"', shown)
    assert address is not None, shown
    shown = notebook.run(f"{cell[:-1]}, on_interrupt='detach')", interrupt_at="first unit")
    assert "Run.open('slow') is it." in shown
    assert "Traceback" not in shown
    shown = notebook.run("print('asleep')\ntime.sleep(99)", interrupt_at="asleep")
    assert "KeyboardInterrupt" in shown
    shown = notebook.run("Run.open('slow')")
    assert "<Run 'slow', running" in shown
    assert "c0001" in shown
    shown = notebook.run(cell)
    assert "FolderInUse: run 'slow' is being run already: watch it with Run.open('slow')" in shown
    assert "Traceback" not in shown
    shown = notebook.run("result = Run.open('slow').wait()\nresult")
    assert "Leaderboard by val_acc" in shown
    assert '<img src="data:image/png' in shown
    assert requests.get(address[1], timeout=30).status_code == 200, "the page stays as long as the kernel"
    assert "run 'slow' has ended" in notebook.run(cell)
    for command in (["verify", "slow"], ["replay", "slow", "--config", "c0001"]):
        said = output([*PYTHON, "-m", "cerebro_elastic.cli", *command], notebook.folder, os.environ)
    assert "bit-identical to the record: 4 visits of c0001" in said

    notebook.run("import os; os.environ['COLAB_RELEASE_TAG'] = 'a release'")
    shown = notebook.run(ELSEWHERE)
    assert "<iframe" not in shown
    assert "c0001" in shown, "the table of configs is in its place"
    assert re.search(r"output\.serve_kernel_port_as_window\(\d+, path='/run/slow\?token=", shown)
