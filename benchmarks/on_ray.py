"""Four configs by four ways: one after the other, Ray Tune, hopping on torchrun's nodes, hopping on Ray's.

    python benchmarks/on_ray.py [--rows 40000] [--epochs 4] [--rounds 3] [--nodes 2] [--only tune torchrun]

The setting of section 5 of "Integrating Cerebro with Ray" (2021), at the scale of one machine: two learning
rates and two regularisations, of a perceptron and of a convolutional network. The ways take turns. Ray's
head has as many cores as there are nodes, and is started before the clock. Printed are medians over the
rounds: seconds from the command to its end, the best accuracy, the largest memory of all processes together
(PSS, without Ray's head), and the megabytes that they read. Needs an idle machine.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
from ray_peers import BATCH, SPACE, VALID, write_data

from cerebro_elastic import open_run

HERE = Path(__file__).parent
WAYS = ("sequential", "tune", "tune-reuse", "torchrun", "ray")
MODELS = ("mlp", "cnn")
MARK = "CEREBRO_BENCHMARK_ARM"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rows", type=int, default=40_000)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--only", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--to", type=Path, help="also write the figures of all rounds to this file, as JSON")
    asked = parser.parse_args()
    figures: dict[tuple[str, str], list[tuple[float, ...]]] = {}
    with tempfile.TemporaryDirectory(prefix="cb-") as name:  # Ray's sockets need a short path
        folder = Path(name)
        data = write_data(folder, asked.rows)
        print(f"data: {data.stat().st_size / 1e6:.0f} MB", flush=True)
        for number in range(asked.rounds):
            for model in MODELS:
                for way in asked.only:
                    taken = measure(way, model, folder, asked.epochs, asked.nodes, f"{way}-{model}-{number}")
                    figures.setdefault((model, way), []).append(taken)
                    print(f"round {number + 1} {model:4s} {way:11s} {taken[0]:6.1f} s", flush=True)
    print(f"\n{'':17s}{'s':>8s}{'accuracy':>10s}{'MB':>8s}{'MB read':>9s}")
    if asked.to:
        by_arm = {f"{model}, {way}": rounds for (model, way), rounds in figures.items()}
        asked.to.write_text(json.dumps({"asked": vars(asked), "rounds": by_arm}, default=str) + "\n")
    for (model, way), rounds in figures.items():
        seconds, accuracy, memory, read = (statistics.median(each) for each in zip(*rounds, strict=True))
        print(f"{model:5s}{way:12s}{seconds:8.1f}{accuracy:10.3f}{memory:8.0f}{read:9.0f}")


def measure(way: str, model: str, folder: Path, epochs: int, nodes: int, run: str) -> tuple[float, ...]:
    """Seconds, accuracy, megabytes in memory, and megabytes read."""
    with cluster(folder / "ray", nodes) if way in ("tune", "tune-reuse", "ray") else alone() as address:
        env = {**os.environ, **address, MARK: uuid.uuid4().hex, "OMP_NUM_THREADS": "1"}
        with Watch(env[MARK]) as watch:
            began = time.perf_counter()
            command = command_of(way, model, folder, epochs, nodes, run)
            ended = subprocess.run(command, env=env, cwd=HERE, capture_output=True, text=True, check=False)
            seconds = time.perf_counter() - began
    if ended.returncode:
        raise SystemExit(f"{way}: {ended.stdout}\n{ended.stderr}")
    hopped = way in ("torchrun", "ray")
    accuracy = open_run(run, home=folder).best.best if hopped else float(ended.stdout.split()[-1])
    assert accuracy is not None
    return seconds, accuracy, watch.memory / 1e6, watch.read / 1e6


def command_of(way: str, model: str, folder: Path, epochs: int, nodes: int, run: str) -> list[str]:
    if way not in ("torchrun", "ray"):
        return [sys.executable, str(HERE / "ray_peers.py"), way, str(folder), model, str(epochs)]
    cerebro = [sys.executable, "-m", "cerebro_elastic.cli", "run" if way == "torchrun" else "ray"]
    own = [] if way == "torchrun" else ["--hosts", str(nodes), "--cpus", "1"]
    return [
        *cerebro,
        str(write_recipe(folder, model, epochs, nodes)),
        "--run-id",
        run,
        "--home",
        str(folder),
        *own,
    ]


def write_recipe(folder: Path, model: str, epochs: int, nodes: int) -> Path:
    """The same training as units; the module with the model lies beside it."""
    shutil.copy(HERE / "ray_peers.py", folder)
    task = {
        "kind": "torch",
        "model_fn": "ray_peers:model",
        "loss": "cross_entropy",
        "optimizer": "SGD",
        "metrics": {"accuracy": "accuracy"},
        "args": {"kind": model, "momentum": 0.9},
    }
    data = {"source": str(folder / "data.npz"), "partitions": nodes, "valid": VALID, "batch_size": BATCH}
    recipe = {
        "epochs": epochs,
        "nodes": nodes,
        "task": task,
        "data": data,
        "search": {"space": SPACE},
        "objective": {"metric": "val_accuracy", "mode": "max"},
    }
    file = folder / f"{model}.yaml"
    file.write_text(json.dumps(recipe))  # JSON is YAML, too
    return file


@contextmanager
def alone() -> Iterator[dict[str, str]]:
    yield {}


@contextmanager
def cluster(folder: Path, cores: int) -> Iterator[dict[str, str]]:
    """Ray's head on this machine, without a dashboard; the environment of who uses it."""
    ray = str(Path(sys.executable).parent / "ray")
    path = f"{HERE}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"  # trials import ray_peers
    env = {**os.environ, "RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0", "PYTHONPATH": path}
    options = [
        "--head",
        "--port=0",
        f"--num-cpus={cores}",
        "--include-dashboard=false",
        f"--temp-dir={folder}",
    ]
    started = subprocess.run([ray, "start", *options], env=env, capture_output=True, text=True, check=True)
    address = re.search(r"--address='([^']+)'", started.stdout)
    assert address is not None, started.stdout
    try:
        yield {
            "RAY_ADDRESS": address[1],
            "RAY_AUTH_MODE": "disabled",
            "PYTHONPATH": f"{HERE}:{env.get('PYTHONPATH', '')}",
        }
    finally:
        subprocess.run([ray, "stop", "--force"], env=env, capture_output=True, check=True)


class Watch:
    """Memory and reading of all processes with ``mark`` in their environment, of Ray's workers, and of their
    children."""

    def __init__(self, mark: str) -> None:
        self._mark = mark
        self._ours: dict[int, bool] = {}
        self._read: dict[int, int] = {}
        self.memory = 0.0
        """The most bytes of all together (PSS)."""
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    @property
    def read(self) -> int:
        """Bytes read by all, files in the page cache included."""
        return sum(self._read.values())

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._stopped.wait(0.3):
            together = 0
            for process in psutil.process_iter():
                with suppress(psutil.Error):
                    if self._is_ours(process):
                        together += process.memory_full_info().pss
                        self._read[process.pid] = process.io_counters().read_chars
            self.memory = max(self.memory, together)

    def _is_ours(self, process: psutil.Process) -> bool:
        if process.pid not in self._ours:
            marked = process.environ().get(MARK) == self._mark
            worker = process.name().startswith("ray::") and not process.name().startswith("ray::IDLE")
            if not (marked or worker or process.ppid() in self._ours):
                return False
            self._ours[process.pid] = True
        return True


if __name__ == "__main__":
    main()
