"""The objects that a model of torch, its optimizers and its scheduler keep."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from cerebro_elastic.hop._torch_internals import OPTIMIZER_ATTRIBUTES
from cerebro_elastic.hop.objects.decoder import Decoder
from cerebro_elastic.hop.objects.encoder import Encoder
from cerebro_elastic.hop.objects.kinds import Tree
from cerebro_elastic.hop.objects.object_graph import GraphRoot, ObjectGraph
from cerebro_elastic.hop.objects.tensor_kinds import module_tree, own_attributes, restore_module
from cerebro_elastic.hop.optimizer_state import inner_optimizers


class ModuleRoot(GraphRoot):
    """A module; ``own`` returns the attributes of each module in it."""

    def tree(self, walk: Encoder) -> Tree:
        return module_tree(walk, self.owner, self.own, self.name)

    def restore(self, walk: Decoder, tree: Tree) -> None:
        restore_module(walk, self.owner, tree, self.own, self.name)


def graph_of_parts(model: nn.Module, optimizer: Optimizer, scheduler: object, *, whole: bool) -> ObjectGraph:
    """The graph of a plain model, its optimizer and scheduler; an empty one unless this rank has the
    ``whole`` model."""
    if not whole:
        return ObjectGraph([])
    roots = [
        ModuleRoot("model", model, own_attributes, type(model).__name__),
        optimizer_root(0, optimizer),
    ]
    known: dict[str, object] = {}
    if scheduler is not None:
        known["scheduler"] = scheduler
        roots.append(GraphRoot("scheduler", scheduler, vars, type(scheduler).__name__))
    return ObjectGraph(roots, lambda: {**known_of_model(model, [optimizer]), **known})


def optimizer_root(number: int, optimizer: Optimizer) -> GraphRoot:
    """The attributes of an optimizer besides its state and its groups of parameters."""
    own = partial(_own_but, OPTIMIZER_ATTRIBUTES)
    return GraphRoot(f"optimizer {number}", optimizer, own, type(optimizer).__name__)


def known_of_model(model: nn.Module, optimizers: Sequence[Optimizer]) -> dict[str, object]:
    """Layers, parameters, buffers, and the optimizers' values for parameters, by name."""
    names: dict[Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}
    known: dict[str, object] = {f"layer {path}": part for path, part in model.named_modules()}
    known |= {f"parameter {name}": parameter for parameter, name in names.items()}
    known |= {f"buffer {name}": buffer for name, buffer in model.named_buffers()}
    for number, optimizer in enumerate(optimizers):
        name = f"optimizer {number}"
        for inner, part in (("", optimizer), *inner_optimizers(optimizer)):
            known |= _known_of_optimizer(f"{inner} of {name}" if inner else name, part, names)
    return known


def _known_of_optimizer(name: str, optimizer: Optimizer, names: Mapping[Tensor, str]) -> dict[str, object]:
    state: Mapping[Any, Any] = optimizer.state
    known: dict[str, object] = {
        name: optimizer,
        f"state of {name}": state,
        f"groups of {name}": optimizer.param_groups,
        **{f"group {at} of {name}": group for at, group in enumerate(optimizer.param_groups)},
        f"defaults of {name}": optimizer.defaults,
    }
    for parameter, slots in state.items():
        if isinstance(parameter, Tensor) and parameter in names and isinstance(slots, dict):
            of = f"of {names[parameter]} in {name}"
            known[f"slots {of}"] = slots
            known |= {f"{slot} {of}": value for slot, value in slots.items() if isinstance(value, Tensor)}
    return known


def _own_but(names: Collection[str], owner: object) -> dict[str, Any]:
    return {name: value for name, value in vars(owner).items() if name not in names}
