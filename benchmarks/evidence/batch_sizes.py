"""What does a small batch cost? Hopping and DDP with batches of 16 to 256 rows.

    python benchmarks/evidence/batch_sizes.py [--size full] [--rounds 3]

Four configs of Fashion-MNIST on two nodes. Hopping moves a model once for each partition, DDP its gradients
after each batch. A rank's batch is the config's, so the model sees one of twice the rows, as in the paper.
(Cerebro, VLDB 2020, section 6.2, Figure 9.)
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from statistics import median

import measuring
from end_to_end import PEERS, arms
from pages import OURS, PEER, Pages

SIZES = {"full": (16, 64, 256), "reduced": (16, 256)}
SYSTEMS = ("hopping", "DDP")


def main() -> None:
    asked = measuring.options(__doc__, "batch_sizes").parse_args()
    sys.path.append(str(PEERS))
    import workloads

    with tempfile.TemporaryDirectory(prefix="evidence-") as temporary:
        every = []
        for size in SIZES[asked.size]:
            folder = Path(temporary) / str(size)
            space = {
                "architecture": ["perceptron"],
                "batch_size": [size],
                "lr": [1e-3, 3e-4],
                "weight_decay": [1e-4, 1e-6],
            }
            workloads.write(folder, "fashion", workloads.FASHION.extents[asked.size], space)
            every += [
                measuring.Arm(f"{arm.name}, {size}", arm.command, arm.environment)
                for arm in arms(folder, SYSTEMS)
            ]
        measuring.write(asked.to, asked.size, {"fashion": measuring.take_turns(every, asked.rounds)})


def show(pages: Pages) -> None:
    """Seconds of training and the best accuracy by batch size."""
    taken = pages.read("batch_sizes")["fashion"]
    sizes = [size for size in SIZES["full"] if f"{SYSTEMS[0]}, {size}" in taken]
    with pages.figure("batch_sizes", 2) as panels:
        for system, colour in zip(SYSTEMS, (OURS, PEER), strict=True):
            for axes, name in zip(panels, ("training_seconds", "accuracy"), strict=True):
                values = [median(measuring.column(taken[f"{system}, {size}"], name)) for size in sizes]
                axes.plot(range(len(sizes)), values, marker="o", color=colour, label=system)
        for axes, label in zip(panels, ("seconds of training", "best accuracy"), strict=True):
            axes.set(xlabel="rows of a batch", ylabel=label)
            axes.set_xticks(range(len(sizes)), list(map(str, sizes)))
        panels[0].set_ylim(bottom=0)
        panels[0].legend(frameon=False)
    rows = []
    for size in sizes:
        for system in SYSTEMS:
            rounds = taken[f"{system}, {size}"]
            rows.append(
                [
                    f"{system}, {size}",
                    measuring.spread(measuring.column(rounds, "training_seconds")),
                    measuring.spread(measuring.column(rounds, "accuracy"), digits=3),
                    measuring.spread(measuring.column(rounds, "moved_bytes"), 1e6, 0),
                ]
            )
    head = ["system, rows of a batch", "seconds of training", "best accuracy", "MB moved"]
    pages.fill("drill_down.md", "batch sizes", measuring.table(head, rows))


if __name__ == "__main__":
    main()
