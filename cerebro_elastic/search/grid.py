"""Grid search: every point of a finite space that the constraints allow."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

from cerebro_elastic.core.model.interfaces import Standing
from cerebro_elastic.core.model.values import HParams
from cerebro_elastic.errors import RecipeError
from cerebro_elastic.recipes import Recipe
from cerebro_elastic.search.constraints import constraint_of
from cerebro_elastic.search.sampler import Sample
from cerebro_elastic.search.space import key, values

_LARGEST = 10**6
"""Points that are looked at, before constraints: a second or two."""


class GridSampler:
    """All points, in an order that follows the names, so that equal recipes number them alike.

    Raises ``RecipeError`` if the space is not finite, if nothing is left of it, or too much.
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
        given = [*recipe.search.enqueue, *(trial.hparams for trial in recipe.search.trials)]
        taken = {key(point) for point in given}
        self._left = [point for point in self._points if key(point) not in taken]
        self._given = len(given)
        if not self._left and not recipe.search.enqueue:
            raise RecipeError(
                f"{recipe.source.where(('search', 'known'))}: every point of the grid is known already; "
                "extend the space, or remove `known`"
            )

    def sample(self, known: Sequence[Standing]) -> Sample | None:
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
