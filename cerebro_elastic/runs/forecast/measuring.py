"""A recipe's units measured on this machine, before there is a run.

``python -m cerebro_elastic.runs.forecast.measuring`` does it in a process of its own, as the preflight is one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cerebro_elastic.core.history.lineage import born
from cerebro_elastic.core.model.codec import decode, encode
from cerebro_elastic.core.model.configs import Config, HParams
from cerebro_elastic.core.model.run import Plan, Spec
from cerebro_elastic.data.manifest import PartitionFiles, read_manifest
from cerebro_elastic.files import in_a_hurry
from cerebro_elastic.recipes import Recipe, load_recipe
from cerebro_elastic.runs.from_recipe import start_of, strategies
from cerebro_elastic.runs.start.preflight import check
from cerebro_elastic.runs.subprocess_call import ask, serve
from cerebro_elastic.scratch import Scratch
from cerebro_elastic.training.measure import Measure
from cerebro_elastic.version import __version__


@dataclass(frozen=True, slots=True)
class Measured:
    """What was found: rows to train on and to validate on, the bytes of the former, and the ``profiles``."""

    rows: int
    valid: int
    bytes: int
    profiles: tuple[Measure, ...] = ()


def measure(
    recipe: Recipe, points: Mapping[str, HParams], tried: tuple[str, ...], beside: int = 1
) -> Measured:
    """Check the recipe, whose warm start is written out, with all ``points`` (hyper-parameters by config), as
    a run does before it starts; then try each of its choices with the configs that are ``tried``, alone and,
    where units share cores, up to ``beside`` at once. A choice that is refused for one is not tried with the
    others. Raises what is wrong."""
    with Scratch("plan") as scratch:
        request = {
            "recipe": recipe.resolved(),
            "root": str(recipe.root),
            "points": {name: dict(point) for name, point in points.items()},
            "tried": list(tried),
            "beside": min(beside, max(1, (os.cpu_count() or 1) // recipe.node.threads)),
            "folder": str(scratch.path),
        }
        return decode(ask(__name__, "the measurement of units", request)["measured"], Measured)


def _asked(request: Mapping[str, Any]) -> dict[str, str]:
    recipe = load_recipe(request["recipe"], root=request["root"])
    points: Mapping[str, HParams] = request["points"]
    folder = Path(request["folder"])
    url = recipe.data.url
    data = str(folder / "data") if url is None else recipe.rooted(url)
    with in_a_hurry():
        found = check(recipe, list(points.values()), data, prepare=url is None)
    manifest = read_manifest(data)
    spec = Spec(
        plan=Plan(
            "plan",
            found.partitions,
            recipe.epochs,
            seed=recipe.seed,
            strategies=strategies(recipe),
            start=start_of(recipe),
        ),
        recipe=recipe.resolved(),
        recipe_digest="",
        data=data,
        data_digest=found.data_digest,
        root=str(recipe.root),
        code={},
        storage="",
        version=__version__,
    )
    # A hop is timed where checkpoints will go.
    where = folder / "states" if recipe.checkpoints is None else recipe.rooted(recipe.checkpoints)
    configs = [born(Config(name, points[name], parent=spec.plan.start)) for name in request["tried"]]
    measured = Measured(
        rows=sum(manifest.rows),
        valid=sum(part.rows for part in manifest.valid),
        bytes=sum(map(_bytes, manifest.train)),
        profiles=tuple(
            _trials(spec, configs, folder / "cache", f"{where}/plan-{os.getpid()}", request["beside"])
        ),
    )
    return {"measured": encode(measured)}


def _trials(spec: Spec, configs: list[Config], cache: Path, scratch: str, beside: int) -> Iterator[Measure]:
    from cerebro_elastic.worker.local_profile import LocalProfile

    with LocalProfile(spec, cache, scratch, beside) as alone:
        for strategy in spec.plan.strategies:
            for config in configs:
                told = alone(config, strategy)
                yield told
                if told.refusal is not None:
                    break
                if (several := alone.side_by_side(config, strategy)) is not None:
                    yield several


def _bytes(partition: PartitionFiles) -> int:
    return sum(file.bytes for file in partition.files)


if __name__ == "__main__":
    serve(_asked)
