"""The modules that a recipe needs, by name: so that they can be imported before anybody asks for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from cerebro_elastic.recipes.parallelism import AUTO
from cerebro_elastic.recipes.schema import Recipe
from cerebro_elastic.registry import is_reference, module_of


def modules_of(recipe: Recipe) -> list[str]:
    """The modules of the task's kind and of the parallelisms, and the user's own. A task of numpy's arrays
    needs no parallelism: all of them import torch."""
    used = () if recipe.parallelism == AUTO else [section.use for section in recipe.parallelism]
    if recipe.task.ARRAYS == "numpy":
        used = ()
    parts = [
        module_of("cerebro.tasks", recipe.task.kind),
        *(module_of("cerebro.parallel", name) for name in used),
    ]
    own = [text.partition(":")[0] for text in _texts(recipe.resolved()) if is_reference(text)]
    return list(dict.fromkeys([*(module for module in parts if module), *own]))


def _texts(value: Any) -> Iterator[str]:
    """All texts in a recipe's values."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from _texts(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _texts(part)
