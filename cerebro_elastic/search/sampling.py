"""Random search: distinct points drawn from the space (Bergstra and Bengio 2012)."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from cerebro_elastic.core.model.interfaces import Standing
from cerebro_elastic.core.model.values import HParams
from cerebro_elastic.errors import RecipeError
from cerebro_elastic.recipes import Recipe
from cerebro_elastic.search.constraints import constraint_of
from cerebro_elastic.search.sampler import Sample
from cerebro_elastic.search.space import draw, key

_DRAWS = 10_000
"""Draws for one point, before it is held that there is no further one."""


class RandomSampler:
    """Points drawn by the run's seed, each once. It remembers those that it has drawn, for speed alone: they
    follow from the recipe."""

    def __init__(self, recipe: Recipe, options: Mapping[str, Any] | None = None) -> None:
        if options:
            raise RecipeError(
                f"{recipe.source.where(('search', 'options'))}: the sampler random takes no options; "
                "remove them"
            )
        if not recipe.search.space:
            raise RecipeError(
                f"{recipe.source.where(('search', 'space_fn'))}: a function of an optuna trial needs one of "
                "optuna's samplers: set method or sampler to tpe, say"
            )
        self._recipe = recipe
        self._holds = constraint_of(recipe)
        self._drawn: dict[str, HParams] = {}
        self._all = False

    def sample(self, known: Sequence[Standing]) -> Sample | None:
        self._draw(len(known) + 1)
        taken = {key(standing.hparams) for standing in known}
        return next((Sample(point) for text, point in self._drawn.items() if text not in taken), None)

    def count(self, most: int) -> int:
        """How many points there are, as far as draws tell; at most ``most``."""
        self._draw(most)
        return min(most, len(self._drawn))

    def _draw(self, count: int) -> None:
        while len(self._drawn) < count and not self._all:
            rng = random.Random(f"{self._recipe.seed}/{len(self._drawn)}")
            draws = (self._point(rng) for _ in range(_DRAWS))
            fresh = next((p for p in draws if self._holds(p) and key(p) not in self._drawn), None)
            if fresh is None:
                self._all = True
            else:
                self._drawn[key(fresh)] = fresh

    def _point(self, rng: random.Random) -> HParams:
        return {name: draw(domain, rng) for name, domain in sorted(self._recipe.search.space.items())}
