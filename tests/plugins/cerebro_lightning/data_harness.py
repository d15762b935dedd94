"""Units over a user's Dataset or data module, on one rank or several."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch.distributed as dist

from cerebro_elastic.core.model.configs import Config
from cerebro_elastic.core.model.run import Plan, Spec
from cerebro_elastic.core.model.units import Strategy, Unit
from cerebro_elastic.data.reading import worker_processes as batch_workers
from cerebro_elastic.recipes import Recipe, load_recipe
from cerebro_elastic.runs.start.preflight import check
from cerebro_elastic.system.version import __version__
from cerebro_elastic.training.parallel.collectives import ranks
from cerebro_elastic.training.task import UnitJob, UnitResult
from cerebro_elastic.training.unit_runner import UnitRunner

FOLDER = Path(__file__).parent / "zoos"
ORDERS = ((1, 0, 2), (2, 1, 0))
SEED = 5
SINGLE = Strategy()
DDP = Strategy("ddp", 2)


def recipe_of(
    data: Mapping[str, Any], module: str = "Net", parallelism: str = "single", **space: Any
) -> Recipe:
    return load_recipe(
        {
            "name": "data",
            "seed": SEED,
            "epochs": len(ORDERS),
            "task": {"kind": "lightning", "module": f"data_zoo:{module}"},
            "data": {"partitions": 3, **data},
            "search": {"space": space or {"lr": [0.1]}},
            "objective": {"metric": "train_loss"},
            "parallelism": parallelism,
            "node": {"ranks": 1 if parallelism == "single" else 2},
        },
        root=FOLDER,
    )


def runner_of(recipe: Recipe, folder: Path, point: Mapping[str, Any]) -> UnitRunner:
    checked = check(recipe, [point], str(folder / "data"), prepare=True)
    plan = Plan("data", checked.partitions, recipe.epochs, seed=recipe.seed)
    spec = Spec(
        plan, recipe.resolved(), "", checked.data, checked.data_digest, str(FOLDER), {}, "", __version__
    )
    return UnitRunner(spec, folder / "cache", "cpu")


def units(
    runner: UnitRunner,
    point: Mapping[str, Any],
    orders: Sequence[Sequence[int]] = ORDERS,
    strategy: Strategy = SINGLE,
) -> Iterator[tuple[UnitJob, UnitResult]]:
    """A config's units, one after the other; on several ranks each of them calls it."""
    state = None
    for epoch, order in enumerate(orders):
        for place, partition in enumerate(order):
            config = Config("c0", dict(point), epoch=epoch, visited=tuple(order[:place]))
            job = replace(runner.job(config, Unit("c0", epoch, partition), state), strategy=strategy)
            result = runner.perform(job)
            state = of_rank_zero(result.state)
            yield job, result


def of_rank_zero(state: Any) -> Any:
    states = [state]
    if ranks()[1] > 1:
        dist.broadcast_object_list(states)
    return states[0]


def quiet(workers: int, parallelism: str = "single", module: str = "Quiet") -> Recipe:
    """A recipe whose batches leave a rank without a row now and then: of 46 rows in threes."""
    data = {"datamodule": f"data_zoo:{module}", "args": {"batch_size": 3, "workers": workers}}
    return recipe_of(data, "QuietNet", parallelism)


def by_ranks(folder: str, workers: int) -> Any:
    """On each rank: weights and metrics that the last unit leaves."""
    folder_of_rank = Path(folder, str(ranks()[0]))
    runner = runner_of(quiet(workers, "ddp"), folder_of_rank, {"lr": 0.1})
    *_, (_, last) = units(runner, {"lr": 0.1}, strategy=DDP)
    batch_workers.end_idle()
    weights = {name: value.numpy() for name, value in last.state["state_dict"].items()}
    return weights, last.metrics
