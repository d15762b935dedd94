"""Checks with one batch, before anything starts, that a model accepts a checkpoint from outside the run."""

from __future__ import annotations

from collections.abc import Sequence

from cerebro_elastic.core.history.lineage import born
from cerebro_elastic.core.history.progress import next_units
from cerebro_elastic.core.model.configs import Config, HParams
from cerebro_elastic.core.model.run import Plan, Spec
from cerebro_elastic.data.manifest import Manifest
from cerebro_elastic.errors import RecipeError
from cerebro_elastic.recipes import Recipe
from cerebro_elastic.runs.from_recipe import start_of
from cerebro_elastic.scratch import Scratch
from cerebro_elastic.version import __version__


def check_start(recipe: Recipe, points: Sequence[HParams], data: str, manifest: Manifest) -> None:
    """Begin a unit with the recipe's checkpoint and each of the ``points``, and stop it after a batch.

    Raises ``RecipeError`` for a model that does not take it, ``CheckpointError`` if it cannot be read.
    """
    from cerebro_elastic import checkpoint
    from cerebro_elastic.training.task import Stopped
    from cerebro_elastic.training.unit_runner import UnitRunner

    start = start_of(recipe)
    assert start is not None
    plan = Plan("preflight", len(manifest.train), recipe.epochs, seed=recipe.seed, start=start)
    spec = Spec(plan, recipe.resolved(), "", data, manifest.digest, str(recipe.root), {}, "", __version__)
    with Scratch("check") as scratch:
        runner = UnitRunner(spec, scratch.path)
        runner.use_threads()
        for point in points:
            config = born(Config("c0000", point, parent=start))
            state = checkpoint.load(start.checkpoint)
            job = runner.job(config, next_units(config, plan)[0], state, stop=lambda _done: True)
            try:
                runner.perform(job)
            except Stopped:
                pass  # it has trained a batch
            except Exception as exc:
                raise RecipeError(
                    f"{recipe.source.where(('search', 'start'))}: a model with {dict(point)} does not take "
                    f"the checkpoint {start.checkpoint.url}, which was made with {dict(start.hparams)}: "
                    f"{type(exc).__name__}: {exc}; search only what its state can bear to have changed"
                ) from exc
