"""What is it worth to have each partition on two nodes, if one is slow or dies?

    python benchmarks/evidence/stragglers.py [--size full]

Simulated: 16 configs on 8 nodes with partitions on one, two, three nodes; undisturbed, with a node that
becomes three times slower, with a node that dies (``benchmarks/replicas.py``). Live: four configs on a part
of Fashion-MNIST on two nodes, of which one is stopped for half of the time, by signals.
(Cerebro, VLDB 2020, section 5.5.)
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import product
from pathlib import Path
from statistics import fmean, median
from typing import Any

from measuring import HERE, PEER, column, options, spread, table, wait_for_quiet, write
from pages import OURS, Pages, bars
from pages import PEER as GREY

sys.path.append(str(HERE.parent))
from replicas import ratios

from cerebro_elastic import Run
from cerebro_elastic.reporting.timeline import timeline

SIMULATED = {"configs": 16, "nodes": 8, "partitions": 16, "epochs": 2, "fetch": 1.0}
WAYS: Mapping[str, tuple[int, str]] = {
    "one node": (1, "home"),
    "one node, fetched on demand": (1, "on-demand"),
    "two nodes": (2, "home"),
}
"""Where each partition is: the recipe's ``replicas`` and ``fetch``."""
EVENTS = ("undisturbed", "straggler", "death")
"""Of the simulation."""
SLOW_NODE = "node-1"
PAUSE_SECONDS = 0.05
"""The slow node is stopped for so long, then runs for so long."""


def simulated(seeds: int) -> dict[str, dict[str, list[float]]]:
    """By policy and replicas: makespans over bounds (undisturbed, with a straggler, with a death), and how
    often the data were read."""
    found: dict[str, dict[str, list[float]]] = {}
    asked = argparse.Namespace(**SIMULATED)
    for policy, replicas in product(("random", "auto"), (1, 2, 3)):
        runs = [ratios(asked, policy, replicas, False, seed) for seed in range(seeds)]
        calm, data, dead, slow = (list(map(float, values)) for values in zip(*runs, strict=True))
        found[f"{policy}, {replicas}"] = {
            "undisturbed": calm,
            "straggler": slow,
            "death": dead,
            "data read": data,
        }
        print(
            policy, replicas, {name: round(fmean(v), 3) for name, v in found[f"{policy}, {replicas}"].items()}
        )
    return found


def live(way: str, slow: bool) -> dict[str, Any]:
    """Seconds from the first unit to the last, and the units of each node."""
    replicas, fetch = WAYS[way]
    recipe = {
        "epochs": 1,
        "nodes": 2,
        "replicas": replicas,
        "fetch": fetch,
        "task": {
            "kind": "torch",
            "input_fn": "pictures:traced_input",
            "model_fn": "pictures:model",
            "loss": "cross_entropy",
            "optimizer": "AdamW",
            "metrics": {"accuracy": "accuracy"},
        },
        "data": {"source": "pictures:load", "partitions": 8, "batch_size": 64},
        "search": {"space": {"lr": [0.003, 0.001], "width": [8, 16]}},
        "objective": {"metric": "val_accuracy", "mode": "max"},
    }
    with tempfile.TemporaryDirectory(prefix="cb-") as name:
        folder = Path(name)
        (folder / "recipe.yaml").write_text(json.dumps(recipe))
        (folder / "pictures.py").symlink_to(HERE / "peers" / "pictures.py")
        command = [
            sys.executable,
            "-m",
            "cerebro_elastic.cli",
            "run",
            str(folder / "recipe.yaml"),
            "--home",
            name,
        ]
        env = {**os.environ, **PEER, "NOTES": name}
        with (
            (folder / "log").open("w") as log,
            subprocess.Popen(command, stdout=log, stderr=log, env=env) as run,
            slowed(folder, slow),
        ):
            run.wait()
        if run.returncode:
            raise SystemExit((folder / "log").read_text())
        view = Run.open("recipe", home=folder).view
    shown = timeline(view)
    units = {share.node: share.visits for share in shown.shares}
    return {"seconds": round(shown.seconds, 3), "units": units}


@contextmanager
def slowed(folder: Path, slow: bool) -> Iterator[None]:
    """Until the end, if ``slow``, the rank of the slow node gets half of the time."""
    ended = threading.Event()
    thread = threading.Thread(target=_slow_down, args=(folder / f"{SLOW_NODE}.pid", ended))
    if slow:
        thread.start()
    yield
    ended.set()
    if slow:
        thread.join()


def _slow_down(named: Path, ended: threading.Event) -> None:
    while not ended.wait(PAUSE_SECONDS):
        with suppress(FileNotFoundError, ProcessLookupError, ValueError):
            rank = int(named.read_text())
            os.kill(rank, signal.SIGSTOP)
            time.sleep(PAUSE_SECONDS)
            os.kill(rank, signal.SIGCONT)


def main() -> None:
    parser = options(__doc__, "stragglers", reduced_rounds=1)
    parser.add_argument("--only", choices=["simulated", "live"], help="one part; the other's results stay")
    parser.add_argument("--seeds", type=int, help="of the simulation; full: 10, reduced: 2")
    asked = parser.parse_args()
    full = asked.size == "full"
    if asked.only != "live":
        write(asked.to, asked.size, {"simulated": simulated(asked.seeds or (10 if full else 2))})
    ways = WAYS if full else {way: where for way, where in WAYS.items() if where[1] == "home"}
    arms = list(product(ways, (False, True))) if asked.only != "simulated" else []
    results: dict[str, Any] = {}
    for number in range(asked.rounds):
        for way, slow in random.Random(number).sample(arms, len(arms)):
            quiet = wait_for_quiet()
            taken = live(way, slow) | {"quiet": quiet}
            results.setdefault(f"{way}, {'one is slow' if slow else 'undisturbed'}", []).append(taken)
            print(f"round {number + 1}, {way}, slow: {slow}: {taken}", flush=True)
        write(asked.to, asked.size, results)


def show(pages: Pages) -> None:
    """Simulated ratios and live seconds; with the figure if there are both."""
    results = pages.read("stragglers")
    simulation = results.pop("simulated", None)
    ways = [way for way in WAYS if f"{way}, one is slow" in results]
    if simulation and ways:
        draw(pages, simulation, {plan: results[plan] for plan in _plans(ways)})
    if simulation:
        rows = [
            [
                name,
                *(f"{fmean(v := found[e]):.3f}, {max(v):.3f}" for e in EVENTS),
                f"{fmean(found['data read']):.2f}",
            ]
            for name, found in simulation.items()
        ]
        head = ["policy, nodes with each partition", "undisturbed", "a straggler", "a death", "data read"]
        pages.fill("failures.md", "simulated", table(head, rows))
    if ways:
        cells = [
            [
                way,
                *(spread(column(results[plan], "seconds")) for plan in _plans([way])),
                f"{_slow_share(results[f'{way}, one is slow']):.0%}",
            ]
            for way in ways
        ]
        head = ["each partition is on", "undisturbed, s", "one is half as fast, s", "units on the slow node"]
        pages.fill("failures.md", "live", table(head, cells))


def draw(pages: Pages, simulation: Mapping[str, Any], live: Mapping[str, Any]) -> None:
    """Both parts beside each other."""
    with pages.figure("stragglers", panels=2, size=(8.6, 2.8)) as (left, right):
        for at, event in enumerate(EVENTS):
            where = [x + (at - 1) * 0.27 for x in range(len(simulation))]
            heights = [fmean(found[event]) - 1 for found in simulation.values()]
            left.bar(where, heights, 0.25, label=event, color=(GREY, OURS, "#c62828")[at])
        left.set_xticks(range(len(simulation)), simulation, rotation=30, ha="right")
        left.set_title("simulated: makespan over bound, less 1")
        left.legend(frameon=False, fontsize=8, handlelength=1, loc="upper right")
        slow = [plan for plan in live if plan.endswith("slow")]
        bars(right, {plan: column(rounds, "seconds") for plan, rounds in live.items()}, slow)
        right.set_title("live: seconds")


def _plans(ways: Sequence[str]) -> list[str]:
    """By these names live results are kept."""
    return [f"{way}, {plan}" for way in ways for plan in ("undisturbed", "one is slow")]


def _slow_share(runs: Sequence[Mapping[str, Any]]) -> float:
    return median(run["units"][SLOW_NODE] / sum(run["units"].values()) for run in runs)


if __name__ == "__main__":
    main()
