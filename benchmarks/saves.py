"""What slow storage costs a node: saves that it waits for, and saves behind its next unit.

``python benchmarks/saves.py [--delay 1] [--unit 4]``: a run of one node on an S3 server on loopback
that takes ``--delay`` seconds for each object that is written (a checkpoint has three, the log is one more),
and units of ``--unit`` seconds. With one config there is nothing to do behind a save, with two there is: so
the difference is what saving behind the next unit gains. Printed is what the visit log says, per unit; the
first unit of each run is left out.
"""

from __future__ import annotations

import argparse
import logging
import tempfile
from pathlib import Path

import numpy as np
from s3_bytes import storage

import cerebro_elastic

PARTITIONS, BATCHES = 4, 4
FUNCTIONS = """
import time
from torch import nn


def model(lr):
    return nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 10))


def prepared(batch, seconds):
    time.sleep(seconds)  # a device would be busy; this machine is not
    return batch
"""


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--delay", type=float, default=1.0)
    options.add_argument("--unit", type=float, default=4.0)
    given = options.parse_args()
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory(prefix="cerebro-saves-") as folder, storage(Path(folder)) as proxy:
        Path(folder, "functions.py").write_text(FUNCTIONS)
        x = np.random.default_rng(0).normal(size=(PARTITIONS * BATCHES * 32, 256)).astype(np.float32)
        np.savez(Path(folder, "data.npz"), x=x, y=x[:, :10].argmax(1))
        proxy.delay = given.delay
        print(f"units of {given.unit:g} s, {given.delay:g} s for each object written")
        for configs in (1, 2):
            times = unit_times(Path(folder), configs, given.unit)
            print(f"{configs} config{'s' if configs > 1 else ''}: {times}")


def unit_times(folder: Path, configs: int, unit: float) -> str:
    """What the visits of a run of so many configs say."""
    rates = [0.01 * (i + 1) for i in range(configs)]
    recipe = {
        "name": f"saves-{configs}",
        "epochs": 2,
        "nodes": 1,
        "task": {
            "kind": "torch",
            "model_fn": "functions:model",
            "input_fn": "functions:prepared",
            "loss": "cross_entropy",
            "optimizer": "AdamW",
        },
        "data": {
            "source": str(folder / "data.npz"),
            "partitions": PARTITIONS,
            "valid": 0.0,
            "batch_size": 32,
        },
        "search": {"space": {"lr": rates, "seconds": [unit / BATCHES]}},
        "objective": {"metric": "train_loss"},
        "checkpoints": "s3://bucket/checkpoints",
    }
    result = cerebro_elastic.run(cerebro_elastic.load_recipe(recipe, root=folder), home=folder / "runs")
    visits = sorted((v for row in result.leaderboard for v in row.visits), key=lambda v: v.started)[1:]
    wall = (max(v.ended for v in visits) - visits[0].started) / len(visits)
    seconds, hop, save = (
        sum(getattr(v, what) for v in visits) / len(visits)
        for what in ("seconds", "hop_seconds", "save_seconds")
    )
    state = visits[-1].output.bytes / 1e6
    return (
        f"a unit takes {wall:.2f} s of the node ({seconds:.2f} s in training, {hop:.2f} s in hops; "
        f"{save:.2f} s of its save lie behind it), state of {state:.1f} MB"
    )


if __name__ == "__main__":
    main()
