"""The methods that train every config to its end. They differ in how they choose the next point."""

from __future__ import annotations

from cerebro_elastic.errors import RecipeError
from cerebro_elastic.recipes import Recipe
from cerebro_elastic.recipes.search import AshaSearch, MedianSearch, SampledSearch
from cerebro_elastic.registry import load
from cerebro_elastic.search.procedure import Procedure
from cerebro_elastic.search.sampling import GridSampler, RandomSampler, Sampler


def grid(recipe: Recipe) -> Procedure:
    """Every point of a finite space."""
    return Procedure(recipe, GridSampler(recipe), eager=True)


def random(recipe: Recipe) -> Procedure:
    """``num`` distinct points, drawn by the run's seed.

    Raises:
        RecipeError: The space has fewer points, or ``num`` is above ``limits.configs``.
    """
    num, limit = recipe.search.num, recipe.limits.configs
    assert num is not None
    if num > limit:
        raise RecipeError(
            f"{recipe.source.where(('search', 'num'))}: num is {num}, more than {limit} configs "
            "(limits.configs); draw fewer or raise the limit"
        )
    sampler = RandomSampler(recipe)
    distinct = sampler.count(num)
    if distinct < num:
        raise RecipeError(
            f"{recipe.source.where(('search', 'num'))}: num is {num}, but many draws found only {distinct} "
            "distinct points that the constraints allow; ask for fewer"
        )
    return Procedure(recipe, sampler, eager=True)


def sampled(recipe: Recipe) -> Procedure:
    """Points by the sampler of the method's name."""
    section = recipe.search
    assert isinstance(section, SampledSearch)
    return Procedure(recipe, make_sampler(recipe, section.method, section))


def make_sampler(recipe: Recipe, name: str, section: AshaSearch | MedianSearch | SampledSearch) -> Sampler:
    """The sampler ``name`` with the section's options."""
    sampler: Sampler = load("cerebro.samplers", name)(recipe, section.options)
    return sampler
