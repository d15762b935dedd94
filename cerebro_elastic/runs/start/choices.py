"""What a recipe allows units to be trained by."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cerebro_elastic import registry
from cerebro_elastic.core.model.values import Choice
from cerebro_elastic.recipes import Recipe
from cerebro_elastic.recipes.parallelism import AUTO, GROUP, ParallelismSection, nodes_of, ranks_of

_OPTIONS = {"deepspeed": {"stage": 2}}
"""What ``auto`` gives to those that need options. (What ZeRO's stage 3 saves, fsdp saves as well.)"""


def choices(recipe: Recipe) -> tuple[Choice, ...]:
    """Those of the plan, in the recipe's order."""
    gang, ranks = recipe.gang, recipe.node.ranks
    if recipe.parallelism == AUTO:
        return (Choice(), *_all(gang, ranks))
    return tuple(
        Choice(
            section.use,
            ranks_of(section, gang, ranks),
            nodes_of(section, gang, ranks),
            _options(section, recipe.root),
        )
        for section in recipe.parallelism
    )


def _options(section: ParallelismSection, root: Path) -> dict[str, Any]:
    """The options; the file of DeepSpeed's JSON is found from the recipe's folder."""
    options = dict(section.options)
    if section.use == "deepspeed" and isinstance(file := options.get("config"), str):
        options["config"] = str(root / file)
    return options


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
