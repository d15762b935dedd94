"""The interface of samplers, which choose the points of new configs; random and grid sampling."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from cerebro_elastic.core.model.configs import HParams
from cerebro_elastic.core.model.interfaces import ConfigView
from cerebro_elastic.errors import RecipeError
from cerebro_elastic.recipes import Recipe
from cerebro_elastic.search.constraints import constraint_of
from cerebro_elastic.search.space import draw, key, values


@dataclass(frozen=True, slots=True)
class Sample:
    """A point of the space."""

    hparams: HParams
    """Its hyper-parameters by name."""
    notes: Mapping[str, Any] = field(default_factory=dict)
    """JSON values that the sampler finds again in the ``origin`` of the point's config."""


class Sampler(Protocol):
    """Names the points of a space, one at a time. The next point depends on the arguments alone."""

    def sample(self, known: Sequence[ConfigView]) -> Sample | None:
        """A new point.

        Args:
            known: The search's configs, in the order in which they were proposed.

        Returns:
            A point that none of them has, or ``None`` if the space has no other.
        """


_DRAWS = 10_000
"""Draws for one point before the space counts as exhausted."""


class RandomSampler:
    """Points drawn by the run's seed, each once. The drawn points are kept for speed; they follow from the
    recipe."""

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

    def sample(self, known: Sequence[ConfigView]) -> Sample | None:
        self._draw(len(known) + 1)
        taken = {key(view.hparams) for view in known}
        return next((Sample(point) for text, point in self._drawn.items() if text not in taken), None)

    def count(self, most: int) -> int:
        """The number of distinct points, as far as draws find them; at most ``most``."""
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


_LARGEST = 10**6
"""The largest grid before constraints. To enumerate it takes a second or two."""


class GridSampler:
    """All points, ordered by the names of the hyper-parameters, so that equal recipes number them alike.

    Raises:
        RecipeError: The space is not finite, no point is left of it, or too many are.
    """

    def __init__(self, recipe: Recipe) -> None:
        holds, limit = constraint_of(recipe), recipe.limits.configs
        self._points = list(itertools.islice(filter(holds, _points(recipe)), limit + 1))
        if not self._points:
            raise RecipeError(
                f"{recipe.source.where(('search', 'constraints'))}: no point of the space satisfies all "
                "constraints; relax one"
            )
        if len(self._points) > limit:
            raise RecipeError(
                f"{recipe.source.where(('search', 'space'))}: the grid has more than {limit} configs "
                "(limits.configs); list fewer values, add constraints, or raise the limit"
            )
        given = [*recipe.search.enqueue, *(config.hparams for config in recipe.search.known_configs)]
        taken = {key(point) for point in given}
        self._left = [point for point in self._points if key(point) not in taken]
        self._given = len(given)
        if not self._left and not recipe.search.enqueue:
            raise RecipeError(
                f"{recipe.source.where(('search', 'known'))}: every point of the grid is known already; "
                "extend the space, or remove `known`"
            )

    def sample(self, known: Sequence[ConfigView]) -> Sample | None:
        left = self._left[len(known) - self._given :]
        return Sample(left[0]) if left else None


def _points(recipe: Recipe) -> Iterator[HParams]:
    if not recipe.search.space:
        raise RecipeError(
            f"{recipe.source.where(('search', 'space_fn'))}: a grid needs a `space`, not a function; use "
            "method: random or tpe"
        )
    names = sorted(recipe.search.space)
    axes = []
    for name in names:
        axis = values(recipe.search.space[name])
        if axis is None:
            raise RecipeError(
                f"{recipe.source.where(('search', 'space', name))}: {name!r} is continuous, a grid needs a "
                "list or int: list its values, or use method: random with num"
            )
        axes.append(axis)
    size = math.prod(len(axis) for axis in axes)
    if size > _LARGEST:
        raise RecipeError(
            f"{recipe.source.where(('search', 'space'))}: the grid has more than {_LARGEST:,} points, too "
            "many to go through; list fewer values, or use method: random with num"
        )
    return (dict(zip(names, point, strict=True)) for point in itertools.product(*axes))
