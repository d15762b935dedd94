"""What is it worth that a batch is made once for all configs? Pictures that take long to open, a small net.

    python benchmarks/evidence/data_once.py [--size full] [--rounds 3]

Eight configs train on one node and on two, by hopping with and without sharing, and by others; each process
that trains has one that loads. Then hopping alone on one core, with and without sharing, by the number of
configs and the time of training.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from statistics import median
from typing import Any

import measuring
from pages import OURS, PEER, Pages, bars

SCRIPT = measuring.HERE / "peers" / "opened_pictures.py"
BASE, HOPPING = "hopping, nothing shared", "hopping"
SYSTEMS = (
    HOPPING,
    "hopping, decode and augment",
    BASE,
    "processes with loaders",
    "processes, opened rows in memory",
    "Lightning",
    "Ray Tune",
)
OURS_ALONE = SYSTEMS[:3]
"""Compared on one node."""
ROWS, EPOCHS = {"full": 1_600, "reduced": 400}, 2
CONFIGS = (2, 4, 8)
WIDTH, WIDER = 8, 36
"""Of nets; the wider one trains a third as long as a picture is opened."""


def arm(system: str, size: str, *, nodes: int, configs: int, width: int, core: bool = False) -> measuring.Arm:
    """A system that trains so many configs, on one core if asked for."""
    command = [sys.executable, str(SCRIPT), system, "--nodes", str(nodes), "--configs", str(configs)]
    return measuring.Arm(
        system,
        [*(["taskset", "-c", "0"] if core else []), *command, "--epochs", str(EPOCHS)],
        {**measuring.PEER, "ROWS": str(ROWS[size]), "WIDTH": str(width)},
    )


def main() -> None:
    asked = measuring.options(__doc__, "data_once").parse_args()
    for nodes in (1, 2):
        compared = OURS_ALONE if nodes == 1 else SYSTEMS
        arms = [arm(system, asked.size, nodes=nodes, configs=8, width=WIDTH) for system in compared]
        taken = measuring.take_turns(arms, asked.rounds)
        measuring.write(asked.to, asked.size, {f"systems, {nodes}": taken})
    measuring.write(asked.to, asked.size, {"row": row_milliseconds()})
    for configs in CONFIGS:
        alone = [
            arm(system, asked.size, nodes=1, configs=configs, width=WIDER, core=True)
            for system in (HOPPING, BASE)
        ]
        taken = measuring.take_turns(alone, asked.rounds)
        measuring.write(asked.to, asked.size, {f"one core, {configs}": taken})


def row_milliseconds() -> dict[str, float]:
    """The milliseconds of a row: to open it, and to train the wider net on it."""
    command = [sys.executable, str(SCRIPT.with_name("opening.py")), str(WIDER)]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(ended.stdout)
    return found


def bound(seconds: Mapping[str, float], configs: int) -> float:
    """The least share of the time without sharing, if each picture is opened once for all configs."""
    return (seconds["open"] / configs + seconds["train"]) / (seconds["open"] + seconds["train"])


def show(pages: Pages) -> None:
    """Seconds of the systems, and the share of the time that is left by the number of configs."""
    found = pages.read("data_once")
    by_nodes = {nodes: found[f"systems, {nodes}"] for nodes in (1, 2)}
    row = found["row"]
    alone = {configs: found[f"one core, {configs}"] for configs in CONFIGS}
    with pages.figure("data_once", 2) as panels:
        seconds = {name: measuring.column(rounds, "seconds") for name, rounds in by_nodes[2].items()}
        bars(panels[0], {name: seconds[name] for name in SYSTEMS}, SYSTEMS[:2])
        panels[0].set(xlabel="seconds of training, two nodes")
        shares = [ratio(taken, HOPPING) for taken in alone.values()]
        panels[1].plot(CONFIGS, shares, marker="o", color=OURS, label="hopping")
        panels[1].plot(CONFIGS, [bound(row, configs) for configs in CONFIGS], "--", color=PEER, label="bound")
        panels[1].set(xlabel="configs, one core", ylabel="share of the time without sharing")
        panels[1].set_ylim(0, 1)
        panels[1].set_xticks(CONFIGS)
        panels[1].legend(frameon=False)
    head = ["system", "seconds, one node", "share", "seconds, two nodes", "share", "rows opened"]
    rows = [[system, *_cells(by_nodes[1], system), *_cells(by_nodes[2], system)] for system in SYSTEMS]
    opened = [round(median(measuring.column(by_nodes[2][system], "opened"))) for system in SYSTEMS]
    pages.fill(
        "data_once.md",
        "systems",
        measuring.table(head, [[*row, f"{number:,}"] for row, number in zip(rows, opened, strict=True)]),
    )
    rows = [
        [
            str(configs),
            *(measuring.spread(measuring.column(taken[system], "seconds")) for system in (BASE, HOPPING)),
            f"{ratio(taken, HOPPING):.2f}",
            f"{bound(row, configs):.2f}",
        ]
        for configs, taken in alone.items()
    ]
    head = ["configs", "seconds, nothing shared", "seconds, shared", "share", "bound"]
    pages.fill("data_once.md", "one core", measuring.table(head, rows))


def _cells(taken: Any, system: str) -> list[str]:
    """The seconds, and their share of those of hopping without sharing."""
    if system not in taken:
        return ["", ""]
    return [measuring.spread(measuring.column(taken[system], "seconds")), f"{ratio(taken, system):.2f}"]


def ratio(taken: Any, system: str) -> float:
    """The median time of a system as a share of that of hopping without sharing."""
    return median(measuring.column(taken[system], "seconds")) / median(
        measuring.column(taken[BASE], "seconds")
    )


if __name__ == "__main__":
    main()
