"""Table 2 of the paper: what each approach moves, by formula, beside the bytes that were measured.

    python benchmarks/evidence/communication.py [--size full]

The formulas get the numbers of ``end_to_end.py``: k epochs, the configs' models of m bytes, p = 2 partitions,
and the batches. What hops is m and both moments of Adam, so 3 m. Measured bytes are those over the loopback
device, for hopping those of the checkpoints, from ``end_to_end.py``, which must have run. (Cerebro, VLDB
2020, section 3.2, Table 2.)
"""

from __future__ import annotations

import math
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

import measuring
from end_to_end import PEERS, TITLES
from pages import Pages

FORMULAS = {
    "Model Hopper Parallelism": ("k·3m·p·S + 3m·S", "hopping", "hopped_bytes"),
    "task parallelism, full replication": ("p·D + m·S", None, ""),
    "task parallelism, remote reads": ("k·S·D + m·S", None, ""),
    "bulk synchronous (averaging)": ("2k·m·p·S", "model averaging", "moved_bytes"),
    "centralized (parameter server)": ("2k·m·p·S·⌈D/bp⌉", "parameter server", "moved_bytes"),
    "decentralized (all-reduce)": ("k·m·p·S·⌈D/bp⌉", "DDP", "moved_bytes"),
}
"""By approach: the formula, and whose bytes were measured."""


def main() -> None:
    asked = measuring.options(__doc__, "communication").parse_args()
    sys.path.append(str(PEERS))
    import workloads

    for name in workloads.of_size(asked.size):
        with tempfile.TemporaryDirectory(prefix="evidence-") as temporary:
            folder = Path(temporary)
            workloads.write(folder, name, workloads.WORKLOADS[name].extents[asked.size])
            partitions = sum(file.stat().st_size for file in folder.glob("partitions/train/*/*"))
        measuring.write(asked.to, asked.size, {name: costs(workloads, name, asked.size, partitions)})


def costs(workloads: Any, name: str, size: str, dataset: int) -> dict[str, float]:
    """The formulas' bytes, summed over the configs."""
    workload = workloads.WORKLOADS[name]
    extent, p = workload.extents[size], workloads.PARTITIONS
    k, moved = extent.epochs, dict.fromkeys(FORMULAS, 0.0)
    for config in workloads.configs(workload.space):
        m = sum(4 * parameter.numel() for parameter in workload.model(config["architecture"]).parameters())
        steps = math.ceil(extent.train / (config["batch_size"] * p))
        each = (
            k * 3 * m * p + 3 * m,
            m,
            k * dataset + m,
            2 * k * m * p,
            2 * k * m * p * steps,
            k * m * p * steps,
        )
        for approach, cost in zip(FORMULAS, each, strict=True):
            moved[approach] += cost
    moved["task parallelism, full replication"] += p * dataset
    return moved


def show(pages: Pages) -> None:
    """A table: of each dataset the formula's megabytes, and the measured ones in parentheses."""
    costs, ended = pages.read("communication"), pages.read("end_to_end")
    names = [name for name in TITLES if name in costs and name in ended]
    rows = []
    for approach, (formula, system, key) in FORMULAS.items():
        row = [approach, f"`{formula}`"]
        for name in names:
            by_formula = f"{costs[name][approach] / 1e6:,.0f}"
            measured = median(measuring.column(ended[name][system], key)) / 1e6 if system else None
            row.append(by_formula if measured is None else f"{by_formula} ({measured:,.0f})")
        rows.append(row)
    head = ["MB by formula (measured)", "formula", *(TITLES[name] for name in names)]
    pages.fill("drill_down.md", "communication", measuring.table(head, rows))


if __name__ == "__main__":
    main()
