"""Recipes: one YAML file describes a whole run and is checked before anything starts."""

from cerebro_elastic.recipes.data import Data as Data
from cerebro_elastic.recipes.fields import NodeRange as NodeRange
from cerebro_elastic.recipes.loading import load_recipe as load_recipe
from cerebro_elastic.recipes.loading import load_recipe_of as load_recipe_of
from cerebro_elastic.recipes.schema import Limits as Limits
from cerebro_elastic.recipes.schema import NodeSection as NodeSection
from cerebro_elastic.recipes.schema import Recipe as Recipe
from cerebro_elastic.recipes.schema import differences as differences
from cerebro_elastic.recipes.search import Domain as Domain
from cerebro_elastic.recipes.search import Objective as Objective
from cerebro_elastic.recipes.search import SearchSection as SearchSection
from cerebro_elastic.recipes.tasks import TaskSection as TaskSection
from cerebro_elastic.recipes.tasks import TorchSection as TorchSection
