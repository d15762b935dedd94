"""How many configs have to train at a time: simulated grids, with and without a bound.

    python benchmarks/concurrency.py [--configs 60] [--nodes 2 4 8] [--partitions 8] [--epochs 2] [--seeds 3]
        [--begun 1 2 4 6]

Nodes have the speeds of the paper's four GPUs, by chance; configs' costs are spread over a factor of 4.
Prints by the number of configs per node that have begun and not ended the makespan over its lower bound (all
work, shared by all nodes by their speeds), and when the first config has finished, as a share of the
makespan: means over the seeds.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from collections.abc import Sequence
from statistics import mean
from typing import Any

from cerebro_elastic.core.model.events import UnitCommitted
from cerebro_elastic.core.model.interfaces import Policy
from cerebro_elastic.core.model.nodes import Node
from cerebro_elastic.core.model.run import Plan
from cerebro_elastic.recipes import load_recipe
from cerebro_elastic.registry import load
from cerebro_elastic.runs.from_recipe import make_search
from cerebro_elastic.simulation import SyntheticMetrics, Times, simulate

SPEEDS = (12.1, 5.6, 11.3, 18.7)
"""The rates of the paper's Titan Xp, K80, GTX 1080 and P100."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, default in {"seeds": 3, "configs": 60, "partitions": 8, "epochs": 2}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--nodes", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--begun", type=int, nargs="+", default=[1, 2, 3, 4, 6])
    asked = parser.parse_args()
    print("nodes | begun configs per node | makespan over bound | first config finished at")
    for nodes in asked.nodes:
        for per_node in [*asked.begun, 0]:
            runs = [outcome(asked, nodes, per_node, seed) for seed in range(asked.seeds)]
            over, first = (mean(values) for values in zip(*runs, strict=True))
            print(f"{nodes} | {per_node or 'all'} | {over:.3f} | {first:.2f}", flush=True)


def outcome(asked: argparse.Namespace, nodes: int, per_node: int, seed: int) -> tuple[float, float]:
    """The makespan over the bound, and the share of it until the first config has finished."""
    rng = random.Random(seed)
    factors = {f"node-{i}": max(SPEEDS) / rng.choice(SPEEDS) for i in range(nodes)}
    costs = {f"c{i:04d}": rng.uniform(5, 20) for i in range(asked.configs)}
    recipe: dict[str, Any] = {
        "task": {"kind": "torch", "model_fn": "a:b", "loss": "mse_loss", "optimizer": "SGD"},
        "data": {"source": "a:b"},
        "search": {"space": {"config": sorted(costs)}},
    }
    plan = Plan(
        "r",
        asked.partitions,
        asked.epochs,
        min_nodes=nodes,
        max_nodes=nodes,
        seed=seed,
        begun_per_node=per_node,
    )
    policy: Policy = load("cerebro.schedulers", "auto")()
    run = simulate(
        plan,
        [Node(name, name) for name in factors],
        policy,
        make_search(load_recipe(recipe)),
        Times(configs=costs, nodes=factors, fetch=1.0),
        SyntheticMetrics({"loss": "min"}, 1),
    )
    work = sum(costs.values()) * plan.partitions * plan.epochs
    bound = work / sum(1 / factor for factor in factors.values())
    return run.seconds / bound, _first_end(run.events, plan.partitions * plan.epochs) / run.seconds


def _first_end(events: Sequence[Any], units: int) -> float:
    """When the first config has done its ``units``."""
    done: Counter[str] = Counter()
    for event in events:
        if isinstance(event, UnitCommitted):
            done[event.visit.unit.config] += 1
            if done[event.visit.unit.config] == units:
                return event.visit.ended
    raise AssertionError("no config has finished")


if __name__ == "__main__":
    main()
