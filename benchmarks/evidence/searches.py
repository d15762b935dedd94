"""Which search finds a good config soon, on hopping, and is it as good as on plain processes?

    python benchmarks/evidence/searches.py [--size full]

Learning rate, weight decay and dropout of a small convolutional net on a part of Fashion-MNIST, on two cores,
for the same seconds from the first batch: random search, ASHA, hyperband and population based training by
``cerebro run`` on two nodes with half of the data each, and optuna's ASHA on two processes with all data
each. The best validation accuracy so far is taken behind each epoch of each config. (Cerebro, VLDB 2020,
section 6.3, Figs. 12 and 13.)
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

from measuring import HERE, PEER, column, options, spread, table, wait_for_quiet, write
from pages import Pages

from cerebro_elastic import Run

SPACE = {
    "lr": {"loguniform": [1e-5, 1e-1]},
    "weight_decay": {"loguniform": [1e-5, 1e-1]},
    "dropout": {"uniform": [0, 0.5]},
}
EPOCHS, FACTOR, MANY = 9, 3, 1000
"""Of a config at most (the paper's R); the reduction factor; more configs than there is time for."""
HOPPING: Mapping[str, Mapping[str, Any]] = {
    "random": {"method": "random", "num": MANY, "concurrency": 3},
    "ASHA": {"method": "asha", "num": MANY, "max_epochs": EPOCHS, "reduction_factor": FACTOR},
    "hyperband": {"method": "hyperband", "num": MANY, "max_epochs": EPOCHS, "reduction_factor": FACTOR},
    "PBT": {"method": "pbt", "num": 6, "perturbation_interval": 2},
}
PEER_ARM = "ASHA, processes"
Point = tuple[float, float]
"""Seconds from the first batch, and the accuracy of a config behind an epoch."""


def hopping(search: str, seed: int, seconds: float, folder: Path) -> dict[str, Any]:
    """The epochs that a run has trained."""
    method = HOPPING[search]
    recipe = {
        "seed": seed,
        "nodes": 2,
        "task": {
            "kind": "torch",
            "input_fn": "pictures:to_input",
            "model_fn": "pictures:model",
            "loss": "cross_entropy",
            "optimizer": "AdamW",
            "metrics": {"accuracy": "accuracy"},
            "args": {"width": 8},
        },
        "data": {"source": "pictures:load_few", "partitions": 2, "batch_size": 64},
        "search": {**method, "space": SPACE, "budget": {"timeout": seconds}},
        "objective": {"metric": "val_accuracy", "mode": "max"},
    }
    if "max_epochs" not in method:
        recipe["epochs"] = 30 if search == "PBT" else EPOCHS  # a population goes on until the time is over
    (folder / "recipe.yaml").write_text(json.dumps(recipe))
    run = [
        sys.executable,
        "-m",
        "cerebro_elastic.cli",
        "run",
        str(folder / "recipe.yaml"),
        "--home",
        str(folder),
    ]
    _output(run)
    configs = Run.open("recipe", home=folder).result.configs.values()
    began = min(visit.started for row in configs for visit in row.visits)
    epochs = [
        (visit.ended - began, float(visit.metrics["val_accuracy"]))
        for row in configs
        for visit in row.visits
        if "val_accuracy" in visit.metrics
    ]
    units = sum(len(row.visits) for row in configs)
    return {"configs": len(configs), "epochs": units / 2, "points": best_so_far(epochs, seconds)}


def processes(seed: int, seconds: float, folder: Path) -> dict[str, Any]:
    """The same of optuna's trials."""
    spec = {"seed": seed, "workers": 2, "epochs": EPOCHS, "seconds": seconds, "factor": FACTOR}
    peer = [sys.executable, str(HERE / "peers" / "asha_tasks.py"), str(folder), json.dumps(spec)]
    lines = [json.loads(line) for line in _output(peer).splitlines()]
    began = float((folder / "began").read_text())
    epochs = [(line["time"] - began, line["accuracy"]) for line in lines]
    trials = {line["trial"] for line in lines}
    return {"configs": len(trials), "epochs": len(lines), "points": best_so_far(epochs, seconds)}


def _output(command: Sequence[str]) -> str:
    ended = subprocess.run(
        command, env={**os.environ, **PEER}, capture_output=True, text=True, check=False, timeout=300
    )
    if ended.returncode:
        raise SystemExit(f"{command}:\n{ended.stdout[-2000:]}\n{ended.stderr[-4000:]}")
    return ended.stdout


def best_so_far(epochs: Sequence[Point], seconds: float) -> list[Point]:
    """Each time a better accuracy was reached within the time; more is not counted."""
    best: list[Point] = []
    for at, accuracy in sorted(epochs):
        if at <= seconds + 2.0 and (not best or accuracy > best[-1][1]):
            best.append((round(at, 3), round(accuracy, 4)))
    return best


def main() -> None:
    parser = options(__doc__, "searches")
    asked = parser.parse_args()
    full = asked.size == "full"
    seconds = 12.0 if full else 5.0
    arms = [*HOPPING, PEER_ARM] if full else ["ASHA", PEER_ARM]
    results: dict[str, Any] = {"seconds": seconds}
    for seed in range(asked.rounds):
        for arm in random.Random(seed).sample(arms, len(arms)):
            quiet = wait_for_quiet()
            folder = Path(tempfile.mkdtemp(prefix="cb-"))
            (folder / "pictures.py").symlink_to(HERE / "peers" / "pictures.py")
            if arm == PEER_ARM:
                found = processes(seed, seconds, folder)
            else:
                found = hopping(arm, seed, seconds, folder)
            shutil.rmtree(folder)
            results.setdefault(arm, []).append({**found, "quiet": quiet})
            print(f"seed {seed}, {arm}: {found['configs']} configs, {found['epochs']:g} epochs", end=", ")
            print(f"best {found['points'][-1]}", flush=True)
        write(asked.to, asked.size, results)


def show(pages: Pages) -> None:
    """The best accuracy over time, the mean of the seeds; and the table."""
    results = pages.read("searches")
    seconds = results.pop("seconds")
    results = {arm: results[arm] for arm in (*HOPPING, PEER_ARM) if arm in results}
    good = 0.98 * max(run["points"][-1][1] for runs in results.values() for run in runs)
    with pages.figure("searches", size=(8, 3.2)) as (axes,):
        times = [seconds * step / 200 for step in range(10, 201)]
        for name, runs in results.items():
            means = [fmean(reached(run["points"], at) for run in runs) for at in times]
            axes.plot(times, means, label=name, linestyle="--" if name == PEER_ARM else "-")
        axes.set_xlabel("seconds from the first batch")
        axes.set_title("best validation accuracy so far, mean of the seeds")
        axes.set_ylim(bottom=0.5)
        axes.legend(frameon=False)
    rows = []
    for name, runs in results.items():
        best = [run["points"][-1][1] for run in runs]
        first = [next((at for at, value in run["points"] if value >= good), None) for run in runs]
        there = [at for at in first if at is not None]
        soon = f"{median(there):.1f} ({len(there)} of {len(first)})" if there else f"(0 of {len(first)})"
        numbers = [f"{fmean(column(runs, name)):.1f}" for name in ("configs", "epochs")]
        rows.append([name, *numbers, spread(best, digits=3), soon])
    head = ["", "configs", "epochs trained", "best accuracy", f"s to {good:.3f}"]
    pages.fill("searches.md", "searches", table(head, rows))


def reached(points: Sequence[Sequence[float]], at: float) -> float:
    """The best accuracy at a time."""
    return max((accuracy for when, accuracy in points if when <= at), default=0.0)


if __name__ == "__main__":
    main()
