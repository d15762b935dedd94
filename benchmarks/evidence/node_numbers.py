"""How much faster do more nodes make it? Live on 1 and 2 nodes, simulated from measured units on 4 to 64.

    python benchmarks/evidence/node_numbers.py [--size full] [--rounds 3]

Strong scaling: the same rows, in as many partitions as there are nodes. Live: eight configs of Fashion-MNIST
on one node and on two, and by DDP on one rank and on two. Simulated: 16 and 128 such configs on all 60,000
rows. A config's seconds for a row, and the seconds of hops and decisions, are those of the live run on two
nodes; the rest is the product's own simulator. DDP is not simulated: what its messages cost on other networks
was not measured. (Cerebro, VLDB 2020, section 6.2, Figure 8A.)
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, median
from typing import Any

import measuring
from end_to_end import PEERS
from pages import OURS, PEER, Pages

SPACE = {
    "architecture": ["convolutions", "perceptron"],
    "batch_size": [32],
    "lr": [1e-3, 3e-4],
    "weight_decay": [1e-4, 1e-6],
}
ROWS = 60_000
NODES = (1, 2, 4, 8, 16, 32, 64)
CONFIGS = {"full": (16, 128), "reduced": (16,)}
HOPPING, DDP = "hopping", "DDP"


def main() -> None:
    asked = measuring.options(__doc__, "node_numbers").parse_args()
    sys.path.append(str(PEERS))
    import workloads

    with tempfile.TemporaryDirectory(prefix="evidence-") as temporary:
        folder = Path(temporary)
        extent = workloads.FASHION.extents[asked.size]
        workloads.write(folder, "fashion", extent, SPACE)
        live = measuring.take_turns(arms(folder), asked.rounds)
        measuring.write(asked.to, asked.size, {"live": live})
        simulated = {
            str(configs): simulate(folder / "home-2", extent.train, configs)
            for configs in CONFIGS[asked.size]
        }
    measuring.write(asked.to, asked.size, {"simulated": simulated})


def arms(folder: Path) -> list[measuring.Arm]:
    """Both systems on one node and on two."""
    made = []
    for number in ("1", "2"):
        hopping = [str(PEERS / "hopping.py"), "torch", str(folder), "--nodes", number]
        ddp = [str(PEERS / "data_parallel.py"), "ddp", str(folder), "--ranks", number]
        home = ["--home", str(folder / f"home-{number}")]
        (folder / f"home-{number}").mkdir()
        made += [
            measuring.Arm(f"{HOPPING}, {number}", [sys.executable, *hopping, *home]),
            measuring.Arm(f"{DDP}, {number}", [sys.executable, *ddp]),
        ]
    return made


def simulate(home: Path, rows: int, configs: int) -> dict[str, float]:
    """Seconds of an epoch by the number of nodes, from the units of the run in ``home``."""
    import cerebro_elastic
    from cerebro_elastic.simulation import measured

    run = cerebro_elastic.Run.open("recipe", home=home).result
    times = measured(run.events, run.spec.plan)
    seconds = {}
    for nodes in NODES:
        share = (ROWS / nodes) / (rows / run.spec.plan.partitions)
        units = [whole * share for whole in times.configs.values()]
        scaled = replace(
            times,
            configs={f"c{at:04d}": units[at % len(units)] for at in range(configs)},
            usual=fmean(units),
            pairs={},
            units={},
            nodes={},
            startup={},
            validation={},
        )
        seconds[str(nodes)] = cerebro_elastic.simulate(recipe(nodes, configs), seconds=scaled).seconds
    return seconds


def recipe(nodes: int, configs: int) -> Mapping[str, Any]:
    """A run of one epoch with a partition for each node."""
    return {
        "epochs": 1,
        "nodes": nodes,
        "task": {
            "kind": "torch",
            "model_fn": "workloads:model_fn",
            "loss": "cross_entropy",
            "optimizer": "SGD",
        },
        "data": {"source": "none.npz", "partitions": nodes},
        "search": {"space": {"lr": [round(0.1 / (1 + at), 8) for at in range(configs)]}},
    }


def show(pages: Pages) -> None:
    """Speed-up over one node, live and simulated."""
    found = pages.read("node_numbers")
    live = {
        system: {
            number: measuring.column(found["live"][f"{system}, {number}"], "training_seconds")
            for number in (1, 2)
        }
        for system in (HOPPING, DDP)
    }
    with pages.figure("node_numbers", 2) as (left, right):
        for system, colour in ((HOPPING, OURS), (DDP, PEER)):
            one = median(live[system][1])
            left.bar(
                [f"{system}, {number}" for number in (1, 2)],
                [one / median(live[system][number]) for number in (1, 2)],
                color=colour,
            )
        left.set(title="live", ylabel="speed-up over one node")
        right.plot(NODES, NODES, color="black", linewidth=0.8, linestyle=":", label="as many times as nodes")
        for (configs, seconds), marker in zip(found["simulated"].items(), "ox", strict=False):
            speeds = [seconds["1"] / seconds[str(nodes)] for nodes in NODES]
            right.plot(NODES, speeds, marker=marker, color=OURS, label=f"{configs} configs")
        right.set(title="simulated from measured units", xlabel="nodes", xscale="log", yscale="log")
        right.set_xticks(NODES, list(map(str, NODES)))
        right.set_yticks(NODES, list(map(str, NODES)))
        right.minorticks_off()
        right.legend(frameon=False)
    pages.fill("drill_down.md", "nodes live", live_table(live))
    pages.fill("drill_down.md", "nodes simulated", simulated_table(found["simulated"]))


def live_table(live: Mapping[str, Mapping[int, Sequence[float]]]) -> str:
    rows = [
        [
            system,
            measuring.spread(seconds[1]),
            measuring.spread(seconds[2]),
            f"{median(seconds[1]) / median(seconds[2]):.2f}",
        ]
        for system, seconds in live.items()
    ]
    return measuring.table(["", "one node, seconds", "two, seconds", "speed-up"], rows)


def simulated_table(simulated: Mapping[str, Mapping[str, float]]) -> str:
    rows = [
        [f"{configs} configs", *(f"{seconds['1'] / seconds[str(nodes)]:.1f}" for nodes in NODES)]
        for configs, seconds in simulated.items()
    ]
    return measuring.table(["speed-up on", *(f"{nodes} nodes" for nodes in NODES)], rows)


if __name__ == "__main__":
    main()
