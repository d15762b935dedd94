"""Ours: `cerebro run` with two nodes, or `cerebro ray` with two hosts, and half of the rows on each.

    python benchmarks/evidence/peers/hopping.py {torch,lightning} FOLDER [--nodes 2] [--home HOME] [--ray]

``torch`` trains by the built-in step of plain PyTorch, ``lightning`` the LightningModule of
``lightning_tasks.py``. With ``--home`` the run stays there, under the name of the last one. With ``--ray``
the head must be running.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
NODES = 2


def recipe(job: dict[str, Any], way: str, folder: Path, nodes: int = NODES) -> dict[str, Any]:
    """The job as a recipe."""
    name = job["workload"]
    common = {"args": {"workload": name}}
    tasks = {
        "torch": {
            "kind": "torch",
            "model_fn": "workloads:model_fn",
            "input_fn": "workloads:input_fn",
            "loss": "cross_entropy",
            "optimizer": "Adam",
            "metrics": {"acc": "accuracy"},
        },
        "lightning": {"kind": "lightning", "module": "lightning_module:Module"},
    }
    return {
        "epochs": job["epochs"],
        "nodes": nodes,
        "task": tasks[way] | common,
        "data": {"url": str(folder / "partitions")},
        "search": {"space": job["space"]},
        "objective": {"metric": "val_acc", "mode": "max"},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("way", choices=["torch", "lightning"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--nodes", type=int, default=NODES)
    parser.add_argument("--home", type=Path)
    parser.add_argument("--ray", action="store_true")
    asked = parser.parse_args()
    folder = asked.folder.resolve()
    job = json.loads((folder / "job.json").read_text())
    with tempfile.TemporaryDirectory(prefix="hopping-") as name:
        home = asked.home or Path(name)
        file = home / "recipe.yaml"
        file.write_text(json.dumps(recipe(job, asked.way, folder, asked.nodes)))  # JSON is YAML, too
        verb = ["ray", "--hosts", str(asked.nodes), "--cpus", "1"] if asked.ray else ["run", "--fresh"]
        command = [sys.executable, "-m", "cerebro_elastic.cli", *verb]
        path = f"{HERE}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
        subprocess.run(
            [*command, str(file), "--home", str(home)],
            env={**os.environ, "PYTHONPATH": path},
            stdout=subprocess.DEVNULL,
            check=True,
        )
        history = map(json.loads, (home / "recipe" / "history.jsonl").read_text().splitlines())
        visits = [event["visit"] for event in history if "visit" in event]
    said = {
        "accuracy": max(v["metrics"]["val_acc"] for v in visits if "val_acc" in v.get("metrics", ())),
        "began": min(visit["started"] for visit in visits),
        "hopped_bytes": sum(visit["output"]["bytes"] for visit in visits),
    }
    print(json.dumps(said))


if __name__ == "__main__":
    main()
