"""Does anything grow over the units of a long run?

    python benchmarks/growth.py [--units 2000 --nodes 8]

A run on this machine whose units sleep, so that many nodes share few cores. After every tenth of the units it
prints, by kind of process: private memory (the largest process of the kind), open files and threads (of all);
and the sizes of etcd's data and of the run's history.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import numpy as np
import psutil
import yaml
from run_processes import family, kind_of

FUNCTIONS = """
import time
from torch import nn


def model(lr):
    return nn.Linear(4, 2)


def prepared(batch):
    time.sleep(0.1)  # a device would be busy; this machine is not
    return batch
"""
CONFIGS, BATCH_SIZE = 20, 8
LOOK_SECONDS = 0.5


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--units", type=int, default=2000)
    parser.add_argument("--nodes", type=int, default=8)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cerebro-growth-") as folder:
        recipe = write_recipe(Path(folder), options.units, options.nodes)
        command = [sys.executable, "-m", "cerebro_elastic.cli", "run", str(recipe), "--home", folder]
        with open(Path(folder, "out"), "w") as out:
            process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
        try:
            watch(process, Path(folder, "growth"), options.units)
        finally:
            process.terminate()
            process.wait()
        if process.returncode:
            raise SystemExit(Path(folder, "out").read_text())


def write_recipe(folder: Path, units: int, nodes: int) -> Path:
    """A run of about so many units, one partition for each node."""
    Path(folder, "functions.py").write_text(FUNCTIONS)
    rows = nodes * BATCH_SIZE
    x = np.random.default_rng(0).normal(size=(rows, 4)).astype(np.float32)
    np.savez(Path(folder, "data.npz"), x=x, y=(x[:, 0] > 0).astype(np.int64))
    recipe = {
        "name": "growth",
        "epochs": max(1, round(units / nodes / CONFIGS)),
        "nodes": nodes,
        "check": "off",
        "task": {
            "kind": "torch",
            "model_fn": "functions:model",
            "input_fn": "functions:prepared",
            "loss": "cross_entropy",
            "optimizer": "AdamW",
        },
        "data": {
            "source": str(folder / "data.npz"),
            "partitions": nodes,
            "valid": 0.0,
            "batch_size": BATCH_SIZE,
        },
        "search": {"method": "grid", "space": {"lr": [0.001 * (i + 1) for i in range(CONFIGS)]}},
        "objective": {"metric": "train_loss", "mode": "min"},
    }
    path = folder / "growth.yaml"
    path.write_text(yaml.safe_dump(recipe))
    return path


def watch(process: subprocess.Popen[bytes], home: Path, units: int) -> None:
    """Print a line for each kind of process after every tenth of the units, until the run has ended."""
    print(f"{'units':>6} {'seconds':>8} {'kind':>8} {'MB':>7} {'files':>6} {'threads':>8}")
    began, due = time.monotonic(), units // 10
    while process.poll() is None:
        time.sleep(LOOK_SECONDS)
        history = home / "history.jsonl"
        done = history.read_text().count('"UnitCommitted"') if history.exists() else 0
        if done >= due:
            due += units // 10
            report(done, time.monotonic() - began, process.pid, home)


def report(done: int, seconds: float, leader: int, home: Path) -> None:
    """One look at all processes and files."""
    memory: dict[str, float] = defaultdict(float)
    files: dict[str, int] = defaultdict(int)
    threads: dict[str, int] = defaultdict(int)
    for process in family(leader):
        try:
            kind = kind_of(process, leader)
            memory[kind] = max(memory[kind], process.memory_full_info().uss / 1e6)
            files[kind] += process.num_fds()
            threads[kind] += process.num_threads()
        except psutil.Error:
            continue
    for kind in sorted(memory):
        print(f"{done:>6} {seconds:>8.0f} {kind:>8} {memory[kind]:>7.0f} {files[kind]:>6} {threads[kind]:>8}")
    etcd = sum(path.stat().st_size for path in (home / "etcd").rglob("*") if path.is_file()) / 1e6
    history = (home / "history.jsonl").stat().st_size / 1e6
    print(f"{done:>6} {seconds:>8.0f}   etcd's data {etcd:.1f} MB, history {history:.1f} MB", flush=True)


if __name__ == "__main__":
    main()
