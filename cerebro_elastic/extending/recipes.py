"""The recipe, and the sections that a plugin's own derive from. Imports neither torch nor Lightning."""

from cerebro_elastic.recipes.data import named_columns as named_columns
from cerebro_elastic.recipes.fields import Arguments as Arguments
from cerebro_elastic.recipes.fields import Callback as Callback
from cerebro_elastic.recipes.fields import Reference as Reference
from cerebro_elastic.recipes.fields import Section as Section
from cerebro_elastic.recipes.fields import Url as Url
from cerebro_elastic.recipes.parallelism import ParallelismSection as ParallelismSection
from cerebro_elastic.recipes.schema import Recipe as Recipe
from cerebro_elastic.recipes.search import Objective as Objective
from cerebro_elastic.recipes.search import SearchSection as SearchSection
from cerebro_elastic.recipes.source import read_yaml as read_yaml
from cerebro_elastic.recipes.tasks import TaskSection as TaskSection
from cerebro_elastic.recipes.tasks import TorchSection as TorchSection
from cerebro_elastic.registry import folder_named as folder_named
from cerebro_elastic.registry import import_object as import_object
from cerebro_elastic.registry import is_reference as is_reference
from cerebro_elastic.registry import named_class as named_class
from cerebro_elastic.registry import place_in as place_in
