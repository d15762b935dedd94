"""The benchmarks that rivals publish, by them and by us.

    python benchmarks/evidence/rivals.py [--only bookkeeping ...] [--rounds 1] [--short]

Whole commands on two cores take turns; each arm is a script of ``peers/rivals``. docs/evidence/rivals.md says
where each benchmark comes from and what its authors state. AutoGluon wants older packages, so it has
a separate environment, and is left out where that is missing:

    python -m venv .venv-autogluon
    .venv-autogluon/bin/pip install 'autogluon.tabular[lightgbm,ray]' torch
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from statistics import median
from typing import Any, NamedTuple

import measuring
from pages import Pages

SCRIPTS = measuring.HERE / "peers" / "rivals"
AUTOGLUON = measuring.HERE.parents[1] / ".venv-autogluon" / "bin" / "python"
ALPHAS = [10.0**power for power in (-6, -5.5, -5, -4.5, -4, -3.5, -3, -2.5, -2, -1.5, -1, -0.5)]
Values = Mapping[str, Sequence[Mapping[str, Any]]]


def arm(
    name: str, script: str, *words: object, python: str = sys.executable, **variables: str
) -> measuring.Arm:
    """A script of ``peers/rivals`` with its arguments."""
    command = [python, str(SCRIPTS / f"{script}.py"), *map(str, words)]
    return measuring.Arm(name, command, {**measuring.PEER, **variables})


def ours(name: str, recipe: str, arguments: Mapping[str, Any], **variables: str) -> measuring.Arm:
    """A run of a recipe of ``peers/rivals/our_recipes.py``."""
    return arm(name, "ours", recipe, json.dumps(arguments), **variables)


def bookkeeping(trials: int) -> list[measuring.Arm]:
    return [
        arm("Ray Tune", "bookkeeping_ray", trials, 1),
        arm("Optuna, two processes", "bookkeeping_optuna", trials, 1),
        ours("ours", "sleeping", {"configs": trials}, SLEEP="1"),
    ]


def pausing(seconds: int) -> list[measuring.Arm]:
    return [arm("Ray Tune", "pausing_ray", seconds), arm("ours", "pausing_ours", seconds)]


def faults(iterations: int) -> list[measuring.Arm]:
    return [arm("Ray Tune", "faults_ray", iterations), arm("ours", "faults_ours", iterations)]


def simple(trials: int) -> list[measuring.Arm]:
    runs = [ours(f"ours, {way}", "simple", {"trials": trials, "method": way}) for way in ("median", "asha")]
    return [arm("Optuna, two processes", "simple_optuna", trials), *runs]


def packing(experiments: int) -> list[measuring.Arm]:
    return [
        each
        for seconds in (10, 2)
        for each in (
            arm(f"a packed job, {seconds} s", "packing", experiments, seconds),
            ours(f"ours, {seconds} s", "sleeping", {"configs": experiments}, SLEEP=str(seconds)),
        )
    ]


def folds(tables: int) -> list[measuring.Arm]:
    arms = []
    for model, rows in product(("LightGBM", "perceptron"), ("small_table", "large_table")[:tables]):
        what = f"{model}, {rows.partition('_')[0]}"
        arms.append(arm(f"cross_validate, {what}", "folds_sklearn", model, rows))
        for way in ("sequential", "parallel") if AUTOGLUON.exists() else ():
            words = (model, rows, way)
            arms.append(arm(f"AutoGluon {way}, {what}", "folds_autogluon", *words, python=str(AUTOGLUON)))
        arms.append(ours(f"ours, {what}", "folds", {"model": model, "rows": rows}))
    return arms


def searches(points: int) -> list[measuring.Arm]:
    alphas = ALPHAS[:points]
    peers = [("GridSearchCV", "grid"), ("HalvingRandomSearchCV", "halving")]
    return [
        *(arm(name, "grids_sklearn", way, json.dumps(alphas)) for name, way in peers),
        *(ours(f"ours, {way}", "grid", {"alphas": alphas, "method": way}) for way in ("grid", "asha")),
    ]


class Benchmark(NamedTuple):
    """One of the rivals' benchmarks."""

    arms: Callable[[int], list[measuring.Arm]]
    full: int
    """Its size: trials, seconds, iterations, experiments, tables or points."""
    reduced: int
    columns: Mapping[str, tuple[str, float, int]]
    """What the page shows beside seconds: title to a number of the arm, its unit, and its digits."""


BENCHMARKS = {
    "bookkeeping": Benchmark(bookkeeping, 200, 20, {"CPU seconds": ("cpu_seconds", 1, 0)}),
    "pausing": Benchmark(
        pausing,
        20,
        8,
        {
            "pauses a minute": ("pauses", 1, 0),
            "MB in memory": ("memory_bytes", 1e6, 0),
            "MB more at the end": ("growth_bytes", 1e6, 0),
        },
    ),
    "faults": Benchmark(
        faults, 30, 6, {"workers killed": ("kills", 1, 0), "trials with equal weights": ("equal", 1, 0)}
    ),
    "simple": Benchmark(simple, 100, 30, {"epochs": ("units", 1, 0), "best accuracy": ("accuracy", 1, 3)}),
    "packing": Benchmark(packing, 8, 2, {}),
    "folds": Benchmark(folds, 2, 1, {"accuracy": ("accuracy", 1, 3)}),
    "searches": Benchmark(searches, 12, 9, {"accuracy": ("accuracy", 1, 3)}),
}


def main() -> None:
    parser = measuring.options(__doc__, "rivals", full_rounds=1, reduced_rounds=1)
    parser.set_defaults(size="full")
    parser.add_argument("--only", nargs="+", choices=list(BENCHMARKS), default=list(BENCHMARKS))
    parser.add_argument("--short", dest="size", action="store_const", const="reduced", help="--size reduced")
    asked = parser.parse_args()
    for name in asked.only:
        benchmark = BENCHMARKS[name]
        arms = benchmark.arms(benchmark.full if asked.size == "full" else benchmark.reduced)
        measuring.write(asked.to, asked.size, {name: measuring.take_turns(arms, asked.rounds)})
    if "folds" in asked.only and not AUTOGLUON.exists():
        print(f"SKIPPED: AutoGluon, which is not installed: {AUTOGLUON} is missing")


def show(pages: Pages) -> None:
    """A table for each benchmark."""
    for name, values in pages.read("rivals").items():
        pages.fill("rivals.md", name, table(values, BENCHMARKS[name].columns))


def table(values: Values, columns: Mapping[str, tuple[str, float, int]]) -> str:
    """A line for each arm."""
    rows = []
    for name, rounds in values.items():
        row = [
            name,
            *(measuring.spread(measuring.column(rounds, key)) for key in ("seconds", "training_seconds")),
        ]
        row += [
            f"{median(measuring.column(rounds, key)) / unit:,.{digits}f}"
            for key, unit, digits in columns.values()
        ]
        rows.append(row)
    return measuring.table(["", "seconds", "from the first unit on", *columns], rows)


if __name__ == "__main__":
    main()
