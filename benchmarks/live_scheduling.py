"""The policies of live runs against one another, in the simulator: hard instances, known only as they unfold.

    python benchmarks/live_scheduling.py [28x8 64x16] [--seeds 3] [--epochs 3] [--replicas 1]
        [--policies auto,longest-remaining,random] [--noise 0 0.3]
        [--progress affordable|even|free]
    python benchmarks/live_scheduling.py --decide 32x8 256x16

Mixed CNNs (those of benchmarks/schedulers.py) on equal nodes, where the longest config is about as long as a
node's load. No policy is told how long a config's units take before it has had one. Prints for each policy
the mean and the largest ratio of the makespan to the lower bound, by the seconds that units really took; and
with ``--decide`` the CPU milliseconds of one decision with one idle node in the middle of a run."""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Sequence

import numpy as np
from schedulers import HARD, durations

from cerebro_elastic.core.decisions.decide import decide
from cerebro_elastic.core.model.attempts import Attempt
from cerebro_elastic.core.model.configs import Config
from cerebro_elastic.core.model.events import UnitCommitted
from cerebro_elastic.core.model.interfaces import Policy
from cerebro_elastic.core.model.nodes import Node
from cerebro_elastic.core.model.run import Plan, Progress
from cerebro_elastic.core.model.state import State, Usage
from cerebro_elastic.core.model.units import CheckpointRef, Unit
from cerebro_elastic.registry import load
from cerebro_elastic.simulation import SyntheticMetrics, Times, simulate
from support.world import FixedSearch


def ratio(
    name: str,
    configs: int,
    nodes: int,
    epochs: int,
    spread: float,
    replicas: int,
    progress: Progress,
    seed: int,
) -> float:
    """Makespan to lower bound of one simulated run."""
    seconds = durations(configs, nodes, seed, mixed_nodes=False)[:, 0]
    done = simulate(
        Plan(
            "r",
            nodes,
            epochs,
            min_nodes=nodes,
            max_nodes=nodes,
            seed=seed,
            replicas=replicas,
            progress=progress,
        ),
        [Node(f"n{k:02d}", f"h{k:02d}") for k in range(nodes)],
        policy(name),
        FixedSearch([{"config": i} for i in range(configs)]),
        Times(configs={f"c{i:04d}": float(each) for i, each in enumerate(seconds)}),
        SyntheticMetrics({}, epochs * nodes),
        spread=spread,
    )
    load: dict[str, float] = {}
    for visit in (event.visit for event in done.events if isinstance(event, UnitCommitted)):
        for who in (visit.node, visit.unit.config):
            load[who] = load.get(who, 0.0) + visit.seconds
    lengths = [at for who, at in load.items() if who.startswith("c")]
    loads = [at for who, at in load.items() if who.startswith("n")]
    # With replicas it is open which node's load a unit is: at best all have as much.
    return done.seconds / max(*lengths, max(loads) if replicas == 1 else sum(loads) / nodes)


def policy(name: str) -> Policy:
    """As a run makes it."""
    named_policy: Policy = load("cerebro.schedulers", name)()
    return named_policy


def milliseconds(name: str, configs: int, nodes: int, moments: int) -> list[float]:
    """CPU time of one decision each, of ``moments`` in which one node of all is idle."""
    rng, took = random.Random(0), []
    names = [f"c{i:04d}" for i in range(configs)]
    node_names = [f"n{k:02d}" for k in range(nodes)]
    for revision in range(moments):
        seconds = {config: rng.lognormvariate(0, 1) for config in names}
        state = State(
            plan=Plan("r", nodes, 10, max_nodes=nodes),
            configs={c: Config(c, {}, head=CheckpointRef("u", "d", 1), revision=9) for c in names},
            nodes={name: Node(name, name, registration=k + 1) for k, name in enumerate(node_names)},
            homes={j: (name,) for j, name in enumerate(node_names)},
            attempts={
                name: Attempt(Unit(names[k], 0, k), name, k + 1, 9, expected=seconds[names[k]], since=0.0)
                for k, name in enumerate(node_names)
                if k
            },
            timings=seconds,
            usage=Usage(1, 1.0, 0.0, 0.1),
            revision=100 + revision,
        )
        begun = time.process_time()
        decide(state, policy(name), FixedSearch([]))
        took.append((time.process_time() - begun) * 1000)
    return took


def compare(
    configs: int,
    nodes: int,
    policies: Sequence[str],
    seeds: int,
    epochs: int,
    replicas: int,
    noise: Sequence[float],
    progress: Progress,
) -> None:
    for spread in noise:
        for name in policies:
            ratios = [
                ratio(name, configs, nodes, epochs, spread, replicas, progress, s) for s in range(seeds)
            ]
            print(
                f"  {configs} x {nodes}, {epochs} epochs, noise {spread}, r={replicas} {name:22} "
                f"mean {np.mean(ratios):.3f}  max {max(ratios):.3f}",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sizes", nargs="*", default=[f"{c}x{n}" for c, n in HARD])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--replicas", type=int, default=1)
    parser.add_argument("--noise", type=float, nargs="+", default=[0.0, 0.3])
    parser.add_argument("--policies", default="auto,longest-remaining,random")
    parser.add_argument("--progress", type=Progress, default=Progress.AFFORDABLE)
    parser.add_argument("--decide", action="store_true")
    asked = parser.parse_args()
    policies = asked.policies.split(",")
    for configs, nodes in ((int(number) for number in size.split("x")) for size in asked.sizes):
        if not asked.decide:
            compare(
                configs,
                nodes,
                policies,
                asked.seeds,
                asked.epochs,
                asked.replicas,
                asked.noise,
                asked.progress,
            )
            continue
        for name in policies:
            took = milliseconds(name, configs, nodes, 10)
            print(f"  {configs} x {nodes} {name:22} mean {np.mean(took):.1f} ms  max {max(took):.1f} ms")


if __name__ == "__main__":
    main()
