"""What does it cost that a node is killed, and comes back some seconds later?

    python benchmarks/evidence/failures.py [--size full]

Two nodes of one core each train a grid of small convolutional nets on a part of Fashion-MNIST, by three
systems: hopping (two ``cerebro host``, with each partition on both nodes, as the paper has three replicas);
plain processes, each with a config, which keep a checkpoint of each epoch; and torchrun's elastic DDP, one
config after the other, with the same checkpoints. Some seconds behind the first batch all processes of the
second node get SIGKILL, and later its command is started again. Each system is run undisturbed, too. Every
system notes each batch that it trains. (Cerebro, VLDB 2020, sections 5.6 and 6.2, Fig. 8B.)
"""

from __future__ import annotations

import random
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from kills import SYSTEMS, Plan, strike
from measuring import column, options, spread, table, wait_for_quiet, write
from pages import Pages

ROWS = 16_000
"""Of ``pictures.load``."""
LEADER_LOST = "hopping, leader lost"
GRID = {"lr": [0.003, 0.001, 0.0003], "width": [8, 16]}


def main() -> None:
    parser = options(__doc__, "failures", reduced_rounds=1)
    parser.add_argument("--only", nargs="+", choices=list(SYSTEMS))
    asked = parser.parse_args()
    full = asked.size == "full"
    systems = asked.only or [system for system in SYSTEMS if full or system != LEADER_LOST]
    configs = [dict(zip(GRID, point, strict=True)) for point in product(*GRID.values())]
    struck = Plan(ROWS, configs, 2, 6.0, 6.0) if full else Plan(ROWS, configs[2:], 2, 4.0, 4.0)
    plans = {"undisturbed": replace(struck, kill_after=None), "a node is lost": struck}
    runs: dict[str, list[dict[str, Any]]] = {}
    for number in range(asked.rounds):
        # Undisturbed it is the same as hopping.
        arms = [arm for arm in product(systems, plans) if arm != (LEADER_LOST, "undisturbed")]
        for system, plan in random.Random(number).sample(arms, len(arms)):
            quiet = wait_for_quiet()
            with tempfile.TemporaryDirectory(prefix="cb-") as folder:
                taken = strike(SYSTEMS[system](plans[plan], Path(folder)))
            runs.setdefault(f"{system}, {plan}", []).append({**taken, "quiet": quiet})
            shown = {name: value for name, value in taken.items() if name != "bars"}
            print(f"round {number + 1}, {system}, {plan}: {shown}", flush=True)
        write(asked.to, asked.size, runs)


def show(pages: Pages) -> None:
    """A timeline of one round, and the medians of all."""
    runs = pages.read("failures")
    systems = [system for system in SYSTEMS if f"{system}, a node is lost" in runs]
    with pages.figure("failures", size=(8, 4)) as (axes,):
        for at, system in enumerate(systems):
            _draw(axes, _middle(runs, system), {"a": -3 * at, "b": -3 * at - 1})
        lanes = {
            -3 * at - lane: f"{system}, {node}"
            for at, system in enumerate(systems)
            for lane, node in enumerate("ab")
        }
        axes.set_yticks(list(lanes), list(lanes.values()))
        axes.set_xlabel("seconds from the first batch")
    head = ["", "undisturbed, s", "with the loss, s", "longer by, s", "trained twice, %"]
    head += ["its config trains again, s", "the other node waits, s"]
    rows = []
    for system in systems:
        lost = runs[f"{system}, a node is lost"]
        calm = runs.get(f"{system}, undisturbed", runs["hopping, undisturbed"])
        middles = [statistics.median(column(each, "seconds")) for each in (lost, calm)]
        columns = [spread(column(lost, name)) for name in ("resumed", "survivor_idle")]
        twice = spread(column(lost, "lost_share"), scale=0.01)
        seconds = [spread(column(each, "seconds")) for each in (calm, lost)]
        rows.append([system, *seconds, f"{middles[0] - middles[1]:.1f}", twice, *columns])
    pages.fill("failures.md", "failures", table(head, rows))


def _middle(runs: Mapping[str, Any], system: str) -> Mapping[str, Any]:
    """The round whose time is the median."""
    lost: Sequence[Mapping[str, Any]] = runs[f"{system}, a node is lost"]
    return sorted(lost, key=lambda run: run["seconds"])[len(lost) // 2]


def _draw(axes: Any, run: Mapping[str, Any], lanes: Mapping[str, int]) -> None:
    """Bars by config; what was trained for nothing is crossed out. Lines: the kill, and the return."""
    from matplotlib import colormaps

    for bar in run["bars"]:
        where = [(bar["start"], max(bar["end"] - bar["start"], 0.02))], (lanes[bar["node"]] - 0.4, 0.8)
        axes.broken_barh(*where, facecolor=colormaps["Paired"](bar["config"]))
        if bar["lost"]:
            axes.broken_barh(*where, facecolor="none", edgecolor="#c62828", hatch="xxxx", linewidth=0)
    for at, colour in (run["killed"], "#c62828"), (run["back"], "#2e7d32"):
        axes.plot([at, at], [lanes["b"] - 0.5, lanes["a"] + 0.5], color=colour, linewidth=2)


if __name__ == "__main__":
    main()
