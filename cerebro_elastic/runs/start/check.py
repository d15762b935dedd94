"""``cerebro check``: whether units of a recipe equal one ordinary fit, told in seconds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from cerebro_elastic.core.model.configs import HParams
from cerebro_elastic.core.model.interfaces import SearchContext
from cerebro_elastic.recipes import Recipe
from cerebro_elastic.runs.exactness.outcome import Checked
from cerebro_elastic.runs.folder import default_home
from cerebro_elastic.runs.from_recipe import make_search
from cerebro_elastic.runs.start.preflight import preflight_and_check
from cerebro_elastic.runs.start.warm_start import written_out

_BATCHES = 3
_CONFIGS = 6
_SECONDS = 600.0


@contextmanager
def check(recipe: Recipe, home: Path | None = None) -> Iterator[tuple[list[HParams], Iterator[Checked]]]:
    """The first configs of the recipe, and what comes of those that stand for all, one after the other.

    The recipe and its data are checked first, as a run does before it starts. Raises what is wrong with them.
    """
    recipe = written_out(recipe, home or default_home())
    first = SearchContext(partitions=recipe.data.partitions, epochs=recipe.epochs, nodes=recipe.nodes.min)
    points = [proposal.hparams for proposal in make_search(recipe).propose(first)]
    url = recipe.data.url
    with TemporaryDirectory(prefix="cerebro-check-") as folder:
        _, asked = preflight_and_check(
            recipe,
            points,
            f"{folder}/data" if url is None else recipe.rooted(url),
            prepare=url is None,
            extent={"batches": _BATCHES, "most": _CONFIGS, "seconds": _SECONDS, "folder": folder},
        )
        with asked:
            yield points, map(Checked.of_json, asked.answers(wait=True))
