"""Four configs by four ways: one after the other, Ray Tune, hopping on torchrun's nodes, hopping on Ray's.

    python benchmarks/on_ray.py [--rows 40000] [--epochs 4] [--rounds 3] [--nodes 2] [--only tune torchrun]

The setting of section 5 of "Integrating Cerebro with Ray" (2021), at the scale of one machine: two learning
rates and two regularisations, of a perceptron and of a convolutional network. The ways take turns. Ray's
head has as many cores as there are nodes, and is started before the clock. Printed are medians over the
rounds: seconds from the command to its end; those after the start, from the first training step to the last;
the best accuracy; the largest memory of all processes together (PSS, without Ray's head); what of it are
data: that by which a run with few rows has less; and the megabytes that they read. Needs an idle machine.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
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
from typing import NamedTuple

import psutil
from ray_peers import BATCH, SPACE, STEPS, VALID, write_data

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
    few = max(asked.rows // 100, 10 * BATCH)
    with tempfile.TemporaryDirectory(prefix="cb-") as name:  # Ray's sockets need a short path
        whole, part = Path(name) / "whole", Path(name) / "part"
        data = write_data(whole, asked.rows)
        write_data(part, few)
        print(f"data: {data.stat().st_size / 1e6:.0f} MB", flush=True)
        for number in range(asked.rounds):
            for model in MODELS:
                for way in asked.only:
                    run = f"{way}-{model}-{number}"
                    taken = measure(way, model, whole, asked.epochs, asked.nodes, run)
                    without = measure(way, model, part, 1, asked.nodes, run)
                    of_data = (taken.memory - without.memory) / (1 - few / asked.rows)
                    figures.setdefault((model, way), []).append((*taken, of_data))
                    print(f"round {number + 1} {model:4s} {way:11s} {taken.seconds:6.1f} s", flush=True)
    names = ("s", "s behind start", "accuracy", "MB", "MB read", "MB of data")
    print(f"\n{'':17s}" + "".join(f"{name:>15s}" for name in names))
    if asked.to:
        by_arm = {f"{model}, {way}": rounds for (model, way), rounds in figures.items()}
        asked.to.write_text(json.dumps({"asked": vars(asked), "rounds": by_arm}, default=str) + "\n")
    for (model, way), rounds in figures.items():
        medians = [statistics.median(each) for each in zip(*rounds, strict=True)]
        print(f"{model:5s}{way:12s}" + "".join(f"{value:15.3f}" for value in medians))


class Taken(NamedTuple):
    """What a command has taken."""

    seconds: float
    """From its start to its end."""
    behind_start: float
    """Seconds from the first training step to the last."""
    accuracy: float
    """The best."""
    memory: float
    """The most megabytes of all processes together (PSS)."""
    read: float
    """Megabytes read, files in the page cache included."""


def measure(way: str, model: str, folder: Path, epochs: int, nodes: int, run: str) -> Taken:
    """Run a command to its end."""
    with cluster(folder / "ray", nodes) if way in ("tune", "tune-reuse", "ray") else alone() as address:
        env = {**os.environ, **address, MARK: uuid.uuid4().hex, "OMP_NUM_THREADS": "1"}
        with Watch(env[MARK]) as watch:
            began = time.perf_counter()
            command = command_of(way, model, folder, epochs, nodes, run)
            ended = subprocess.run(command, env=env, cwd=HERE, capture_output=True, text=True, check=False)
            seconds = time.perf_counter() - began
    if ended.returncode:
        raise SystemExit(f"{way}: {ended.stdout}\n{ended.stderr}")
    if way in ("torchrun", "ray"):
        result = open_run(run, home=folder)
        visits = [visit for row in result.leaderboard for visit in row.visits]
        began = min(visit.started for visit in visits)
        behind_start = max(visit.started + visit.seconds + visit.hop_seconds for visit in visits) - began
        accuracy = result.best.best
    else:
        spans = [tuple(map(float, line.split())) for line in (folder / STEPS).read_text().splitlines()]
        (folder / STEPS).unlink()
        behind_start = max(end for _, end in spans) - min(start for start, _ in spans)
        accuracy = float(ended.stdout.split()[-1])
    assert accuracy is not None
    return Taken(seconds, behind_start, accuracy, watch.memory / 1e6, watch.read / 1e6)


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
    env = {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0", "PYTHONPATH": path}
    with socket.socket() as probe:
        probe.bind(("", 0))
        port = probe.getsockname()[1]
    options = ["--head", f"--port={port}", f"--num-cpus={cores}", "--include-dashboard=false", "--block"]
    with subprocess.Popen(
        [ray, "start", *options, f"--temp-dir={folder}", "--node-ip-address=127.0.0.1"],
        env={**os.environ, **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as head:
        assert head.stdout is not None
        for line in head.stdout:
            if "Ray runtime started" in line:
                break
        else:
            raise SystemExit("Ray's head has not started")
        try:
            yield {**env, "RAY_ADDRESS": f"127.0.0.1:{port}"}
        finally:
            head.terminate()
            head.communicate()
    for process in psutil.process_iter(["cmdline"]):  # what the head has left
        if str(folder) in " ".join(process.info["cmdline"] or ()):
            process.kill()


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
