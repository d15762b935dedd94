"""What a unit of another framework takes beyond the framework's own training of the same batches.

    python benchmarks/frameworks.py [--units 24] [--only jax keras-jax keras-torch sklearn]

For each framework the recipe ``digits_<framework>`` is prepared in a temporary folder. Its first config is
trained unit by unit in one process, as a rank does it: load the state, train, stage and save the new state.
Beside it the framework alone trains on the same batches with one model in one go. Both are timed from the
second epoch on, when all shapes are compiled. Printed are medians in milliseconds. Needs an idle machine.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from cerebro_elastic import checkpoint
from cerebro_elastic.core.model.configs import Config
from cerebro_elastic.core.model.interfaces import SearchContext
from cerebro_elastic.core.model.run import Spec
from cerebro_elastic.core.model.units import Unit
from cerebro_elastic.data.manifest import read_manifest
from cerebro_elastic.recipes import load_recipe
from cerebro_elastic.registry import import_object
from cerebro_elastic.runs.from_recipe import make_search, plan_of
from cerebro_elastic.runs.start.prepare_data import prepare_recipe
from cerebro_elastic.training import job_batches
from cerebro_elastic.training.task import UnitJob
from cerebro_elastic.training.unit_runner import UnitRunner

RECIPES = Path(__file__).parents[1] / "recipes"
FRAMEWORKS = ("jax", "keras-jax", "keras-torch", "sklearn")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--units", type=int, default=24)
    parser.add_argument("--only", nargs="+", choices=FRAMEWORKS, default=FRAMEWORKS)
    parser.add_argument("--here", choices=FRAMEWORKS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.here:
        measure(options.here, options.units)
        return
    print("framework    " + " ".join(f"{name:>8s}" for name in ("alone", "train", "beyond", "load", "save")))
    sys.stdout.flush()
    for framework in options.only:  # each in a process of its own, for Keras has one backend in a process
        env = {**os.environ, "KERAS_BACKEND": framework.partition("-")[2] or "jax", "OMP_NUM_THREADS": "1"}
        command = [sys.executable, __file__, "--here", framework, "--units", str(options.units)]
        subprocess.run(command, env=env, check=True)


def measure(framework: str, units: int) -> None:
    name, _, backend = framework.partition("-")
    recipe = load_recipe(RECIPES / f"digits_{name}.yaml")
    if backend:
        task = {**recipe.resolved()["task"], "backend": backend}
        recipe = load_recipe({**recipe.resolved(), "task": task}, root=recipe.root)
    with tempfile.TemporaryDirectory(prefix="cerebro-frameworks-") as folder:
        url = f"{folder}/data"
        prepare_recipe(recipe, url)
        manifest = read_manifest(url)
        plan = plan_of(recipe, name, len(manifest.train), len(manifest.valid))
        spec = Spec(plan, recipe.resolved(), "", url, manifest.digest, str(recipe.root), {}, folder, "0")
        runner = UnitRunner(spec, Path(folder) / "cache", "cpu")
        runner.use_threads()
        point = make_search(recipe).propose(SearchContext())[0].hparams
        config = Config("c0000", point)
        load, train, save = zip(*unit_seconds(runner, config, units, plan.partitions, folder), strict=True)
        epoch = [job(runner, config, 0, partition, None) for partition in range(plan.partitions)]
        batches = [list(job_batches.training_batches(one)) for one in epoch]
        alone = ALONE[name](recipe, dict(point), batches, units // plan.partitions)
    warm = slice(plan.partitions, None)
    medians = [statistics.median(seconds[warm]) for seconds in (load, train, save)]
    own = statistics.median(alone[1:]) / plan.partitions
    figures = [own, medians[1], medians[1] - own, medians[0], medians[2]]
    print(f"{framework:12s} " + " ".join(f"{1e3 * seconds:8.1f}" for seconds in figures), flush=True)


def job(runner: UnitRunner, config: Config, epoch: int, partition: int, state: Any) -> UnitJob:
    """Each unit is in the middle of its epoch: none validates."""
    unit = Unit(config.id, epoch, partition)
    return runner.job(config, unit, state)


def unit_seconds(
    runner: UnitRunner, config: Config, units: int, partitions: int, folder: str
) -> Iterator[tuple[float, float, float]]:
    """Seconds of loading, training and saving, for each unit."""
    ref = None
    for number in range(units):
        epoch, partition = divmod(number, partitions)
        began = time.perf_counter()
        state = checkpoint.load(ref) if ref is not None else None
        loaded = time.perf_counter()
        result = runner.perform(job(runner, config, epoch, partition, state))
        trained = time.perf_counter()
        ref = checkpoint.save(result.state, f"{folder}/checkpoints/{number}")
        yield loaded - began, trained - loaded, time.perf_counter() - trained


Alone = Callable[[Any, dict[str, Any], Sequence[Sequence[Any]], int], list[float]]
"""The framework alone: seconds of each epoch over the batches."""


def sklearn_alone(
    recipe: Any, point: dict[str, Any], batches: Sequence[Sequence[Any]], epochs: int
) -> list[float]:
    import numpy as np

    estimator = import_object(recipe.task.estimator, recipe.root)(**point)
    (_, scaler), (_, classifier) = estimator.steps
    seconds = []
    for _ in range(epochs):
        began = time.perf_counter()
        for x, y in (batch for unit in batches for batch in unit):
            rows = scaler.partial_fit(x.reshape(len(x), -1)).transform(x.reshape(len(x), -1))
            classifier.partial_fit(rows, y, classes=np.arange(recipe.task.classes))
        seconds.append(time.perf_counter() - began)
    return seconds


def jax_alone(
    recipe: Any, point: dict[str, Any], batches: Sequence[Sequence[Any]], epochs: int
) -> list[float]:
    import jax

    init, step = (import_object(name, recipe.root) for name in (recipe.task.init_fn, recipe.task.step_fn))
    state, compiled = init(jax.random.key(0), **point), jax.jit(step, donate_argnums=0)
    seconds = []
    for _ in range(epochs):
        began = time.perf_counter()
        for batch in (batch for unit in batches for batch in unit):
            state, _ = compiled(state, batch, point["lr"])
        jax.block_until_ready(state)
        seconds.append(time.perf_counter() - began)
    return seconds


def keras_alone(
    recipe: Any, point: dict[str, Any], batches: Sequence[Sequence[Any]], epochs: int
) -> list[float]:
    model = import_object(recipe.task.model_fn, recipe.root)(**point, steps=1000)
    seconds = []
    for _ in range(epochs):
        began = time.perf_counter()
        model.fit((batch for unit in batches for batch in unit), verbose=0, shuffle=False)
        seconds.append(time.perf_counter() - began)
    return seconds


ALONE: dict[str, Alone] = {"jax": jax_alone, "keras": keras_alone, "sklearn": sklearn_alone}


if __name__ == "__main__":
    main()
