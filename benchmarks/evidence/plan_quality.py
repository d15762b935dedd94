"""Does a forecast choose as well as trying everything?

    python benchmarks/evidence/plan_quality.py [--size full]

Dike (2019, section 4.2) compares the throughput of its plan with the best of all plans, each of which was
tried. Here ``cerebro plan`` chooses nodes, partitions and parallelism for three recipes on this machine, and
then each candidate is trained live. Then schedules of small instances (openshop; nothing is trained) are
compared with the shortest there is, found by trying all.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np
from measuring import HERE, options, table, wait_for_quiet, write
from numpy.typing import NDArray
from pages import OURS, PEER, Pages
from shortest import shortest

sys.path.append(str(HERE.parent))
from schedulers import durations, sped_up

import cerebro_elastic
from cerebro_elastic.recipes import Recipe, load_recipe
from cerebro_elastic.reporting.timeline import timeline
from cerebro_planner import joint, schedule

NODES, PARTITIONS = (1, 2), (2, 4)
STRATEGIES: Mapping[str, Any] = {"single": "single", "ddp": {"use": "ddp", "ranks": 2}}
STRATEGY_NODES = {"single": 1, "ddp": 2}
CASES: Mapping[str, Mapping[str, Any]] = {
    "4 small nets": {
        "model": "model",
        "epochs": 3,
        "space": {"lr": [0.01, 0.003, 0.001, 0.0003], "width": [8]},
    },
    "1 net": {"model": "model", "epochs": 6, "space": {"lr": [0.001], "width": [16]}},
    "1 wide perceptron": {"model": "perceptron", "epochs": 4, "space": {"lr": [0.001], "width": [512]}},
}


def recipe(
    case: str,
    epochs: int,
    root: Path,
    strategies: Sequence[str],
    nodes: int = max(NODES),
    partitions: int = max(PARTITIONS),
) -> Recipe:
    """What is planned, or trained."""
    given = CASES[case]
    return load_recipe(
        {
            "epochs": epochs,
            "nodes": nodes,
            "gang": max(STRATEGY_NODES[strategy] for strategy in strategies),
            "parallelism": [STRATEGIES[strategy] for strategy in strategies],
            "task": {
                "kind": "torch",
                "input_fn": "pictures:to_input",
                "model_fn": f"pictures:{given['model']}",
                "loss": "cross_entropy",
                "optimizer": "AdamW",
                "metrics": {"accuracy": "accuracy"},
            },
            "data": {"source": "pictures:load_few", "partitions": partitions, "batch_size": 64},
            "search": {"space": given["space"]},
            "objective": {"metric": "val_accuracy", "mode": "max"},
        },
        root=root,
    )


def live(case: str, epochs: int, root: Path, rounds: int) -> dict[str, Any]:
    """The plan's choice, and the seconds of each candidate."""
    began = time.perf_counter()
    forecast = cerebro_elastic.plan(
        recipe(case, epochs, root, list(STRATEGIES)), nodes=NODES, partitions=PARTITIONS, home=root
    )
    planning = time.perf_counter() - began
    fastest = forecast.options[0]
    chosen = fastest.candidate
    name = _name(chosen.nodes, chosen.partitions, chosen.strategy.parallelism)
    print(f"{case}: {name} would take {fastest.seconds:.1f} s; planned in {planning:.1f} s", flush=True)
    tried: dict[str, list[float]] = {}
    began = time.perf_counter()
    for number in range(rounds):
        for nodes, partitions, strategy in product(NODES, PARTITIONS, STRATEGIES):
            if nodes < STRATEGY_NODES[strategy]:
                continue
            run = f"{case}-{nodes}-{partitions}-{strategy}-{number}".replace(" ", "-")
            candidate = recipe(case, epochs, root, [strategy], nodes, partitions)
            view = cerebro_elastic.run(candidate, run_id=run, home=root, reuse=False).view
            tried.setdefault(_name(nodes, partitions, strategy), []).append(round(timeline(view).seconds, 3))
            shutil.rmtree(root / run)
    print(tried, flush=True)
    return {
        "plan": name,
        "forecast": fastest.seconds,
        "planning_seconds": planning,
        "trying_seconds": (time.perf_counter() - began) / rounds,
        "tried": tried,
    }


def _name(nodes: int, partitions: int, strategy: str) -> str:
    return f"{nodes} x {strategy}, {partitions} partitions"


Shop = tuple[NDArray[np.float64], list[int]]
"""Seconds by config, node and number of devices; the nodes' devices."""


def _unrelated(seed: int) -> Shop:
    return np.random.default_rng(seed).uniform(1, 20, (4, 3, 1)), [1, 1, 1]


SHOPS: Mapping[str, Callable[[int], Shop]] = {
    "4 CNNs, 3 mixed nodes": lambda seed: (durations(4, 3, seed)[:, :, None], [1] * 3),
    "5 CNNs, 3 equal nodes": lambda seed: (durations(5, 3, seed, mixed_nodes=False)[:, :, None], [1] * 3),
    "4 configs, 3 nodes, unrelated seconds": _unrelated,
    "3 configs, 2 nodes of 2 GPUs": lambda seed: (sped_up(seed, 3, [2, 2], 0.7), [2, 2]),
}


def schedules(seeds: int) -> dict[str, dict[str, list[float]]]:
    """By kind of problem and policy: makespans over the shortest."""
    found: dict[str, dict[str, list[float]]] = {}
    for name, make in SHOPS.items():
        for seed in range(seeds):
            seconds, devices = make(seed)
            whole = np.stack([seconds[:, n, count - 1] for n, count in enumerate(devices)], 1)
            makespans = {
                p: schedule(whole, p, seed).makespan for p in ("random", "longest-remaining", "auto")
            }
            if max(devices) > 1:
                makespans["auto"] = joint(seconds, devices, seed).makespan
            least = shortest(seconds, devices, min(makespans.values()))
            for policy, makespan in makespans.items():
                found.setdefault(name, {}).setdefault(policy, []).append(round(makespan / least, 6))
        print(name, {p: f"{fmean(r):.4f}, {max(r):.4f}" for p, r in found[name].items()}, flush=True)
    return found


def main() -> None:
    parser = options(__doc__, "plan_quality", full_rounds=1, reduced_rounds=1)
    parser.add_argument("--only", choices=["schedules", "plans"], help="one part; the other's results stay")
    asked = parser.parse_args()
    full = asked.size == "full"
    if asked.only != "plans":
        write(asked.to, asked.size, {"small schedules": schedules(40 if full else 10)})
    if asked.only != "schedules":
        with tempfile.TemporaryDirectory(prefix="cb-") as folder:
            root = Path(folder)
            (root / "pictures.py").symlink_to(HERE / "peers" / "pictures.py")
            for case in CASES if full else list(CASES)[:1]:
                quiet = wait_for_quiet()
                found = live(case, CASES[case]["epochs"] if full else 1, root, asked.rounds)
                write(asked.to, asked.size, {case: {**found, "quiet": quiet}})


def show(pages: Pages) -> None:
    """What has been measured of the page's two parts."""
    results = pages.read("plan_quality")
    if small := results.pop("small schedules", None):
        show_schedules(pages, small)
    if results:
        show_plans(pages, results)


def show_plans(pages: Pages, results: Mapping[str, Any]) -> None:
    """What each candidate took, by case."""
    with pages.figure("plan_quality", panels=len(results), size=(8, 2.2)) as panels:
        for axes, (case, found) in zip(panels, results.items(), strict=True):
            names = list(found["tried"])
            axes.barh(
                names,
                [median(found["tried"][name]) for name in names],
                color=[OURS if name == found["plan"] else PEER for name in names],
            )
            axes.invert_yaxis()
            axes.set_title(case)
            axes.set_xlabel("seconds")
            axes.tick_params(labelleft=axes is panels[0])
    rows = []
    for case, found in results.items():
        middles = {name: median(each) for name, each in found["tried"].items()}
        best, chosen = min(middles.values()), middles[found["plan"]]
        mean = fmean(best / middle for middle in middles.values())
        rows.append(
            [
                case,
                found["plan"],
                f"{best / chosen:.0%}",
                f"{mean:.0%}",
                f"{found['forecast']:.1f} / {chosen:.1f}",
                f"{found['planning_seconds']:.0f}",
                f"{found['trying_seconds']:.0f}",
            ]
        )
    head = ["", "the plan", "its share of the best throughput", "the mean candidate's", "forecast / live, s"]
    pages.fill("scheduling.md", "plans", table([*head, "s to plan", "s to try all"], rows))


def show_schedules(pages: Pages, small: Mapping[str, Mapping[str, Sequence[float]]]) -> None:
    """How far policies are from the shortest."""
    policies = list(next(iter(small.values())))
    cells = [
        [
            name,
            *(
                f"{fmean(r := ratios[p]):.3f}, {max(r):.3f}, {np.mean(np.array(r) < 1 + 1e-6):.0%}"
                for p in policies
            ),
        ]
        for name, ratios in small.items()
    ]
    pages.fill("scheduling.md", "schedules", table(["", *policies], cells))


if __name__ == "__main__":
    main()
