"""Does anything grow over the units of a long run, or with the number of its configs?

    python benchmarks/growth.py [--units 2000 --nodes 8]
    python benchmarks/growth.py --configs 2000

The first is a run on this machine whose units sleep, so that many nodes share few cores. After every tenth of
the units it prints, by kind of process: private memory (the largest process of the kind), open files and
threads (of all), and CPU milliseconds per unit since the line before; and the sizes of etcd's data and of the
run's history.

The second is an asha search on two nodes, whose units take no time. After every tenth of its units it prints
the same of the leader, with the number of configs so far. Then it times the commands that read the ended run,
and the plan of its recipe.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

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
COMMANDS = (
    ("status", "growth"),
    ("report", "growth"),
    ("verify", "growth"),
    ("verify", "growth", "--all"),
    ("plan", "growth.yaml", "--nodes", "2"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--units", type=int, default=2000)
    parser.add_argument("--nodes", type=int, default=8)
    parser.add_argument("--configs", type=int, help="an asha search of this number of configs")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cerebro-growth-") as name:
        folder = Path(name)
        if options.configs is None:
            long_run(folder, options.units, options.nodes)
        else:
            search(folder, options.configs)


def long_run(folder: Path, units: int, nodes: int) -> None:
    """A run of about this number of units, one partition for each node."""
    space = {"lr": [0.001 * (i + 1) for i in range(CONFIGS)]}
    write_recipe(
        folder,
        nodes,
        epochs=max(1, round(units / nodes / CONFIGS)),
        search={"method": "grid", "space": space},
        input_fn="functions:prepared",
    )
    watch(folder, units)


def search(folder: Path, configs: int) -> None:
    """Rungs at 1 and 3 of 6 units: each config makes two units in the mean."""
    asha = {
        "method": "asha",
        "num": configs,
        "space": {"lr": {"loguniform": [0.001, 0.1]}},
        "resource": "units",
        "reduction_factor": 3,
    }
    write_recipe(folder, 2, epochs=3, search=asha)
    watch(folder, 2 * configs, kinds=("leader",))
    for command in COMMANDS:
        began, cpu = time.monotonic(), cpu_of_children()
        done = subprocess.run(
            [sys.executable, "-m", "cerebro_elastic.cli", *command], cwd=folder, capture_output=True
        )
        took = f"{time.monotonic() - began:.1f} s, {cpu_of_children() - cpu:.1f} s of CPU"
        lines = len(done.stdout.splitlines())
        print(f"{' '.join(command)}: {took}, exit {done.returncode}, {lines} lines", flush=True)


def cpu_of_children() -> float:
    """Seconds of all processes that were waited for."""
    return sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])


def write_recipe(folder: Path, nodes: int, *, epochs: int, search: Mapping[str, Any], **task: str) -> None:
    Path(folder, "functions.py").write_text(FUNCTIONS)
    rows = nodes * BATCH_SIZE
    x = np.random.default_rng(0).normal(size=(rows, 4)).astype(np.float32)
    np.savez(Path(folder, "data.npz"), x=x, y=(x[:, 0] > 0).astype(np.int64))
    recipe = {
        "name": "growth",
        "epochs": epochs,
        "nodes": nodes,
        "check": "off",
        "task": {
            "kind": "torch",
            "model_fn": "functions:model",
            "loss": "cross_entropy",
            "optimizer": "AdamW",
            **task,
        },
        "data": {
            "source": str(folder / "data.npz"),
            "partitions": nodes,
            "valid": 0.0,
            "batch_size": BATCH_SIZE,
        },
        "search": dict(search),
        "objective": {"metric": "train_loss", "mode": "min"},
        "limits": {"configs": max(1000, int(search.get("num", 0)))},
    }
    (folder / "growth.yaml").write_text(yaml.safe_dump(recipe))


def watch(folder: Path, units: int, kinds: tuple[str, ...] = ()) -> None:
    """Start the run, and print a line for each kind of process after every tenth of the units, until the run
    has ended."""
    command = [sys.executable, "-m", "cerebro_elastic.cli", "run", "growth.yaml", "--home", str(folder)]
    with open(folder / "out", "w") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, cwd=folder)
    try:
        print(" units  configs  seconds     kind      MB  files threads  ms per unit")
        began, due, last = time.monotonic(), units // 10, Look(process.pid, "")
        while process.poll() is None:
            time.sleep(LOOK_SECONDS)
            history = folder / "growth" / "history.jsonl"
            look = Look(process.pid, history.read_text() if history.exists() else "")
            if look.units >= due:
                due += units // 10
                look.report(last, time.monotonic() - began, kinds)
                last = look
                etcd = sum(
                    path.stat().st_size for path in (folder / "growth" / "etcd").rglob("*") if path.is_file()
                )
                print(
                    f"       etcd's data {etcd / 1e6:.1f} MB, history {history.stat().st_size / 1e6:.1f} MB",
                    flush=True,
                )
    finally:
        process.terminate()
        process.wait()
    if process.returncode:
        raise SystemExit(Path(folder, "out").read_text())


class Look:
    """One look at all processes of a run."""

    def __init__(self, leader: int, history: str) -> None:
        self.units, self.configs = history.count('"UnitCommitted"'), history.count('"ConfigCreated"')
        self.memory: dict[str, float] = defaultdict(float)
        self.files: dict[str, int] = defaultdict(int)
        self.threads: dict[str, int] = defaultdict(int)
        self.cpu: dict[str, float] = defaultdict(float)
        for process in family(leader):
            try:
                kind = kind_of(process, leader)
                self.memory[kind] = max(self.memory[kind], process.memory_full_info().uss / 1e6)
                self.files[kind] += process.num_fds()
                self.threads[kind] += process.num_threads()
                self.cpu[kind] += sum(process.cpu_times()[:2])
            except psutil.Error:
                continue

    def report(self, last: Look, seconds: float, kinds: tuple[str, ...]) -> None:
        for kind in kinds or sorted(self.memory):
            per_unit = 1e3 * (self.cpu[kind] - last.cpu[kind]) / max(1, self.units - last.units)
            columns = f"{kind:>8} {self.memory[kind]:>7.0f} {self.files[kind]:>6} {self.threads[kind]:>7}"
            print(
                f"{self.units:>6} {self.configs:>8} {seconds:>8.0f} {columns} {per_unit:>12.1f}", flush=True
            )


if __name__ == "__main__":
    main()
