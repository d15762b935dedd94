"""All objects that a unit's code keeps, from where they can be reached."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from cerebro_elastic.errors import TaskError
from cerebro_elastic.parallel.optimizer_state import inner_optimizers
from cerebro_elastic.training.objects import kinds
from cerebro_elastic.training.objects.encoder import MODULE_OWN, Encoder, NotSerializable, Tree
from cerebro_elastic.training.objects.files import Files
from cerebro_elastic.training.objects.filler import Filler
from cerebro_elastic.training.objects.survey import Survey
from cerebro_elastic.training.objects.trees import cloned

_HOOKS = (
    "_forward_pre_hooks",
    "_forward_hooks",
    "_backward_pre_hooks",
    "_backward_hooks",
    "_state_dict_hooks",
    "_state_dict_pre_hooks",
    "_load_state_dict_pre_hooks",
    "_load_state_dict_post_hooks",
    "_post_accumulate_grad_hooks",
)
_OPTIMIZER_OWN = frozenset(vars(torch.optim.SGD([torch.zeros(1)]))) | {"step", "state", "param_groups"}
_NOTHING: Tree = {"plain": {}, "other": []}
"""The tree of an object without attributes."""
_TENSOR_OWN = frozenset(("_is_param", "_is_buffer", "persistent"))


@dataclass(frozen=True)
class Root:
    """Something that is there in every unit, called ``label`` by its user. ``own`` gives its attributes, or
    those of each part of a module. If it is ``fixed``, none come or go. The ``buffers`` of a module that are
    not persistent may be carried elsewhere."""

    name: str
    owner: Any
    own: Callable[[Any], Mapping[str, Any]] = vars
    label: str = ""
    fixed: bool = False
    buffers: bool = True


class Graph:
    """What can be reached from ``roots`` and the user's ``files``. ``known`` gives the objects that are
    carried elsewhere, by name; attributes whose names are ``marks`` are nobody's state.

    It is made when the unit is set up and nothing is put back yet.
    """

    def __init__(
        self,
        roots: Sequence[Root],
        known: Callable[[], Mapping[str, object]],
        files: Files,
        marks: frozenset[str] = frozenset(),
    ) -> None:
        self._roots, self._known, self._files, self._marks = roots, known, files, marks
        self._births = Survey()
        self._bare: set[str] = set()
        self._classes = files.classes
        self._births = self._walk()[0].survey
        born = {type(value) for value in self._births.objects.values() if isinstance(value, Enum | tuple)}
        self._classes |= {kinds.name_of(kind): kind for kind in born}

    def restore(self, trees: Mapping[str, Tree], files: Mapping[str, Tree], device: torch.device) -> None:
        """Give everything what ``carry`` took; what an earlier version did not take stays. Raises
        ``TaskError`` for what is not there any longer."""
        filler = Filler(self._births, device, self._known(), self._classes, self._marks)
        for root in self._roots:
            if (tree := trees.get(root.name)) is None:
                continue
            try:
                if isinstance(root.owner, nn.Module):
                    filler.module(root.owner, tree, root.own, root.name)
                elif root.fixed:
                    for name in root.own(root.owner).keys() & tree["plain"].keys():
                        filler.value(tree["plain"][name], f"{root.name}/{name}")
                else:
                    filler.attributes(root.owner, self._own(root), tree, root.name)
            except NotSerializable as exc:
                raise TaskError(
                    f"{root.label}, attribute {exc}: it cannot be given back what it held after the "
                    "last unit; make the object in the constructor or in setup(), or keep plain values"
                ) from None
        self._files.restore(filler, files)

    def carry(
        self, *, changes_allowed: bool = False, new: Collection[str] = ()
    ) -> tuple[dict[str, Tree], dict[str, Tree]]:
        """The trees of the roots by name, and what the files have changed. Raises ``TaskError`` if something
        that cannot hop was set or has changed, unless ``changes_allowed``: after a config's last unit nothing
        hops. Parts of a module with the paths ``new`` were added since, and will be again."""
        carrier, trees, files = self._walk()
        if not changes_allowed:
            self._check(carrier, new)
        if files or self._files.shared:  # what they keep is put back, while these trees are saved
            trees = cloned(trees)
        return trees, files

    def _walk(self) -> tuple[Encoder, dict[str, Tree], dict[str, Tree]]:
        births = self._births if self._births.objects else None
        carrier = Encoder(self._known(), births, self._marks, self._classes, strict=False)
        trees: dict[str, Tree] = {
            root.name: carrier.module(root.owner, root.own, root.name, buffers=root.buffers)
            if isinstance(root.owner, nn.Module)
            else carrier.attributes(self._own(root), root.name)
            for root in self._roots
        }
        if births is None:
            self._bare = {name for name, tree in trees.items() if tree == _NOTHING}
            self._files.survey(carrier)
            return carrier, trees, {}
        kept = {name: tree for name, tree in trees.items() if tree != _NOTHING or name not in self._bare}
        return carrier, kept, self._files.changed(carrier)

    def _own(self, root: Root) -> dict[str, Any]:
        return {name: value for name, value in root.own(root.owner).items() if name not in self._marks}

    def _check(self, carrier: Encoder, new: Collection[str]) -> None:
        for path, value in carrier.lost:
            root, name = self._named(path)
            if root is not None and not any(path.startswith(f"{root.name}/{part}/") for part in new):
                raise TaskError(
                    f"{root.label}.{name} was set to a {type(value).__qualname__} during training, which "
                    "cannot hop to another node: keep plain values and tensors, or give its class state_dict "
                    "and load_state_dict and make it in the constructor, or set the attribute to None before "
                    "the batch ends"
                )
        for path, found in carrier.survey.opaque.items():
            root, name = self._named(path)
            if root is not None and found != self._births.opaque.get(path, found):
                kind = type(carrier.survey.objects[path]).__qualname__
                raise TaskError(
                    f"{root.label}.{name}, a {kind}, has changed during training in a way that cannot hop to "
                    "another node: keep what changes in plain values, tensors or objects of classes of your "
                    "own, or give its class state_dict and load_state_dict"
                )

    def _named(self, path: str) -> tuple[Root | None, str]:
        """The root that ``path`` begins at, and the rest as a user writes it; none for files."""
        for root in self._roots:
            if path.startswith(f"{root.name}/"):
                return root, path.removeprefix(f"{root.name}/").replace("/", ".")
        return None, path


def plain_attributes(part: nn.Module) -> dict[str, Any]:
    """The attributes that a user's code has set on a plain module."""
    return {name: value for name, value in vars(part).items() if name not in MODULE_OWN}


def graph_of_parts(
    model: nn.Module, optimizer: Optimizer, scheduler: object, files: Files, *, whole: bool
) -> Graph:
    """That of a plain model and what trains it; of the ``files`` alone unless this rank has it ``whole``."""
    if not whole:
        return Graph([], dict, files)
    roots = [
        Root("model", model, plain_attributes, type(model).__name__, buffers=False),
        optimizer_root(0, optimizer),
        hooks(model),
        *tensor_roots(model),
    ]
    known: dict[str, object] = {}
    if scheduler is not None:
        known["scheduler"] = scheduler
        roots.append(Root("scheduler", scheduler, vars, type(scheduler).__name__))
    return Graph(roots, lambda: {**known_of_model(model, [optimizer]), **known}, files)


def hooks(model: nn.Module) -> Root:
    """What the hooks keep that a model's parts and parameters have when the unit is set up."""
    tables = [
        (f"{name}.{table}".lstrip("."), part, table)
        for name, part in (*model.named_modules(), *model.named_parameters())
        for table in _HOOKS
        if getattr(part, table, None)
    ]

    def own(_: object) -> dict[str, Any]:
        return {name: tuple(filter(_keeps, getattr(part, table).values())) for name, part, table in tables}

    return Root("hooks", None, own, "hooks", fixed=True)


def tensor_roots(model: nn.Module) -> Iterator[Root]:
    """What was hung on parameters and buffers."""
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        yield Root(f"tensor {name}", tensor, _tensor_own, name)


def optimizer_root(number: int, optimizer: Optimizer) -> Root:
    """What an optimizer keeps beside its state and its groups of parameters."""
    return Root(f"optimizer {number}", optimizer, _optimizer_own, type(optimizer).__name__)


def known_of_model(model: nn.Module, optimizers: Sequence[Optimizer]) -> dict[str, object]:
    """Layers, parameters, buffers, and what optimizers keep of parameters."""
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


def _tensor_own(tensor: Tensor) -> dict[str, Any]:
    return {name: value for name, value in vars(tensor).items() if name not in _TENSOR_OWN}


def _optimizer_own(optimizer: Optimizer) -> dict[str, Any]:
    return {name: value for name, value in vars(optimizer).items() if name not in _OPTIMIZER_OWN}


def _keeps(hook: Any) -> bool:
    """Whether a hook is the user's: torch's own are made again with what they belong to."""
    function = getattr(hook, "__func__", hook)
    function = getattr(function, "func", function)  # of a partial
    return kinds.is_users(function) or kinds.is_users(type(function))
