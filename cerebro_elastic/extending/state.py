"""Code that tasks of torch share. The task of functions, from which others derive. The state that hops:
optimizers by names, a model's values and structure, the graph of objects; generators, optimizers' options,
and a check that parameters are finite."""

from cerebro_elastic.hop.checkpoint.tree import flatten as flatten
from cerebro_elastic.hop.checkpoint.tree import unflatten as unflatten
from cerebro_elastic.hop.equality import values_equal as values_equal
from cerebro_elastic.hop.generators import rng as rng
from cerebro_elastic.hop.instances import made_by_compiler as made_by_compiler
from cerebro_elastic.hop.objects.decoder import Decoder as Decoder
from cerebro_elastic.hop.objects.encoder import Encoder as Encoder
from cerebro_elastic.hop.objects.kinds import NotSerializable as NotSerializable
from cerebro_elastic.hop.objects.kinds import Tree as Tree
from cerebro_elastic.hop.objects.model_graph import ModuleRoot as ModuleRoot
from cerebro_elastic.hop.objects.model_graph import known_of_model as known_of_model
from cerebro_elastic.hop.objects.model_graph import optimizer_root as optimizer_root
from cerebro_elastic.hop.objects.object_graph import GraphRoot as GraphRoot
from cerebro_elastic.hop.objects.object_graph import ObjectGraph as ObjectGraph
from cerebro_elastic.hop.objects.object_index import ObjectIndex as ObjectIndex
from cerebro_elastic.hop.objects.tensor_kinds import cloned as cloned
from cerebro_elastic.hop.optimizer_state import OptimizerOptions as OptimizerOptions
from cerebro_elastic.hop.optimizer_state import check_groups as check_groups
from cerebro_elastic.hop.optimizer_state import constructor_options as constructor_options
from cerebro_elastic.hop.optimizer_state import override_options as override_options
from cerebro_elastic.hop.optimizer_state import take as take
from cerebro_elastic.hop.optimizer_state import to_names as to_names
from cerebro_elastic.hop.structure import ModelStructure as ModelStructure
from cerebro_elastic.hop.structure import finalize_lazy_modules as finalize_lazy_modules
from cerebro_elastic.hop.structure import rebuild as rebuild
from cerebro_elastic.hop.structure import without_uninitialized as without_uninitialized
from cerebro_elastic.registry import is_users as is_users
from cerebro_elastic.system.torch_internals import MODULE_ATTRIBUTES as MODULE_ATTRIBUTES
from cerebro_elastic.system.torch_internals import buffers_of as buffers_of
from cerebro_elastic.system.torch_internals import modules_of as modules_of
from cerebro_elastic.system.torch_internals import non_persistent_buffers_of as non_persistent_buffers_of
from cerebro_elastic.system.torch_internals import parameters_of as parameters_of
from cerebro_elastic.training.functions import FunctionTask as FunctionTask
from cerebro_elastic.training.functions import not_carried as not_carried
from cerebro_elastic.training.metrics import not_finite as not_finite
from cerebro_elastic.training.parallel.construct import hand_over as hand_over
from cerebro_elastic.training.parallel.construct import load_values as load_values
from cerebro_elastic.training.parallel.construct import share_bases as share_bases
from cerebro_elastic.training.parallel.construct import unshare_bases as unshare_bases
from cerebro_elastic.training.parallel.construct import untrained as untrained
