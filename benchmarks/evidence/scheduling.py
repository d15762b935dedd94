"""How far from the shortest possible is a schedule, and how long does it take to make it?

    python benchmarks/evidence/scheduling.py [--size full]

Nothing is trained: units have the seconds that their settings give them, so the clock of the machine matters
only for the CPU seconds of a schedule. The settings are those of Cerebro's Fig. 6 (VLDB 2020, section 5.4:
all alike, and CNNs drawn for mixed GPUs), hard ones (mixed CNNs on equal nodes, where the longest config is
about as long as a node's load), and those of Figs. 4.1 to 4.3 of the thesis (2023), where a unit may take
several GPUs of its node. CP-SAT needs ortools, which .venv-nightly has; without it its rows are left out.
"""

from __future__ import annotations

import resource
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from measuring import options, table, write
from numpy.typing import NDArray
from pages import OURS, PEER, Pages

sys.path.append(str(Path(__file__).parents[1]))
from schedulers import FIGURES, HARD, durations, sped_up

from cerebro_planner import joint, schedule
from cerebro_planner.exact import UNITS

POLICIES = {
    "random": "random (Cerebro's)",
    "longest-remaining": "longest remaining first",
    "vector-rearrangement": "vector rearrangement",
    "auto": "auto (ours)",
    "exact": "CP-SAT, begun by auto",
}
"""As the pages call them."""
COLOURS = (PEER, "#8d93a5", "#5f6474", OURS, "#e08e45")
SPEED_UPS = (1.0, 0.7)
"""So many GPUs to this power are as fast as they are together."""
Found = tuple[float, float]
"""The makespan over its lower bound, and the CPU seconds of this process and its children."""


def taken(make: Callable[[], float]) -> Found:
    began = _cpu_seconds()
    ratio = make()
    return round(ratio, 6), round(_cpu_seconds() - began, 4)


def _cpu_seconds() -> float:
    usages = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def shops(sizes: Sequence[tuple[int, int]]) -> Iterator[tuple[str, Callable[[int], NDArray[np.float64]]]]:
    """The settings with one GPU for each unit: a name, and the seconds of units by config and node."""
    for configs, nodes in sizes:
        yield f"alike, {configs} x {nodes}", lambda _seed, c=configs, n=nodes: np.ones((c, n))
        yield f"mixed, {configs} x {nodes}", lambda seed, c=configs, n=nodes: durations(c, n, seed)
    for configs, nodes in HARD:
        yield (
            f"hard, {configs} x {nodes}",
            lambda seed, c=configs, n=nodes: durations(c, n, seed, mixed_nodes=False),
        )


def open_shops(seeds: int, seconds: float, sizes: Sequence[tuple[int, int]]) -> dict[str, Any]:
    """By setting and policy: what was found with each seed."""
    found: dict[str, dict[str, list[Found]]] = {}
    for name, times in shops(sizes):
        for policy, seed in product(POLICIES, range(seeds)):
            shop = times(seed)
            if policy == "exact" and (find_spec("ortools") is None or shop.size > UNITS):
                continue
            limit = seconds if policy == "exact" else 1.0
            made = taken(lambda s=shop, p=policy, k=seed, t=limit: 1 + schedule(s, p, k, t).gap)
            found.setdefault(name, {}).setdefault(policy, []).append(made)
            print(name, policy, *made, flush=True)
    return found


def several_gpus(seeds: int, seconds: float) -> dict[str, Any]:
    """The thesis' figures: by setting and scheduler, what was found with each seed."""
    found: dict[str, dict[str, list[Found]]] = {}
    for name, configs, gpus in FIGURES:
        for exponent in SPEED_UPS:
            setting = found.setdefault(f"Fig. {name}, g^{exponent:g}", {})
            for seed in range(seeds):
                times = sped_up(seed, configs, gpus, exponent)
                bound = joint(times, gpus, seed, 0.0).bound
                for scheduler, make in _schedulers(times, gpus, seed, seconds).items():
                    setting.setdefault(scheduler, []).append(taken(lambda m=make, b=bound: m() / b))
            print(name, exponent, setting, flush=True)
    return found


def _schedulers(
    times: NDArray[np.float64], gpus: Sequence[int], seed: int, seconds: float
) -> Mapping[str, Callable[[], float]]:
    """The thesis' three, with CP-SAT for Gurobi, and ours; each gives a makespan."""
    whole_nodes = np.stack([times[:, n, count - 1] for n, count in enumerate(gpus)], 1)
    # A GPU is a node with a shard of its own, which is its part of the node's.
    one_each = np.repeat(times[:, :, 0] / np.array(gpus), gpus, axis=1)
    schedulers: dict[str, Callable[[], float]] = {
        "random, one GPU each": lambda: schedule(one_each, "random", seed).makespan,
        "random, all GPUs of a node": lambda: schedule(whole_nodes, "random", seed).makespan,
        "auto": lambda: joint(times, gpus, seed, 1.0).makespan,
    }
    if find_spec("ortools") is not None:
        schedulers["exact"] = lambda: joint(times, gpus, seed, seconds, policy="exact").makespan
    return schedulers


def main() -> None:
    parser = options(__doc__, "scheduling", full_rounds=5)
    parser.add_argument("--only", choices=["shops", "gpus"], help="one part; the other's results stay")
    asked = parser.parse_args()
    full = asked.size == "full"
    sizes = [(c, n) for c in (16, 256) for n in (8, 16)] if full else [(16, 8)]
    seconds = 20.0 if full else 5.0
    if asked.only != "gpus":
        write(asked.to, asked.size, {"one GPU for each unit": open_shops(asked.rounds, seconds, sizes)})
    if asked.only != "shops":
        write(asked.to, asked.size, {"several GPUs": several_gpus(asked.rounds, seconds)})


def show(pages: Pages) -> None:
    """What has been measured of the page's two parts."""
    results = pages.read("scheduling")
    if found := results.get("one GPU for each unit"):
        policies = {
            p: label for p, label in POLICIES.items() if any(p in setting for setting in found.values())
        }
        draw(pages, found, policies)
        pages.fill("scheduling.md", "shops", _table(found, policies))
    if thesis := results.get("several GPUs"):
        schedulers = {name: POLICIES.get(name, name) for name in next(iter(thesis.values()))}
        pages.fill("scheduling.md", "gpus", _table(thesis, schedulers))


def draw(
    pages: Pages, found: Mapping[str, Mapping[str, Sequence[Found]]], policies: Mapping[str, str]
) -> None:
    """Ratios and CPU seconds of each policy, by setting."""
    with pages.figure("scheduling", panels=2, size=(8, 3.4)) as (left, right):
        for at, (policy, label) in enumerate(policies.items()):
            cells = {x: setting[policy] for x, setting in enumerate(found.values()) if policy in setting}
            where = [x + (at - 2) * 0.16 for x in cells]
            ratios = [[100 * (ratio - 1) for ratio, _ in cell] for cell in cells.values()]
            cpu = [max(np.mean([spent for _, spent in cell]), 1e-3) for cell in cells.values()]
            left.bar(where, [np.mean(each) for each in ratios], 0.15, color=COLOURS[at], label=label)
            left.plot(where, [max(each) for each in ratios], "_", color=COLOURS[at])
            right.bar(where, cpu, 0.15, color=COLOURS[at])
        for axes in (left, right):
            axes.set_xticks(range(len(found)), found, rotation=40, ha="right", fontsize=8)
        left.set_title("% over the lower bound (bar: mean, line: largest)")
        right.set_title("CPU seconds of a schedule")
        right.set_yscale("log")
        left.legend(frameon=False, fontsize=7)


def _table(found: Mapping[str, Mapping[str, Sequence[Found]]], labels: Mapping[str, str]) -> str:
    """Mean and largest ratio, and mean CPU seconds."""

    def cell(values: Sequence[Found] | None) -> str:
        if values is None:
            return ""
        ratios, cpu = zip(*values, strict=True)
        return f"{np.mean(ratios):.3f}, {max(ratios):.3f} ({np.mean(cpu):.2g} s)"

    rows = [[name, *(cell(setting.get(policy)) for policy in labels)] for name, setting in found.items()]
    return table(["", *labels.values()], rows)


if __name__ == "__main__":
    main()
