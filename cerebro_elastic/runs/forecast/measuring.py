"""A recipe's units profiled on this machine, before its run.

``python -m cerebro_elastic.runs.forecast.measuring`` does it in its own process, like the preflight.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cerebro_elastic.core.history.lineage import born
from cerebro_elastic.core.model.codec import decode, encode
from cerebro_elastic.core.model.configs import Config, HParams
from cerebro_elastic.core.model.run import Plan, Spec
from cerebro_elastic.data.manifest import read_manifest
from cerebro_elastic.recipes import Recipe, load_recipe
from cerebro_elastic.runs.from_recipe import batches_in, spec_without_run, start_of, strategies
from cerebro_elastic.runs.start.preflight import check
from cerebro_elastic.system.files import in_a_hurry
from cerebro_elastic.system.process import Scratch
from cerebro_elastic.system.subprocess_call import call, serve
from cerebro_elastic.training.unit_runner import StrategyCost


@dataclass(frozen=True, slots=True)
class RecipeMeasurement:
    """The size of a recipe's data, and the profiles of its units on this machine."""

    rows: int
    """Rows to train on."""
    valid: int
    """Rows to validate on."""
    bytes: int | None
    """Bytes of the training rows; ``None`` if they stay in a user's dataset."""
    batch_size: int
    """Rows of a batch, unless a hyper-parameter has the number."""
    profiles: tuple[StrategyCost, ...] = ()
    """Seconds, bytes or the refusal of a config's units, by strategy."""


def measure(
    recipe: Recipe, points: Mapping[str, HParams], profiled: Sequence[str], beside: int = 1
) -> RecipeMeasurement:
    """Check a recipe as before the start of a run, then profile its units.

    Each strategy of the recipe is profiled with each config of ``profiled``: alone and, where units share
    cores, with up to ``beside`` units at once. A strategy that refuses one config is not profiled with the
    others.

    Args:
        recipe: The recipe, with its warm start resolved.
        points: Hyper-parameters by config; all are checked.
        profiled: The configs whose units are profiled.
        beside: The most units that are trained on this machine at once.

    Raises:
        CerebroError: The recipe, the task or the data are wrong.
    """
    with Scratch("plan") as scratch:
        request = {
            "recipe": recipe.resolved(),
            "root": str(recipe.root),
            "points": {name: dict(point) for name, point in points.items()},
            "profiled": list(profiled),
            "beside": min(beside, max(1, (os.cpu_count() or 1) // recipe.node.threads)),
            "folder": str(scratch.path),
        }
        return decode(call(__name__, "the measurement of units", request)["measurement"], RecipeMeasurement)


def _measure_here(request: Mapping[str, Any]) -> dict[str, str]:
    """``measure``, in this process."""
    recipe = load_recipe(request["recipe"], root=request["root"])
    points: Mapping[str, HParams] = request["points"]
    folder = Path(request["folder"])
    url = recipe.data.url
    data = str(folder / "data") if url is None else recipe.rooted(url)
    with in_a_hurry():
        checked = check(recipe, list(points.values()), data, prepare=url is None)
    data = checked.data
    manifest = read_manifest(data)
    plan = Plan(
        "plan",
        checked.partitions,
        recipe.epochs,
        seed=recipe.seed,
        strategies=strategies(recipe),
        start=start_of(recipe),
    )
    spec = spec_without_run(recipe, plan, data, checked.data_digest)
    # A hop is timed at the future place of checkpoints.
    storage = folder / "states" if recipe.checkpoints is None else recipe.rooted(recipe.checkpoints)
    configs = [born(Config(name, points[name], parent=spec.plan.start)) for name in request["profiled"]]
    states = f"{storage}/plan-{uuid.uuid4().hex}"  # other machines may measure at the same place
    profiles = _profiles(spec, configs, folder / "cache", states, request["beside"])
    measurement = RecipeMeasurement(
        rows=sum(manifest.rows),
        valid=sum(partition.rows for partition in manifest.valid)
        or sum(manifest.rows) // (recipe.folds or 1),
        bytes=manifest.training_bytes,
        batch_size=batches_in(recipe, manifest, {})[0],
        profiles=tuple(profiles),
    )
    return {"measurement": encode(measurement)}


def _profiles(
    spec: Spec, configs: Sequence[Config], cache: Path, scratch: str, beside: int
) -> Iterator[StrategyCost]:
    from cerebro_elastic.worker.offline.local_profiler import LocalProfiler

    with LocalProfiler(spec, cache, scratch, beside) as profiler:
        for strategy in spec.plan.strategies:
            for config in configs:
                alone = profiler(config, strategy)
                yield alone
                if alone.refusal is not None:
                    break
                if (side_by_side := profiler.side_by_side(config, strategy)) is not None:
                    yield side_by_side


if __name__ == "__main__":
    serve(_measure_here)
