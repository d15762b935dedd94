"""Ours: `cerebro run` with two nodes, or `cerebro ray` with two hosts, and half of the rows on each.

    python benchmarks/evidence/peers/hopping.py {torch,lightning} FOLDER [--nodes 2] [--home HOME] [--ray]
    python benchmarks/evidence/peers/hopping.py {torch,lightning} FOLDER --etcd HOST:PORT

``torch`` trains by the built-in step of plain PyTorch, ``lightning`` the LightningModule of
``lightning_tasks.py``. With ``--home`` the run stays there, under the name of the last one. With ``--ray``
the head must be running. With ``--etcd`` the process is one host of ``--nodes`` (`cerebro host`).
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
    written = {
        "epochs": job["epochs"],
        "nodes": nodes,
        "task": tasks[way] | common,
        "data": {"url": job.get("url", str(folder / "partitions"))},
        "search": {"space": job["space"]},
        "objective": {"metric": "val_acc", "mode": "max"},
    }
    return written | job.get("recipe", {})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("way", choices=["torch", "lightning"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--nodes", type=int, default=NODES)
    parser.add_argument("--home", type=Path)
    parser.add_argument("--ray", action="store_true")
    parser.add_argument("--etcd", metavar="HOST:PORT")
    asked = parser.parse_args()
    folder = asked.folder.resolve()
    job = json.loads((folder / "job.json").read_text())
    with tempfile.TemporaryDirectory(prefix="hopping-") as name:
        home = asked.home or Path(name)
        file = home / "recipe.yaml"
        written = recipe(job, asked.way, folder, asked.nodes)
        file.write_text(json.dumps(written))  # JSON is YAML, too
        verb = ["run", "--fresh"]
        if asked.ray:
            verb = ["ray", "--hosts", str(asked.nodes), "--cpus", "1"]
        elif asked.etcd:
            verb = ["host", "--hosts", str(asked.nodes), "--etcd", asked.etcd]
        command = [sys.executable, "-m", "cerebro_elastic.cli", *verb]
        path = f"{HERE}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
        ended = subprocess.run(
            [*command, str(file), "--home", str(home)],
            env={**os.environ, "PYTHONPATH": path},
            stdout=subprocess.DEVNULL,
            check=False,
        )
        if ended.returncode:
            raise SystemExit(ended.returncode)
        said = of_history((home / "recipe" / "history.jsonl").read_text())
    print(json.dumps(said))


def of_history(lines: str) -> dict[str, float]:
    """What a run's file ``history.jsonl`` says of it."""
    visits = [event["visit"] for event in map(json.loads, lines.splitlines()) if "visit" in event]
    return {
        "accuracy": max(v["metrics"]["val_acc"] for v in visits if "val_acc" in v.get("metrics", ())),
        "began": min(visit["started"] for visit in visits),
        "hopped_bytes": sum(visit["output"]["bytes"] for visit in visits),
    }


if __name__ == "__main__":
    main()
