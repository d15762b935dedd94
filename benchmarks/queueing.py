"""When does it pay to queue a unit behind the one that its node trains?

    python benchmarks/queueing.py [--seeds 6] [--wait 0.03] [--units 0.2 1 2.5]

Simulates runs of two epochs with the policy `auto`, on as many nodes as partitions, in which a node that has
nothing queued waits for ``--wait`` seconds between two units: 0.03 for commit, decision and assignment, more
if it loads a state, too. Configs take equal seconds, or differ (lognormal, sigma 0.5). Printed is the length
of the run as a ratio to that without queueing: with units queued as they are where hops are short, with units
queued whenever a config is free, as where hops are long, and if nothing waited. It needs no quiet machine.
"""

from __future__ import annotations

import argparse
import random
import statistics
from dataclasses import dataclass
from unittest.mock import patch

from cerebro_elastic.core.decisions import assignment
from cerebro_elastic.core.model.interfaces import Proposal, Search, SearchContext
from cerebro_elastic.core.model.nodes import Node
from cerebro_elastic.core.model.run import Plan
from cerebro_elastic.scheduling.look_ahead import Auto
from cerebro_elastic.simulation import SyntheticMetrics, Times, simulate

SHAPES = [(2, 4), (2, 8), (4, 6), (4, 8), (4, 12), (4, 16), (8, 16), (8, 24), (8, 32)]
"""Nodes and configs."""
NEVER, AS_IT_IS, ALWAYS = (0.0, 2.0), (assignment.SHORT_SECONDS, 2.0), (assignment.SHORT_SECONDS, 0.0)
"""The longest unit behind which others are queued, and how many configs per node must be free."""


@dataclass(frozen=True)
class Fixed(Search):
    """So many configs."""

    configs: int

    def propose(self, context: SearchContext) -> list[Proposal]:
        return [Proposal({"x": x}) for x in range(len(context.proposed), self.configs)]


def seconds(shape: tuple[int, int], unit: float, spread: float, seed: int, wait: float) -> float:
    """The length of a run."""
    nodes, configs = shape
    rng = random.Random(seed)
    times = {f"c{i:04d}": unit * rng.lognormvariate(0, spread) for i in range(configs)}
    plan = Plan("r", partitions=nodes, epochs=2, min_nodes=nodes, max_nodes=nodes, seed=seed)
    return simulate(
        plan,
        [Node(f"n{k}", f"h{k}") for k in range(nodes)],
        Auto(),
        Fixed(configs),
        Times(configs=times, dispatch=wait),
        SyntheticMetrics({}, 2 * nodes),
        spread=0.05,
    ).seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--wait", type=float, default=0.03)
    parser.add_argument("--units", type=float, nargs="+", default=[0.2, 1.0, 2.5], help="seconds")
    args = parser.parse_args()

    def ratio(rule: tuple[float, float], wait: float) -> float:
        def total(rule: tuple[float, float], wait: float) -> float:
            short, free = rule
            with patch.multiple(assignment, SHORT_SECONDS=short, CONFIGS_PER_NODE=free):
                return statistics.fmean(
                    seconds(shape, unit, spread, seed, wait) for seed in range(args.seeds)
                )

        return total(rule, wait) / total(NEVER, args.wait)

    print("unit   nodes configs speeds  queued always nothing waits")
    for unit in args.units:
        for shape in SHAPES:
            for spread in (0.0, 0.5):
                ratios = [ratio(AS_IT_IS, args.wait), ratio(ALWAYS, args.wait), ratio(NEVER, 0.0)]
                speeds = "differ" if spread else "equal"
                print(f"{unit:3.1f} s {shape[0]:7d} {shape[1]:7d} {speeds:7s}", end="")
                print("".join(f"{value:7.3f}" for value in ratios), flush=True)


if __name__ == "__main__":
    main()
