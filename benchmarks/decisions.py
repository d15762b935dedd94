"""What decisions cost the leader, and how fast a run is simulated.

    python benchmarks/decisions.py [--configs 1000 --nodes 64 --partitions 64]

Prints the CPU milliseconds of a decision in a simulated run of that size, from the first units on; the units
per second of a simulation of 64 configs, 4 partitions, 4 epochs and 2 nodes by two policies; and how long it
takes to make its decisions again, as ``cerebro verify`` does.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Sequence
from typing import Any

from cerebro_elastic.core.decisions.decide import decide
from cerebro_elastic.core.model.events import Event, UnitCommitted
from cerebro_elastic.core.model.interfaces import Policy
from cerebro_elastic.core.model.nodes import Node
from cerebro_elastic.core.model.run import Plan
from cerebro_elastic.scheduling.longest_remaining import LongestRemaining
from cerebro_elastic.scheduling.look_ahead import Auto
from cerebro_elastic.simulation import SyntheticMetrics, Times, engine, simulate
from cerebro_elastic.simulation.redecide import redecide
from support.world import FixedSearch

SEED = 0
SPREAD = 0.1
"""By how much units of a config differ."""
START, DECISIONS = 200, 600
"""The first decisions create configs and give every node its first unit; they are timed apart."""


class EnoughDecisions(Exception):
    """All decisions that were asked for have been timed."""


def simulated(
    configs: int, partitions: int, epochs: int, nodes: int, policy: Policy
) -> tuple[Sequence[Event], FixedSearch]:
    """The history of a simulated run, and its search."""
    rng = random.Random(SEED)
    seconds = {f"c{i:04d}": 10 * rng.lognormvariate(0, 0.3) for i in range(configs)}
    plan = Plan("r", partitions=partitions, epochs=epochs, min_nodes=nodes, max_nodes=nodes, seed=SEED)
    machines = [Node(f"n{k}", f"h{k}") for k in range(nodes)]
    search = FixedSearch([{"x": i} for i in range(configs)])
    metrics = SyntheticMetrics({}, epochs * partitions)
    run = simulate(plan, machines, policy, search, Times(configs=seconds), metrics, spread=SPREAD)
    return run.events, search


def decisions(configs: int, partitions: int, nodes: int) -> list[float]:
    """CPU seconds of the first decisions of a run."""
    timed: list[float] = []

    def timed_decide(*arguments: Any) -> Any:
        began = time.process_time()
        actions = decide(*arguments)
        timed.append(time.process_time() - began)
        if len(timed) == START + DECISIONS:
            raise EnoughDecisions
        return actions

    engine.decide = timed_decide  # type: ignore[attr-defined]
    try:
        simulated(configs, partitions, 2, nodes, Auto())
    except EnoughDecisions:
        pass
    finally:
        engine.decide = decide  # type: ignore[attr-defined]
    return timed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--configs", type=int, default=1000)
    parser.add_argument("--nodes", type=int, default=64)
    parser.add_argument("--partitions", type=int, default=64)
    options = parser.parse_args()
    timed = decisions(options.configs, options.partitions, options.nodes)
    later = [1e3 * seconds for seconds in timed[START:]]
    print(f"a decision, {options.configs} configs, {options.partitions} partitions, {options.nodes} nodes:")
    print(f"  mean {statistics.mean(later):.1f} ms, longest {max(later):.1f} ms")
    print(f"  at the start: longest {1e3 * max(timed[:START]):.0f} ms")
    for policy in (Auto(), LongestRemaining()):
        began = time.process_time()
        events, search = simulated(64, 4, 4, 2, policy)
        ended = time.process_time()
        again = redecide(events, policy, search)
        units = sum(isinstance(event, UnitCommitted) for event in events)
        print(f"{type(policy).__name__}: simulates {units / (ended - began):.0f} units per second of CPU")
        print(
            f"  {again.matched} of {again.total} decisions again: {time.process_time() - ended:.1f} s of CPU"
        )


if __name__ == "__main__":
    main()
