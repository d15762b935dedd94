"""Sixteen configs by a recipe as it comes, and where each process has all rows; data of ``end_to_end.py``.

    python benchmarks/evidence/as_it_comes.py [--size full] [--only fashion text] [--rounds 3]

The full size takes some 25 minutes on two idle cores, and fills in its part of docs/evidence. The recipe
names a function that returns all rows, and leaves everything else to its defaults: the run prepares its data,
chooses its number of partitions, and has its check beside it.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

import figures
import measuring
from end_to_end import PEERS, TITLES, arms
from pages import Pages

BY_HAND = "torch.multiprocessing by hand"
OURS = {"hopping, as it comes": {}, "hopping, as it comes, `check: off`": {"check": "off"}}
"""The keys of our recipes beside those that a recipe must have."""
OTHERS = (BY_HAND, "task-parallel Lightning", "Ray Tune")


def main() -> None:
    parser = measuring.options(__doc__, "as_it_comes")
    parser.add_argument("--only", nargs="+", choices=list(TITLES), help="default: all that have this size")
    asked = parser.parse_args()
    sys.path.append(str(PEERS))
    import workloads

    for name in asked.only or workloads.of_size(asked.size):
        with tempfile.TemporaryDirectory(prefix="evidence-") as temporary:
            folder = Path(temporary)
            workloads.write(folder, name, workloads.WORKLOADS[name].extents[asked.size])
            rounds = measuring.take_turns([*ours(folder), *arms(folder, OTHERS)], asked.rounds)
            measuring.write(asked.to, asked.size, {name: rounds})
    if asked.to == measuring.RESULTS["full"] / "as_it_comes.json":
        figures.show(Pages.of(asked.size), ["as_it_comes"])


def ours(folder: Path) -> list[measuring.Arm]:
    """The arms of our recipes, each with the job in a folder of its own."""
    job = json.loads((folder / "job.json").read_text())
    found = []
    for number, (name, keys) in enumerate(OURS.items()):
        own = folder / f"recipe-{number}"
        own.mkdir()
        recipe = {"data": {"source": "workloads:written"}, **keys}
        (own / "job.json").write_text(json.dumps({**job, "recipe": recipe}))
        command = [sys.executable, str(PEERS / "hopping.py"), "torch", str(own)]
        found.append(measuring.Arm(name, command, {**measuring.PEER, "WORKLOAD": str(folder)}))
    return found


def show(pages: Pages) -> None:
    """A line for each system: by dataset its seconds, and the ratio to the seconds by hand in each round."""
    measured = pages.read("as_it_comes")
    names = [name for name in TITLES if name in measured]
    rows = [[system, *(cell(measured[name], system) for name in names)] for system in measured[names[0]]]
    pages.fill("end_to_end.md", "as_it_comes", measuring.table(["", *(TITLES[name] for name in names)], rows))


def cell(taken: Any, system: str) -> str:
    seconds, by_hand = (measuring.column(taken[each], "seconds") for each in (system, BY_HAND))
    ratios = [own / hand for own, hand in zip(seconds, by_hand, strict=True)]
    return f"{median(seconds):.1f}: {measuring.spread(ratios, digits=2)}"


if __name__ == "__main__":
    main()
