"""What a recipe allows units to be trained by."""

from __future__ import annotations

from collections.abc import Iterator

from cerebro_elastic import registry
from cerebro_elastic.core.values import Choice
from cerebro_elastic.recipes import Recipe
from cerebro_elastic.recipes.parallelism import AUTO, GROUP, nodes_of, ranks_of

_OPTIONS = {"deepspeed": {"stage": 2}}
"""What ``auto`` gives to those that need options. (What ZeRO's stage 3 saves, fsdp saves as well.)"""


def choices(recipe: Recipe) -> tuple[Choice, ...]:
    """Those of the plan, in the recipe's order."""
    gang, ranks = recipe.gang, recipe.node.ranks
    if recipe.parallelism == AUTO:
        return (Choice(), *_all(gang, ranks))
    return tuple(
        Choice(
            section.use, ranks_of(section, gang, ranks), nodes_of(section, gang, ranks), dict(section.options)
        )
        for section in recipe.parallelism
    )


def _all(gang: int, ranks: int) -> Iterator[Choice]:
    """Each parallelism that is installed on all ranks of one node, of two, ... of a gang."""
    for nodes in range(1, gang + 1):
        if nodes * ranks > 1:
            for name in _installed():
                yield Choice(name, nodes * ranks, nodes, _OPTIONS.get(name, {}))


def _installed() -> list[str]:
    """The built-in ones in their order, then others', by name."""
    built_in = registry.BUILT_IN[GROUP]
    others = [name for name in registry.names(GROUP) if name not in built_in]
    usable = [name for name in built_in if not registry.missing(GROUP, name)]
    return [name for name in [*usable, *others] if name != "single"]
