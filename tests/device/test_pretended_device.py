"""A run, its replay, running out of memory and two ranks on an accelerator, which is pretended. ``make test``
has the first test alone, ``make test-device`` much more. What it cannot show is in docs/how-to/gpus.md."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from cerebro_elastic import Run
from cerebro_elastic.system.forkserver import SOCKET
from cerebro_elastic.system.forkserver.messages import FORK_OF
from support import pretended_device
from support.pretended_device import Key

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(pretended_device.why_not() is not None, reason=str(pretended_device.why_not())),
    pytest.mark.timeout(1200),  # the first test compiles
]

MODULE = """
import numpy as np
import torch
from torch import nn

def load():
    x = np.random.default_rng(0).normal(size=(200, 8)).astype(np.float32)
    return {"x": x, "y": (x[:, 0] > 0).astype(np.int64)}

def make(width, lr):
    net = Net(width)
    return net, LookAhead(net.parameters(), lr)

class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 2)
        )
        self.width = width

    def forward(self, x):
        noise = torch.randn(len(x), self.width, device=x.device)  # from the device's generator
        return self.layers(x + noise[:, :8] / 100)

class LookAhead(torch.optim.SGD):
    \"\"\"Keeps copies of the parameters from before the first step.\"\"\"
    def __init__(self, params, lr):
        super().__init__(params, lr=lr, momentum=0.9)
        self.slow = [p.detach().clone() for group in self.param_groups for p in group["params"]]

    def step(self, closure=None):
        super().step(closure)
        for slow, fast in zip(self.slow, (p for group in self.param_groups for p in group["params"])):
            fast.data.lerp_(slow, 0.1)

def loss(output, y):
    kind = torch.accelerator.current_accelerator()
    assert output.device == torch.ones((), device=kind).device, "code that names no number means this device"
    return nn.functional.cross_entropy(output, y)
"""
HUGE = 10**6
"""The width of a config whose batch of noise does not fit the device."""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "net.py").write_text(MODULE)
    return tmp_path


@pytest.fixture
def cerebro(project: Path) -> Callable[..., str]:
    """Calls the command with a pretended device; what it prints."""

    def call(key: Key, *words: str, memory_bytes: int = 0, ok: bool | None = True, **more: str) -> str:
        device = pretended_device.environment(key, project, memory_bytes=memory_bytes)
        env = {**os.environ, **device, "CEREBRO_HOME": str(project / "runs"), **more}
        for name in (SOCKET, FORK_OF):  # these processes have imported torch without the device
            env.pop(name, None)
        done = subprocess.run(
            [sys.executable, "-m", "cerebro_elastic.cli", *words],
            cwd=project,
            env=env,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert ok is None or (done.returncode == 0) == ok, done.stdout + done.stderr
        return done.stdout + done.stderr

    return call


def recipe(project: Path, name: str, **sections: Any) -> str:
    task = {"kind": "torch", "model_fn": "net:make", "loss": "net:loss"}
    whole: Mapping[str, Any] = {
        "name": name,
        "epochs": 2,
        "task": task,
        "data": {"source": "net:load", "partitions": 2, "batch_size": 20, "valid": 0.2, "test": 0.1},
        "search": {"space": {"lr": [0.1], "width": [8]}},
        **sections,
    }
    (project / f"{name}.yaml").write_text(json.dumps(whole))
    return f"{name}.yaml"


ONLY_THERE = pytest.mark.skipif("TEST_DEVICE" not in os.environ, reason="make test-device")
OTHER = pytest.param("PrivateUse1", marks=ONLY_THERE)


@pytest.mark.parametrize("key", ["CUDA", OTHER])
def test_a_run_with_a_config_too_large_and_its_replay(
    cerebro: Callable[..., str], project: Path, key: Key
) -> None:
    """There is one node on each device. The config that needs too much memory fails, the others do not, and
    visits are replayed bit for bit on the device."""
    space = {"space": {"lr": [0.1], "width": [8, 16, HUGE]}}
    words = recipe(project, "sweep", search=space, limits={"tries": 1})
    printed = cerebro(key, "run", words, memory_bytes=64 << 20, ok=None)
    assert "starting 2 nodes on 2 GPUs (" in printed
    assert "out of memory" in printed
    assert "Test set of 20 rows" in printed
    rows = Run.open("sweep", home=project / "runs").result.leaderboard
    status = {row.hparams["width"]: row.status for row in rows}
    assert status == {8: "finished", 16: "finished", HUGE: "failed"}
    assert "bit-identical to the record: 4 visits" in cerebro(key, "replay", "sweep")


@ONLY_THERE
def test_two_ranks_have_a_device_each(cerebro: Callable[..., str], project: Path) -> None:
    words = recipe(project, "ranks", node={"ranks": 2}, parallelism="ddp")
    assert "starting 1 node on 2 GPUs (Pretended GPU)" in cerebro("CUDA", "run", words)
    assert "bit-identical to the record: 4 visits" in cerebro("CUDA", "replay", "ranks")
    one = {"CUDA_VISIBLE_DEVICES": "1"}
    refused = cerebro("CUDA", "run", words, "--run-id", "other", ok=False, **one)
    assert "1 node with 2 ranks each take 2 GPUs, and this machine has 1" in refused


@ONLY_THERE
@pytest.mark.parametrize("key", ["CUDA", "PrivateUse1"])
def test_a_base_stays_on_the_device(project: Path, key: Key) -> None:
    """It crosses the bus when it is made, when the first unit loads it, and when a unit has written to it. No
    digest depends on that."""
    device = pretended_device.environment(key, project)
    env = {name: value for name, value in os.environ.items() if name not in (SOCKET, FORK_OF)} | device
    script = Path(__file__).parent / "frozen_units.py"
    env["PYTHONPATH"] = os.pathsep.join([env["PYTHONPATH"], str(script.parents[1])])
    tasks = ["writing", "torch", "looking ahead"]
    if key == "CUDA":  # Lightning has no other accelerator
        tasks.append("lightning")
    command = [sys.executable, str(script), *tasks]
    printed = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    for name, (units, whole) in json.loads(printed.stdout.splitlines()[-1]).items():
        assert [unit["digest"] for unit in units] == [unit["digest"] for unit in whole], name
        bases = [unit["base"] for unit in units]
        unfrozen = {"torch": 4, "lightning": 4, "writing": 2, "looking ahead": 6}[name]
        assert bases == [bases[0]] * unfrozen + [bases[-1]] * (6 - unfrozen), name
        if key == "CUDA" and name != "looking ahead":  # its copies hop
            for number, unit in enumerate(units[2:unfrozen], 2):
                assert max(unit["bus"]) < bases[0] / 10, (name, number, unit)
            assert units[unfrozen]["bus"][1] > bases[0] / 2, "what was written to crosses"


@ONLY_THERE
def test_without_a_device_a_run_trains_on_the_cpu(cerebro: Callable[..., str], project: Path) -> None:
    words = recipe(project, "cpu", epochs=1, search={"space": {"lr": [0.1], "width": [8]}})
    (project / "net.py").write_text(MODULE.replace("device=kind)", 'device="cpu")'))
    assert "GPU" not in cerebro("CUDA", "run", words, CUDA_VISIBLE_DEVICES="-1")
