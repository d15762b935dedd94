"""The recipe, and the sections that a plugin's own derive from. Imports neither torch nor Lightning."""

from __future__ import annotations

from cerebro_elastic.recipes.data import named_columns
from cerebro_elastic.recipes.fields import Arguments, Callback, Reference, Section
from cerebro_elastic.recipes.parallelism import ParallelismSection
from cerebro_elastic.recipes.schema import Recipe
from cerebro_elastic.recipes.search import Objective, SearchSection
from cerebro_elastic.recipes.tasks import TaskSection
from cerebro_elastic.registry import import_object, is_reference

__all__ = [
    "Arguments",
    "Callback",
    "Objective",
    "ParallelismSection",
    "Recipe",
    "Reference",
    "SearchSection",
    "Section",
    "TaskSection",
    "import_object",
    "is_reference",
    "named_columns",
]
