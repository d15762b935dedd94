"""Random search: distinct points drawn from the space (Bergstra and Bengio 2012)."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence

from cerebro_elastic.core.ports import Outlook, Proposal, Search
from cerebro_elastic.core.values import HParams
from cerebro_elastic.errors import RecipeError
from cerebro_elastic.recipes import Recipe
from cerebro_elastic.search.constraints import constraint_of
from cerebro_elastic.search.space import draw

_DRAWS_PER_CONFIG = 1000
"""Drawing all n points of a finite space takes about n ln n draws: far fewer than this times n."""


class RandomSearch(Search):
    """``num`` distinct points at once, drawn by the run's seed.

    Raises ``RecipeError`` if so many cannot be found, or if they are more than the limit.
    """

    def __init__(self, recipe: Recipe) -> None:
        num, limit = recipe.search.num, recipe.limits.configs
        assert num is not None
        if num > limit:
            raise RecipeError(
                f"{recipe.source.where(('search', 'num'))}: num is {num}, more than {limit} configs "
                "(limits.configs); draw fewer or raise the limit"
            )
        self._points = _distinct(recipe, num)
        if len(self._points) < num:
            draws = num * _DRAWS_PER_CONFIG
            raise RecipeError(
                f"{recipe.source.where(('search', 'num'))}: num is {num}, but {draws} draws found only "
                f"{len(self._points)} distinct points that the constraints allow; ask for fewer"
            )

    def propose(self, outlook: Outlook) -> Sequence[Proposal]:
        """The points that are no configs yet."""
        return [Proposal(point) for point in self._points[len(outlook.proposed) :]]


def _distinct(recipe: Recipe, num: int) -> list[HParams]:
    """At most ``num`` distinct points, in the order drawn."""
    holds, rng = constraint_of(recipe), random.Random(recipe.seed)
    found: dict[str, HParams] = {}
    for _ in range(num * _DRAWS_PER_CONFIG):
        if len(found) == num:
            break
        point = {name: draw(domain, rng) for name, domain in sorted(recipe.search.space.items())}
        if holds(point):
            found.setdefault(json.dumps(point), point)
    return list(found.values())
