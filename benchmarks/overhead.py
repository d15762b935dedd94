"""What hopping costs: time in units and hops over a bare PyTorch loop on the same batches.

    python benchmarks/overhead.py [--units 0.5 5] [--models mlp resnet18] [--rounds 3]

For each model and length of unit, a bare loop and a run (one node, two configs, four partitions, one
epoch) take turns; printed is the median over the rounds of the ratios of neighbours. "units" is the
sum of seconds of training, "hops" that of loading and saving, both per unit as the visit log has
them; "wall" is from the start of the first unit to the end of the last, so it also has what lies
between units: commit, decision, assignment. The bare loop makes its batches by indexing tensors in
memory, with as many threads and the same allocator settings, in a fresh process.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
SHAPES = {"mlp": (784,), "resnet18": (3, 32, 32)}
BATCH = 32
PARTITIONS = 4
CONFIGS = (0.01, 0.011)


def dataset(folder: Path, model: str, rows: int) -> Path:
    """Random data: only time matters. ``rows`` are per partition."""
    rng = np.random.default_rng(0)
    total = rows * PARTITIONS
    path = folder / f"{model}-{rows}.npz"
    x = rng.standard_normal((total, *SHAPES[model]), dtype=np.float32)
    np.savez(path, x=x, y=rng.integers(0, 10, total))
    return path


def bare(path: Path, model: str, units: int) -> float:
    """Seconds of a plain loop over ``units`` partitions' worth of batches, in a fresh process."""
    environment = {
        **os.environ,
        "MALLOC_MMAP_THRESHOLD_": str(1 << 30),
        "MALLOC_TRIM_THRESHOLD_": str(1 << 31),
    }
    command = [sys.executable, __file__, "--bare", str(path), model, str(units)]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return float(json.loads(done.stdout)["seconds"])


def bare_loop(path: str, name: str, units: int) -> float:
    """The loop itself."""
    import torch
    from overhead_models import make
    from torch.nn.functional import cross_entropy

    torch.set_num_threads(1)
    arrays = np.load(path)
    xs, ys = torch.from_numpy(arrays["x"]).chunk(PARTITIONS), torch.from_numpy(arrays["y"]).chunk(PARTITIONS)
    model, optimizer = make(name, CONFIGS[0], 0.9)
    model.train()
    _pass(model, optimizer, xs[0][: 2 * BATCH], ys[0][: 2 * BATCH], cross_entropy)  # imports on first use
    began = time.perf_counter()
    for unit in range(units):
        _pass(model, optimizer, xs[unit % PARTITIONS], ys[unit % PARTITIONS], cross_entropy)
    return time.perf_counter() - began


def _pass(model: Any, optimizer: Any, x: Any, y: Any, loss_of: Any) -> None:
    import torch

    for index in torch.randperm(len(x)).split(BATCH):
        loss = loss_of(model(x[index]), y[index])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def hopping(folder: Path, path: Path, model: str, run_id: str) -> dict[str, float]:
    """Seconds of the same number of passes as units of a run."""
    import cerebro_elastic

    recipe = {
        "name": run_id,
        "epochs": 1,
        "task": {"kind": "torch", "model_fn": "overhead_models:make", "loss": "cross_entropy"},
        "data": {"source": str(path), "partitions": PARTITIONS, "valid": 0.0, "batch_size": BATCH},
        "search": {"space": {"lr": list(CONFIGS), "name": [model], "momentum": [0.9]}},
        "objective": {"metric": "train_loss"},
    }
    checked = cerebro_elastic.load_recipe(recipe, root=HERE)
    result = cerebro_elastic.run(checked, home=folder)
    visits = sorted((v for row in result.leaderboard for v in row.visits), key=lambda v: v.started)
    last = visits[-1]
    # The node's very first unit pays for imports on first use, as the loop's first batches do.
    return {
        "units": sum(v.seconds for v in visits[1:]) * len(visits) / (len(visits) - 1),
        "hops": sum(v.hop_seconds for v in visits),
        "wall": (max(visit.ended for visit in visits) - visits[1].started) * len(visits) / (len(visits) - 1),
        "bytes": float(last.output.bytes),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--units", type=float, nargs="+", default=[0.5, 5.0], help="seconds of a unit")
    parser.add_argument("--models", nargs="+", default=["mlp", "resnet18"], choices=sorted(SHAPES))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--bare", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.bare:
        path, name, units = options.bare
        print(json.dumps({"seconds": bare_loop(path, name, int(units))}))
        return
    print("model      unit     state    units+hops   hops    wall   (ratios to the bare loop)")
    units = PARTITIONS * len(CONFIGS)
    for model in options.models:
        for seconds in options.units:
            with tempfile.TemporaryDirectory(prefix="cerebro-overhead-") as scratch:
                measure(Path(scratch), model, seconds, units, options.rounds)


def measure(folder: Path, model: str, seconds: float, units: int, rounds: int) -> None:
    """Print one line."""
    probe = dataset(folder, model, 8 * BATCH)
    per_batch = bare(probe, model, units) / units / 8
    path = dataset(folder, model, max(1, round(seconds / per_batch)) * BATCH)
    ratios: dict[str, list[float]] = {"both": [], "hops": [], "wall": []}
    for number in range(rounds):
        before = bare(path, model, units)
        seen = hopping(folder, path, model, f"{model}-{number}")
        plain = (before + bare(path, model, units)) / 2
        ratios["both"].append((seen["units"] + seen["hops"]) / plain)
        ratios["hops"].append(seen["hops"] / plain)
        ratios["wall"].append(seen["wall"] / plain)
    both, hops, wall = (statistics.median(ratios[name]) for name in ("both", "hops", "wall"))
    unit = f"{plain / units:.2f} s"
    size = f"{seen['bytes'] / 1e6:.1f} MB"
    print(f"{model:10s} {unit:>7s} {size:>9s} {both:12.3f} {hops:7.3f} {wall:7.3f}", flush=True)


if __name__ == "__main__":
    main()
