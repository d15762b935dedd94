"""What gangs by forecast are worth: simulated runs with fewer and more configs than nodes.

    python benchmarks/gangs.py [--configs 1 2 4 6 8 12 16] [--nodes 8] [--speed-up 0.7] [--seeds 3]

Two nodes together are 2 ** S times as fast as one. Prints the makespan, in seconds, the mean over the seeds,
by one node for each unit, by two, and by whichever the forecast says; first with equal configs, then with
configs whose costs differ by up to 4.
"""

from __future__ import annotations

import argparse
import random
from dataclasses import dataclass
from statistics import mean

from cerebro_elastic.core.model.attempts import Attempt
from cerebro_elastic.core.model.nodes import Node
from cerebro_elastic.core.model.run import Plan
from cerebro_elastic.core.model.units import Strategy
from cerebro_elastic.scheduling.look_ahead import Auto
from cerebro_elastic.simulation import SyntheticMetrics, Times, simulate
from support.world import FixedSearch

SINGLE, PAIR = Strategy(), Strategy("ddp", 2, 2)
CHOICES = {"single": (SINGLE,), "pairs": (PAIR,), "by forecast": (SINGLE, PAIR)}


@dataclass(frozen=True)
class SubLinear(Times):
    """Ranks are together as many times as fast as their number to the power ``speed_up``."""

    speed_up: float = 1.0

    def training(self, attempt: Attempt, *, ends_epoch: bool) -> float:
        evenly = Times.training(self, attempt, ends_epoch=ends_epoch)
        return float(evenly * attempt.strategy.ranks ** (1 - self.speed_up))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, default in {"seeds": 3, "nodes": 8, "partitions": 8, "epochs": 4}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--configs", type=int, nargs="+", default=[1, 2, 4, 6, 8, 12, 16])
    parser.add_argument("--speed-up", type=float, default=0.7)
    asked = parser.parse_args()
    for mixed in (False, True):
        print(" | ".join(["mixed" if mixed else "equal", *CHOICES]))
        for configs in asked.configs:
            took = [
                mean(makespan(asked, strategies, configs, mixed, seed) for seed in range(asked.seeds))
                for strategies in CHOICES.values()
            ]
            print(" | ".join([str(configs), *(f"{seconds:.0f}" for seconds in took)]), flush=True)


def makespan(
    asked: argparse.Namespace, strategies: tuple[Strategy, ...], configs: int, mixed: bool, seed: int
) -> float:
    """Of one run."""
    rng = random.Random(seed)
    names = [f"c{i:04d}" for i in range(configs)]
    costs = {name: 10 * 2 ** rng.uniform(-1, 1) if mixed else 10.0 for name in names}
    plan = Plan(
        "gangs",
        asked.partitions,
        asked.epochs,
        min_nodes=asked.nodes,
        max_nodes=asked.nodes,
        seed=seed,
        strategies=strategies,
    )
    nodes = [Node(f"node-{i}", f"host-{i // 2}") for i in range(asked.nodes)]
    times, search = (
        SubLinear(configs=costs, speed_up=asked.speed_up),
        FixedSearch([{"config": n} for n in names]),
    )
    return simulate(plan, nodes, Auto(), search, times, SyntheticMetrics({"loss": "min"}, 1)).seconds


if __name__ == "__main__":
    main()
