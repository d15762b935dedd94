"""All objects that a unit's code keeps, from the roots at which they can be reached."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from cerebro_elastic.errors import TaskError
from cerebro_elastic.system.logs import EventLog
from cerebro_elastic.training._torch_internals import OPTIMIZER_ATTRIBUTES
from cerebro_elastic.training.objects.constant import is_iterator, refusal_of_iterator
from cerebro_elastic.training.objects.decoder import Decoder
from cerebro_elastic.training.objects.encoder import Encoder
from cerebro_elastic.training.objects.kinds import NotSerializable, Tree
from cerebro_elastic.training.objects.object_index import ObjectIndex
from cerebro_elastic.training.objects.tensor_kinds import own_attributes
from cerebro_elastic.training.parallel.optimizer_state import inner_optimizers

_noted: set[str] = set()
"""What this process has said to be left out."""


@dataclass(frozen=True)
class GraphRoot:
    """An object that is there in every unit."""

    name: str
    """Its name in the trees."""
    owner: Any
    """The object."""
    own: Callable[[Any], Mapping[str, Any]] = vars
    """Returns the attributes of the object; of a module, those of each module in it."""
    label: str = ""
    """How its user calls it, for errors."""


class ObjectGraph:
    """The objects that can be reached from ``roots``.

    It is to be made when the unit is set up, before its state is put back.

    Args:
        roots: Where the walk begins.
        known: Returns the objects that are carried elsewhere, by name.
        marks: Names of attributes that are no state.

    Raises:
        TaskError: An attribute is an iterator.
    """

    def __init__(
        self,
        roots: Sequence[GraphRoot],
        known: Callable[[], Mapping[str, object]],
        marks: frozenset[str] = frozenset(),
    ) -> None:
        self._roots, self._known, self._marks = roots, known, marks
        encoder, trees = self._walk(None)
        self._bare = {name for name, tree in trees.items() if not tree}
        self._at_setup = encoder.index
        for path in self._at_setup.opaque:
            if is_iterator(value := self._at_setup.objects[path]):
                raise TaskError(refusal_of_iterator(self._named(path), value))

    def restore(self, trees: Mapping[str, Tree], device: torch.device) -> None:
        """Restore what ``carry`` has returned; what it lacks stays as it is.

        Raises:
            TaskError: An object that is needed is missing.
        """
        decoder = Decoder(self._at_setup, device, self._known(), self._marks)
        for root in self._roots:
            if (tree := trees.get(root.name)) is None:
                continue
            try:
                if isinstance(root.owner, nn.Module):
                    decoder.module(root.owner, tree, root.own, root.name)
                else:
                    decoder.attributes(root.owner, self._own(root), tree, root.name)
            except NotSerializable as exc:
                raise TaskError(
                    f"{root.label}, attribute {exc}: it cannot be given back what it held after the "
                    "last unit; make the object in the constructor or in setup(), or keep plain values"
                ) from None

    def carry(self, *, changes_allowed: bool = False) -> dict[str, Tree]:
        """The trees of the roots by name.

        Args:
            changes_allowed: Whether objects that do not hop may have changed: after a config's last unit
                nothing hops.

        Raises:
            TaskError: An object that a constructor has made, and that does not hop, has changed.
        """
        encoder, trees = self._walk(self._at_setup)
        if not changes_allowed:
            self._check(encoder)
            self._note(encoder.left_out)
        return {name: tree for name, tree in trees.items() if tree or name not in self._bare}

    def _walk(self, at_setup: ObjectIndex | None) -> tuple[Encoder, dict[str, Tree]]:
        encoder = Encoder(self._known(), at_setup, self._marks, strict=False)
        return encoder, {
            root.name: encoder.module(root.owner, root.own, root.name)
            if isinstance(root.owner, nn.Module)
            else encoder.attributes(self._own(root), root.name)
            for root in self._roots
        }

    def _own(self, root: GraphRoot) -> dict[str, Any]:
        return {name: value for name, value in root.own(root.owner).items() if name not in self._marks}

    def _check(self, encoder: Encoder) -> None:
        for path, now in encoder.index.opaque.items():
            if now != self._at_setup.opaque.get(path, now):
                was, *_ = self._at_setup.opaque[path]
                raise TaskError(
                    f"{self._named(path)}, a {was}, has changed during training in a way that cannot hop to "
                    "another node: keep what changes in plain values, tensors or objects of classes of your "
                    "own, or give its class state_dict and load_state_dict"
                )

    def _note(self, left_out: Mapping[str, Any]) -> None:
        """Say what the next unit makes anew, once in a process."""
        names = {self._named(path): type(value).__qualname__ for path, value in left_out.items()}
        for name in names.keys() - _noted:
            _noted.add(name)
            EventLog().info("made in training and left out: the next unit makes it again", name=name)

    def _named(self, path: str) -> str:
        """The object at ``path`` as its user calls it."""
        root = next(root for root in self._roots if path.startswith(f"{root.name}/"))
        return f"{root.label}.{path.removeprefix(f'{root.name}/').replace('/', '.')}"


def graph_of_parts(model: nn.Module, optimizer: Optimizer, scheduler: object, *, whole: bool) -> ObjectGraph:
    """The graph of a plain model, its optimizer and scheduler; an empty one unless this rank has the
    ``whole`` model."""
    if not whole:
        return ObjectGraph([], dict)
    roots = [
        GraphRoot("model", model, own_attributes, type(model).__name__),
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
