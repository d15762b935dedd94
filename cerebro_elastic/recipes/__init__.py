"""Recipes: one YAML file describes a whole run and is checked before anything starts."""

from cerebro_elastic.recipes.data import Data
from cerebro_elastic.recipes.fields import NodeRange
from cerebro_elastic.recipes.loading import load_recipe
from cerebro_elastic.recipes.schema import Limits, NodeSection, Recipe, differences
from cerebro_elastic.recipes.search import Domain, Objective, SearchSection
from cerebro_elastic.recipes.tasks import TaskSection, TorchSection

__all__ = [
    "Data",
    "Domain",
    "Limits",
    "NodeRange",
    "NodeSection",
    "Objective",
    "Recipe",
    "SearchSection",
    "TaskSection",
    "TorchSection",
    "differences",
    "load_recipe",
]
