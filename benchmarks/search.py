"""Which search procedure when: simulated time to a good config, on learning curves of a real run.

A config learns as the recorded one that lies nearest in the space (`search_curves.json`: 64 configs for 27
epochs); a child of PBT goes on from its parent's error with the slope of the curve that lies nearest to it.
Units take as long as they took in the run, hops nothing. *MOP*: a unit runs on the node that holds its
partition, and each node takes the config that has most to do. *Task-parallel*: a node trains a config for
whole epochs, or (where rungs lie inside epochs) for units, with all the data at hand.

python benchmarks/search.py [--seeds 20] [--nodes 4] [--full 12]
"""

from __future__ import annotations

import argparse
import heapq
import json
import math
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cerebro_elastic.core.model.interfaces import ConfigView, Search
from cerebro_elastic.recipes import Recipe, load_recipe
from cerebro_elastic.registry import load
from cerebro_elastic.testing.search_contract import Tryout

HERE = Path(__file__).parent
METHODS: dict[str, dict[str, Any]] = {
    "random": {"method": "random"},
    "tpe": {"method": "tpe"},
    "median": {"method": "median"},
    "asha": {"method": "asha"},
    "asha by tpe": {"method": "asha", "sampler": "tpe"},
    "asha in units": {"method": "asha", "resource": "units", "metric": "train_loss"},
    "hyperband": {"method": "hyperband"},
    "bohb": {"method": "bohb"},
    "pbt": {
        "method": "pbt",
        "num": 8,
        "perturbation_interval": 3,
        "perturb": ["lr", "dropout", "weight_decay"],
    },
}
NEAR = 1.25
"""A config is good if its error is at most this times the least that was recorded."""


class Curves:
    """The recorded curves, found by hyper-parameters."""

    def __init__(self, table: Mapping[str, Any], space: Mapping[str, Any]) -> None:
        self.rows = table["configs"]
        self._space = space
        self._places = [self._place(row["hparams"]) for row in self.rows]
        self._found: dict[str, Any] = {}
        self._factors: dict[str, float] = {}

    def nearest(self, view: ConfigView) -> Mapping[str, Any]:
        if view.config not in self._found:
            here = self._place(view.hparams)
            best = min(range(len(self.rows)), key=lambda row: math.dist(here, self._places[row]))
            self._found[view.config] = self.rows[best]
        return self._found[view.config]  # type: ignore[no-any-return]

    def born(self, view: ConfigView, parent: ConfigView | None) -> None:
        """From here on the config's errors are so many times those of the curve."""
        self._factors[view.config] = 1.0
        if parent is not None and view.epochs:
            parent_error = self.error(parent, view.epochs)
            self._factors[view.config] = parent_error / max(self.error(view, view.epochs), 1e-9)

    def error(self, view: ConfigView, epochs: int) -> float:
        recorded: float = self.nearest(view)["error"][epochs - 1]
        return min(1.0, recorded * self._factors[view.config])

    def _place(self, hparams: Mapping[str, Any]) -> list[float]:
        """The point in the unit cube."""
        return [_share(self._space[name], float(value)) for name, value in sorted(hparams.items())]


def _share(domain: Mapping[str, Any], value: float) -> float:
    ((kind, (low, high)),) = domain.items()
    if kind == "loguniform":
        low, high, value = math.log(low), math.log(high), math.log(value)
    return (value - low) / (high - low)


class SimulatedSearch:
    """One search from its beginning until ``limit`` seconds have passed."""

    def __init__(
        self, search: Search, table: Mapping[str, Any], space: Any, nodes: int, *, hops: bool, in_units: bool
    ) -> None:
        self.curves = Curves(table, space)
        self.partitions, self.hops = table["partitions"], hops
        self.by_unit = hops or in_units
        self.tryout = Tryout(
            search, self._learn, partitions=self.partitions, epochs=table["epochs"], nodes=nodes
        )
        self.visited: dict[str, set[int]] = {}
        self.idle = set(range(nodes))
        self.ends: list[tuple[float, int, str, int]] = []
        self.best: list[tuple[float, float]] = []
        self.busy = 0.0

    def run(self, limit: float) -> None:
        self._settle()
        while self.ends and self.ends[0][0] <= limit:
            self.tryout.now, node, config, partition = heapq.heappop(self.ends)
            self._end(config, partition)
            self.idle.add(node)
            self._settle()

    def time_to(self, error: float) -> float:
        return next((time for time, reached in self.best if reached <= error), math.inf)

    def _settle(self) -> None:
        self.tryout.settle()
        for name, view in self.tryout.configs.items():
            if name not in self.visited:
                parent = self.tryout.configs[view.parent] if view.parent else None
                self.visited[name] = set(self.visited[parent.config]) if parent else set()
                self.curves.born(view, parent)
        for node in sorted(self.idle):
            self._begin(node)

    def _begin(self, node: int) -> None:
        waiting = [self.tryout.configs[name] for name in self.tryout.live]
        partitions = {s.config: self._due(s, node) for s in waiting}
        able = [s for s in waiting if partitions[s.config] is not None]
        if not able:
            return
        chosen = min(able, key=lambda s: (s.units * self.curves.nearest(s)["seconds"], s.config))
        partition = partitions[chosen.config]
        assert partition is not None
        units = 1 if self.by_unit else self.partitions - len(self.visited[chosen.config])
        seconds = units * self.curves.nearest(chosen)["seconds"]
        self.tryout.begin(chosen.config)
        self.idle.discard(node)
        self.busy += seconds
        heapq.heappush(self.ends, (self.tryout.now + seconds, node, chosen.config, partition))

    def _due(self, view: ConfigView, node: int) -> int | None:
        """A partition that the node may do for the config: of its own, or any."""
        candidates = range(node, self.partitions, self.tryout.nodes) if self.hops else range(self.partitions)
        return next((j for j in candidates if j not in self.visited[view.config]), None)

    def _end(self, config: str, partition: int) -> None:
        visited = self.visited[config]
        for j in [partition] if self.by_unit else set(range(self.partitions)) - visited:
            visited.add(j)
            self.tryout.end(config)
        if len(visited) == self.partitions:
            visited.clear()
            view = self.tryout.configs[config]
            error = self.curves.error(view, view.epochs)
            if not self.best or error < self.best[-1][1]:
                self.best.append((self.tryout.now, error))

    def _learn(self, view: ConfigView, units: int, ends: bool) -> Mapping[str, float]:
        logged = {"train_loss": self.curves.nearest(view)["train_loss"][units - 1]}
        return {**logged, "error": self.curves.error(view, units // self.partitions)} if ends else logged


def recipe(table: Mapping[str, Any], space: Any, seed: int, search: Mapping[str, Any]) -> Recipe:
    return load_recipe(
        {
            "seed": seed,
            "epochs": table["epochs"],
            "task": {"kind": "torch", "model_fn": "m:f", "loss": "mse_loss"},
            "data": {"source": "x.npz", "partitions": table["partitions"]},
            "objective": {"metric": "error"},
            "search": {"num": 1000, "space": space, **search},
        }
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--full", type=float, default=12, help="time for so many configs")
    parser.add_argument("--live", type=int, default=0, help="configs at once on MOP (default: nodes x 1.5)")
    parser.add_argument("--methods", nargs="*", default=list(METHODS))
    asked = parser.parse_args()
    table = json.loads((HERE / "search_curves.json").read_text())
    space = load_recipe(HERE / "search_curves.yaml").resolved()["search"]["space"]
    seconds = statistics.mean(row["seconds"] for row in table["configs"])
    limit = asked.full * table["epochs"] * table["partitions"] * seconds / asked.nodes
    least = min(min(row["error"]) for row in table["configs"])
    print(f"{asked.seeds} seeds, {asked.nodes} nodes, {limit:.1f} s; the least error recorded is {least:.4f}")
    print("method | schedule | configs | busy | best error | time to a good one | found")
    for name in asked.methods:
        for hops in (True, False):
            live = (asked.live or asked.nodes + asked.nodes // 2) if hops else asked.nodes
            more = {} if name == "pbt" else {"concurrency": live}
            searches = []
            for seed in range(asked.seeds):
                resolved = recipe(table, space, seed, {**METHODS[name], **more})
                search = load("cerebro.search", resolved.search.method)(resolved)
                in_units = METHODS[name].get("resource") == "units"
                searches.append(
                    SimulatedSearch(search, table, space, asked.nodes, hops=hops, in_units=in_units)
                )
                searches[-1].run(limit)
            times = [run.time_to(NEAR * least) for run in searches]
            print(
                name,
                "MOP" if hops else "task-parallel",
                f"{statistics.mean(len(run.visited) for run in searches):.1f}",
                f"{statistics.mean(run.busy / limit / asked.nodes for run in searches):.0%}",
                f"{statistics.mean(run.best[-1][1] for run in searches):.4f}",
                f"{statistics.median(times):.1f} s",
                f"{sum(map(math.isfinite, times))}/{len(times)}",
                sep=" | ",
                flush=True,
            )


if __name__ == "__main__":
    main()
