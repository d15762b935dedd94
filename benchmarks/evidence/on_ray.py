"""Four configs by three systems: Ray Tune, hopping on torchrun's nodes, hopping on Ray.

    python benchmarks/evidence/on_ray.py [--size full] [--rounds 3]

Two learning rates and two regularisations, of a perceptron and of a small convolutional network, on
Fashion-MNIST and two cores. Ray's head runs before the clock. What it uses counts with those that use it,
since the workers of their trials and hosts are its children. ("Integrating Cerebro with Ray", 2021, section
5.)
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

import measuring
from end_to_end import PEERS
from pages import Pages

MODELS = {"full": ("perceptron", "convolutions"), "reduced": ("convolutions",)}
SPACE: dict[str, list[Any]] = {"batch_size": [64], "lr": [1e-3, 3e-4], "weight_decay": [1e-4, 1e-6]}
NODES = 2
_ON_HEAD = (str(PEERS / "on_head.py"), str(NODES), sys.executable)
SYSTEMS = {
    "Ray Tune": (*_ON_HEAD, str(PEERS / "ray_tune.py")),
    "hopping (`cerebro run`)": (str(PEERS / "hopping.py"), "torch"),
    "hopping on Ray (`cerebro ray`)": (*_ON_HEAD, str(PEERS / "hopping.py"), "torch", "--ray"),
}
"""Each system's script and arguments, before the folder."""


def main() -> None:
    asked = measuring.options(__doc__, "on_ray", reduced_rounds=2).parse_args()
    sys.path.append(str(PEERS))
    import workloads

    extents = {"full": workloads.Extent(12_000, 2_400, 3), "reduced": workloads.Extent(1_500, 500, 1)}
    for model in MODELS[asked.size]:
        with tempfile.TemporaryDirectory(prefix="evidence-") as temporary:
            folder = Path(temporary)
            workloads.write(folder, "fashion", extents[asked.size], {"architecture": [model], **SPACE})
            arms = [
                measuring.Arm(name, [sys.executable, *script, str(folder)])
                for name, script in SYSTEMS.items()
            ]
            measuring.write(asked.to, asked.size, {model: measuring.take_turns(arms, asked.rounds)})


def show(pages: Pages) -> None:
    """A line for each model and system."""
    spread = {"seconds": ("seconds", 1), "from the first step on": ("training_seconds", 1)}
    middle = {
        "CPU seconds": ("cpu_seconds", 1.0),
        "MB in memory": ("memory_bytes", 1e6),
        "MB read": ("read_bytes", 1e6),
    }
    rows = []
    for model, systems in pages.read("on_ray").items():
        for system in SYSTEMS:
            rounds = systems[system]
            row = [f"{model}, {system}"]
            row += [measuring.spread(measuring.column(rounds, key), digits=to) for key, to in spread.values()]
            row += [f"{median(measuring.column(rounds, 'accuracy')):.3f}"]
            row += [f"{median(measuring.column(rounds, key)) / by:,.0f}" for key, by in middle.values()]
            rows.append(row)
    head = ["", *spread, "best accuracy", *middle]
    pages.fill("end_to_end.md", "on_ray", measuring.table(head, rows))


if __name__ == "__main__":
    main()
