"""How late are runs with a budget of time, and how much of it do they use? Simulated: nothing is trained.

    python benchmarks/budgets.py

Random search, ASHA and PBT on 1, 2 and 4 nodes, over 3 and 5 partitions, with 150 and 290 seconds: 36 runs.
Units take 3 to 9 s, on one node 1.3 times as long; validation takes half a unit more. Lateness is in mean
units of the run, with units as expected and with seconds that vary by a log-normal factor of sigma 0.2.
"""

from __future__ import annotations

from itertools import product
from statistics import fmean
from typing import Any

from cerebro_elastic.core.history.view import RunView
from cerebro_elastic.recipes import Recipe, load_recipe
from cerebro_elastic.runs.forecast.simulate import simulate
from cerebro_elastic.simulation import Times

BEGIN = 1_000_000.0
SEARCHES: list[dict[str, Any]] = [
    {"method": "random", "num": 6},
    {"method": "asha", "num": 12},
    {"method": "pbt", "num": 4},
]


def recipe(nodes: int, partitions: int, search: dict[str, Any], seconds: float) -> Recipe:
    task = {"kind": "torch", "model_fn": "a:b", "loss": "cross_entropy", "optimizer": "SGD"}
    data = {"source": "a:b", "partitions": partitions}
    space = {"lr": {"loguniform": [0.01, 1.0]}}
    given = {"space": space, "budget": {"timeout": seconds}, **search}
    of = {"nodes": nodes, "epochs": 9, "seed": partitions, "task": task, "data": data, "search": given}
    return load_recipe(of)


def times() -> Times:
    seconds = {f"c{number:04d}": 3.0 + 5 * number % 7 for number in range(400)}
    longer = {config: each / 2 for config, each in seconds.items()}
    return Times(configs=seconds, validation=longer, nodes={"node-1": 1.3}, hop=0.3, saving=0.2, dispatch=0.1)


def main() -> None:
    print("noise | runs | late | most, in units | time used")
    for noise in (0.0, 0.2):
        late, used = [], []
        for nodes, partitions, search, seconds in product((1, 2, 4), (3, 5), SEARCHES, (150, 290)):
            of = recipe(nodes, partitions, search, seconds)
            view = RunView(simulate(of, seconds=times(), noise=noise, start_time=BEGIN).simulation.events)
            took = view.state.usage.until - BEGIN
            late.append(max(0.0, took - seconds) / fmean(visit.seconds for visit in view.log))
            used.append(took / seconds)
        number = sum(each > 0 for each in late)
        print(f"{noise:g} | {len(late)} | {number} | {max(late):.2f} | {fmean(used):.2f}", flush=True)


if __name__ == "__main__":
    main()
