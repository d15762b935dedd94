"""What replicas and fetching on demand are worth: simulated runs with each partition at home on one, two and
three nodes.

    python benchmarks/replicas.py [--seeds 3] [--configs 16] [--nodes 8] [--partitions 16] [--fetch 1]

Nodes have the speeds of the paper's four GPUs, by chance; configs' costs are spread over a factor of 4;
nobody knows either before the first units. Prints for each policy the makespan over its lower bound (all
work, shared by all nodes by their speeds; or the longest config on the fastest node), the mean over the
seeds: undisturbed, with how often all data were read, and with a node that dies a third into the run, or is
three times slower from then on, over the bound that knows it.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from statistics import mean

from cerebro_elastic.core.model.interfaces import Policy
from cerebro_elastic.core.model.nodes import Node
from cerebro_elastic.core.model.run import Plan
from cerebro_elastic.registry import load
from cerebro_elastic.simulation import Fault, Simulation, SyntheticMetrics, Times, simulate
from support.world import FixedSearch

GPUS = {"Titan Xp": 12.1, "K80": 5.6, "GTX 1080": 11.3, "P100": 18.7}
SLOWER = 3.0
"""What a straggler's units take, over what they took before."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, default in {"seeds": 3, "configs": 16, "nodes": 8, "partitions": 16, "epochs": 2}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--fetch", type=float, default=1.0, help="seconds in which a node gets a partition")
    parser.add_argument("--replicas", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--policies", nargs="+", default=["auto"])
    asked = parser.parse_args()
    print("policy | replicas | undisturbed | data read | one death | one straggler")
    for policy in asked.policies:
        for replicas in asked.replicas:
            for on_demand in (False, True):
                runs = [ratios(asked, policy, replicas, on_demand, seed) for seed in range(asked.seeds)]
                label = f"{replicas}, on demand" if on_demand else str(replicas)
                columns = (f"{mean(values):.3f}" for values in zip(*runs, strict=True))
                print(" | ".join([policy, label, *columns]), flush=True)


def ratios(
    asked: argparse.Namespace, policy: str, replicas: int, on_demand: bool, seed: int
) -> tuple[float, float, float, float]:
    """Of one instance: the makespan over the bound, how often the data were read, and the makespans with a
    death and with a straggler over their bounds."""
    rng = random.Random(seed)
    names = [f"node-{i}" for i in range(asked.nodes)]
    factors = {name: max(GPUS.values()) / rng.choice(list(GPUS.values())) for name in names}
    costs = {f"c{i:04d}": rng.uniform(5, 20) for i in range(asked.configs)}
    plan = Plan(
        "r",
        asked.partitions,
        asked.epochs,
        min_nodes=len(names),
        max_nodes=len(names),
        seed=seed,
        replicas=replicas,
        on_demand=on_demand,
    )
    times = Times(configs=costs, nodes=factors, fetch=asked.fetch)

    def run(faults: Sequence[Fault] = ()) -> Simulation:
        chooses: Policy = load("cerebro.schedulers", policy)()
        search = FixedSearch([{"config": name} for name in costs])
        nodes = [Node(name, name) for name in names]
        return simulate(
            plan, nodes, chooses, search, times, SyntheticMetrics({"loss": "min"}, 1), faults=faults
        )

    units = plan.partitions * plan.epochs
    work, longest = sum(costs.values()) * units, max(costs.values()) * units

    def bound(speeds: Sequence[float]) -> float:
        return max(work / sum(speeds), longest / max(speeds))

    usual = {name: 1 / factor for name, factor in factors.items()}
    at = bound(list(usual.values())) / 3

    def bound_if(first: float) -> float:
        """The bound if the first node has this speed from ``at`` on."""
        speeds = [first, *list(usual.values())[1:]]
        done = at * sum(usual.values())
        return max((work - done) / sum(speeds) + at, longest / max(speeds))

    calm = run()
    read = sum(len(node.cached) for node in calm.state.nodes.values()) / plan.partitions
    dead = run([Fault("kill", names[0], at)]).seconds / bound_if(0.0)
    slow = run([Fault("slow", names[0], at, factor=SLOWER)]).seconds / bound_if(usual[names[0]] / SLOWER)
    return calm.seconds / bound(list(usual.values())), read, dead, slow


if __name__ == "__main__":
    main()
