"""What it costs to keep configs within an epoch of each other, in simulated runs.

    python benchmarks/evenness.py [--seeds 2]

For each kind of run and each `progress`: its length over the bound (what the nodes, or the longest config,
take without a wait), and how many epochs the configs were apart at most; means over the seeds. A config's
seconds are drawn from a lognormal distribution, each unit's vary by some per cent.
"""

from __future__ import annotations

import argparse
import random
import statistics
from dataclasses import dataclass

from cerebro_elastic.core.model.events import UnitCommitted
from cerebro_elastic.core.model.nodes import Node
from cerebro_elastic.core.model.run import Plan, Progress
from cerebro_elastic.scheduling.look_ahead import Auto
from cerebro_elastic.simulation import SyntheticMetrics, Times, simulate
from support.world import FixedSearch


@dataclass(frozen=True)
class Kind:
    """``sigma`` is that of the configs' seconds, ``noise`` the share by which units vary."""

    configs: int
    partitions: int
    epochs: int
    nodes: int
    sigma: float
    noise: float
    replicas: int = 1

    def __str__(self) -> str:
        several = f", r = {self.replicas}" if self.replicas > 1 else ""
        size = f"{self.configs} x {self.partitions}, {self.epochs} epochs, {self.nodes} nodes"
        return f"{size}, sigma {self.sigma}{several}"


KINDS = [
    Kind(8, 4, 10, 2, 0.0, 0.05),
    Kind(8, 4, 10, 2, 0.5, 0.05),
    Kind(16, 8, 5, 8, 0.5, 0.1),
    Kind(32, 8, 2, 8, 0.7, 0.1),
    Kind(8, 8, 3, 8, 0.7, 0.1, replicas=2),
    Kind(6, 3, 12, 3, 1.0, 0.0),
]


def run(kind: Kind, progress: Progress, seed: int) -> tuple[float, float]:
    """Its length over the bound, and how many epochs its configs were apart."""
    rng = random.Random(seed)
    seconds = {f"c{i:04d}": rng.lognormvariate(0, kind.sigma) for i in range(kind.configs)}
    plan = Plan(
        "r",
        partitions=kind.partitions,
        epochs=kind.epochs,
        min_nodes=kind.nodes,
        max_nodes=kind.nodes,
        seed=seed,
        replicas=kind.replicas,
        progress=progress,
    )
    nodes = [Node(f"n{k}", f"h{k}") for k in range(kind.nodes)]
    search = FixedSearch([{"x": i} for i in range(kind.configs)])
    toy = SyntheticMetrics({}, kind.epochs * kind.partitions)
    done = simulate(plan, nodes, Auto(), search, Times(configs=seconds), toy, spread=kind.noise)
    units = dict.fromkeys(seconds, 0)
    apart = 0
    for event in done.events:
        if isinstance(event, UnitCommitted):
            units[event.visit.unit.config] += 1
            apart = max(apart, max(units.values()) - min(units.values()))
    each = kind.partitions * kind.epochs
    bound = max(sum(seconds.values()) * each / kind.nodes, max(seconds.values()) * each)
    return done.seconds / bound, apart / kind.partitions


def main() -> None:
    parser = argparse.ArgumentParser(description="What it costs to keep configs even, in simulated runs.")
    parser.add_argument("--seeds", type=int, default=2)
    seeds = range(parser.parse_args().seeds)
    print(f"{'configs x partitions':48}{'progress':>12}{'of bound':>10}{'epochs apart':>14}")
    for kind in KINDS:
        for progress in (Progress.FREE, Progress.AFFORDABLE, Progress.EVEN):
            lengths, aparts = zip(*(run(kind, progress, seed) for seed in seeds), strict=True)
            means = f"{statistics.fmean(lengths):>10.3f}{statistics.fmean(aparts):>14.2f}"
            print(f"{kind!s:48}{progress.value:>12}{means}", flush=True)


if __name__ == "__main__":
    main()
