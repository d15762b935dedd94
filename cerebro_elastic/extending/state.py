"""The state that hops: optimizers by names, a model's values and structure, and the graph of objects."""

from __future__ import annotations

from cerebro_elastic.checkpoint.tree import flatten, unflatten
from cerebro_elastic.registry import is_users
from cerebro_elastic.system.torch_internals import (
    MODULE_ATTRIBUTES,
    buffers_of,
    made_by_compiler,
    modules_of,
    non_persistent_buffers_of,
    parameters_of,
)
from cerebro_elastic.training.equality import values_equal
from cerebro_elastic.training.objects.decoder import Decoder
from cerebro_elastic.training.objects.encoder import Encoder
from cerebro_elastic.training.objects.kinds import NotSerializable, Tree
from cerebro_elastic.training.objects.library_kinds import is_generator
from cerebro_elastic.training.objects.object_graph import (
    GraphRoot,
    ObjectGraph,
    hooks,
    known_of_model,
    optimizer_root,
    tensor_roots,
)
from cerebro_elastic.training.objects.object_index import ObjectIndex
from cerebro_elastic.training.objects.opaque import checksum, fingerprint
from cerebro_elastic.training.objects.tensor_kinds import cloned
from cerebro_elastic.training.objects.user_files import UserFiles
from cerebro_elastic.training.parallel.construct import hand_over, load_values
from cerebro_elastic.training.parallel.optimizer_state import NamedState, check_groups, take, to_names
from cerebro_elastic.training.rebuild import finalize_lazy_modules, rebuild
from cerebro_elastic.training.structure import ModelStructure, without_uninitialized

__all__ = [
    "MODULE_ATTRIBUTES",
    "Decoder",
    "Encoder",
    "GraphRoot",
    "ModelStructure",
    "NamedState",
    "NotSerializable",
    "ObjectGraph",
    "ObjectIndex",
    "Tree",
    "UserFiles",
    "buffers_of",
    "check_groups",
    "checksum",
    "cloned",
    "finalize_lazy_modules",
    "fingerprint",
    "flatten",
    "hand_over",
    "hooks",
    "is_generator",
    "is_users",
    "known_of_model",
    "load_values",
    "made_by_compiler",
    "modules_of",
    "non_persistent_buffers_of",
    "optimizer_root",
    "parameters_of",
    "rebuild",
    "take",
    "tensor_roots",
    "to_names",
    "unflatten",
    "values_equal",
    "without_uninitialized",
]
