"""``cerebro check``: checks in seconds whether units of a recipe equal one ordinary fit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from cerebro_elastic.core.model.configs import HParams
from cerebro_elastic.core.model.interfaces import SearchContext
from cerebro_elastic.recipes import Recipe
from cerebro_elastic.runs.exactness.outcome import CheckedConfig
from cerebro_elastic.runs.folder import default_home
from cerebro_elastic.runs.from_recipe import make_search
from cerebro_elastic.runs.start.preflight import preflight_and_check
from cerebro_elastic.runs.start.warm_start import resolve_warm_start

_BATCHES = 3
_CONFIGS = 6
_SECONDS = 600.0


@contextmanager
def check(
    recipe: Recipe, home: Path | None = None
) -> Iterator[tuple[list[HParams], Iterator[CheckedConfig]]]:
    """Check a recipe and its data, as a run does before it starts, and then some of its configs.

    Yields:
        The first configs of the recipe, and an iterator over the results of those that stand for all.

    Raises:
        CerebroError: The recipe, the task or the data are wrong.
    """
    recipe = resolve_warm_start(recipe, home or default_home())
    first = SearchContext(partitions=recipe.data.partitions, epochs=recipe.epochs, nodes=recipe.nodes.min)
    points = [proposal.hparams for proposal in make_search(recipe).propose(first)]
    url = recipe.data.url
    with TemporaryDirectory(prefix="cerebro-check-") as folder:
        _, process = preflight_and_check(
            recipe,
            points,
            f"{folder}/data" if url is None else recipe.rooted(url),
            prepare=url is None,
            extent={"batches": _BATCHES, "most": _CONFIGS, "seconds": _SECONDS, "folder": folder},
        )
        with process:
            yield points, map(CheckedConfig.of_json, process.answers(wait=True))
