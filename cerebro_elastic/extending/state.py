"""The state that hops: optimizers by names, a model's values and structure, and the graph of objects."""

from __future__ import annotations

from cerebro_elastic.checkpoint.tree import flatten, unflatten
from cerebro_elastic.parallel.handover import hand_over, load_values
from cerebro_elastic.parallel.optimizer_state import NamedState, check_groups, take, to_names
from cerebro_elastic.training.objects.encoder import MODULE_OWN, Encoder, NotSerializable, Tree
from cerebro_elastic.training.objects.files import Files
from cerebro_elastic.training.objects.filler import Filler
from cerebro_elastic.training.objects.graph import (
    Graph,
    Root,
    hooks,
    known_of_model,
    optimizer_root,
    tensor_roots,
)
from cerebro_elastic.training.objects.kinds import is_users
from cerebro_elastic.training.objects.survey import Survey
from cerebro_elastic.training.objects.trees import cloned, trees_equal
from cerebro_elastic.training.rebuilding import become_real, rebuild
from cerebro_elastic.training.structure import Structure, dense

__all__ = [
    "MODULE_OWN",
    "Encoder",
    "Files",
    "Filler",
    "Graph",
    "NamedState",
    "NotSerializable",
    "Root",
    "Structure",
    "Survey",
    "Tree",
    "become_real",
    "check_groups",
    "cloned",
    "dense",
    "flatten",
    "hand_over",
    "hooks",
    "is_users",
    "known_of_model",
    "load_values",
    "optimizer_root",
    "rebuild",
    "take",
    "tensor_roots",
    "to_names",
    "trees_equal",
    "unflatten",
]
