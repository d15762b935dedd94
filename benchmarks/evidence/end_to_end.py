"""Sixteen configs, end to end: hopping and the systems that people would pick instead.

    python benchmarks/evidence/end_to_end.py [--size full] [--only fashion text] [--rounds 3]

All train the same 16 configs on the same rows for as many epochs, on two cores, and evaluate each config
behind each epoch. Each is a script of ``peers/`` that runs alone; they take turns. Data are written before,
for the peers as arrays, for hopping as two partitions. (Cerebro, VLDB 2020, section 6.1, Table 5, Figure 7.)
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import measuring
from pages import Pages, bars

PEERS = measuring.HERE / "peers"
SYSTEMS = {
    "hopping": ("hopping.py", "torch"),
    "hopping, Lightning": ("hopping.py", "lightning"),
    "task-parallel Lightning": ("lightning_tasks.py",),
    "torch.multiprocessing by hand": ("by_hand.py",),
    "Ray Tune": ("ray_tune.py",),
    "DDP": ("data_parallel.py", "ddp"),
    "FSDP": ("data_parallel.py", "fsdp"),
    "model averaging": ("data_parallel.py", "averaging"),
    "parameter server": ("parameter_server.py",),
}
"""Each system's script."""
OURS = ("hopping", "hopping, Lightning")
TITLES = {
    "fashion": "Fashion-MNIST",
    "text": "sentences of varying length",
    "clicks": "clicks, wide rows",
    "whole": "Fashion-MNIST, all rows",
}


def arms(folder: Path, systems: Sequence[str] = tuple(SYSTEMS)) -> list[measuring.Arm]:
    """The systems that train the job of a folder."""
    return [
        measuring.Arm(name, [sys.executable, str(PEERS / SYSTEMS[name][0]), *SYSTEMS[name][1:], str(folder)])
        for name in systems
    ]


def main() -> None:
    parser = measuring.options(__doc__, "end_to_end")
    parser.add_argument("--only", nargs="+", choices=list(TITLES), help="default: all that have this size")
    parser.add_argument("--systems", nargs="+", choices=list(SYSTEMS), default=list(SYSTEMS))
    asked = parser.parse_args()
    sys.path.append(str(PEERS))
    import workloads

    if asked.to == measuring.RESULTS["full"] / "end_to_end.json" and len(asked.systems) < len(SYSTEMS):
        parser.error(
            f"--systems names {len(asked.systems)} of {len(SYSTEMS)} systems, and {asked.to.name} has the "
            "results of all: keep these in another file (--to FILE)"
        )
    there = workloads.of_size(asked.size)
    if missing := set(asked.only or ()) - set(there):
        parser.error(f"of size {asked.size} there is no {', '.join(missing)}")
    for name in asked.only or there:
        with tempfile.TemporaryDirectory(prefix="evidence-") as temporary:
            folder = Path(temporary)
            extent = workloads.WORKLOADS[name].extents[asked.size]
            workloads.write(folder, name, extent)
            rounds = measuring.take_turns(arms(folder, asked.systems), asked.rounds)
            measuring.write(asked.to, asked.size, {name: rounds})


def show(pages: Pages) -> None:
    """Seconds of each system by dataset; and a table for each."""
    measured = pages.read("end_to_end")
    results = {name: measured[name] for name in TITLES if name in measured}
    rows = 1 if len(results) < 4 else 2
    with pages.figure("end_to_end", len(results), (8.0, 3.0 * rows), rows) as panels:
        for at, (axes, (name, systems)) in enumerate(zip(panels, results.items(), strict=True)):
            seconds = {system: measuring.column(rounds, "seconds") for system, rounds in systems.items()}
            bars(axes, seconds, OURS)
            axes.set(title=TITLES[name], xlabel="seconds")
            if at % (len(results) // rows):
                axes.set_yticklabels([])
    for name, systems in results.items():
        pages.fill("end_to_end.md", name, table(systems))


def table(systems: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """A line for each system."""
    spread = {"seconds": ("seconds", 1), "best accuracy": ("accuracy", 3)}
    middle = {
        "of which start": ("start_seconds", 1.0, 1),
        "CPU seconds": ("cpu_seconds", 1.0, 0),
        "MB in memory": ("memory_bytes", 1e6, 0),
        "MB read": ("read_bytes", 1e6, 0),
        "MB moved": ("moved_bytes", 1e6, 0),
    }
    rows = []
    for system, rounds in systems.items():
        row = [system]
        row += [measuring.spread(measuring.column(rounds, key), digits=to) for key, to in spread.values()]
        row += [f"{median(measuring.column(rounds, key)) / by:,.{to}f}" for key, by, to in middle.values()]
        rows.append(row)
    return measuring.table(["", *spread, *middle], rows)


if __name__ == "__main__":
    main()
