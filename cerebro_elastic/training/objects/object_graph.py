"""All objects that a unit's code keeps, from the roots at which they can be reached."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from cerebro_elastic.errors import TaskError
from cerebro_elastic.training._torch_internals import (
    OPTIMIZER_ATTRIBUTES,
    TENSOR_ATTRIBUTES,
)
from cerebro_elastic.training.objects.decoder import Decoder
from cerebro_elastic.training.objects.encoder import Encoder
from cerebro_elastic.training.objects.kinds import NotSerializable, Tree, name_of
from cerebro_elastic.training.objects.object_index import ObjectIndex
from cerebro_elastic.training.objects.opaque import Unseen
from cerebro_elastic.training.objects.tensor_kinds import cloned, hooks_that_keep, own_attributes
from cerebro_elastic.training.objects.user_files import UserFiles
from cerebro_elastic.training.parallel.optimizer_state import inner_optimizers


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
    fixed: bool = False
    """Whether no attributes come or go."""


class ObjectGraph:
    """The objects that can be reached from ``roots`` and the user's ``files``.

    It is to be made when the unit is set up, before its state is put back.

    Args:
        roots: Where the walk begins.
        known: Returns the objects that are carried elsewhere, by name.
        files: The user's files.
        marks: Names of attributes that are no state.
    """

    def __init__(
        self,
        roots: Sequence[GraphRoot],
        known: Callable[[], Mapping[str, object]],
        files: UserFiles,
        marks: frozenset[str] = frozenset(),
    ) -> None:
        self._roots, self._known, self._files, self._marks = roots, known, files, marks
        self._at_setup = ObjectIndex()
        self._bare: set[str] = set()
        self._classes = files.classes
        self._at_setup = self._walk()[0].index
        self._refuse_unseen(self._at_setup)
        born = {type(value) for value in self._at_setup.objects.values() if isinstance(value, Enum | tuple)}
        self._classes |= {name_of(kind): kind for kind in born}

    def restore(self, trees: Mapping[str, Tree], files: Mapping[str, Tree], device: torch.device) -> None:
        """Restore what ``carry`` has returned; what it lacks stays as it is.

        Raises:
            TaskError: An object that is needed is missing.
        """
        decoder = Decoder(self._at_setup, device, self._known(), self._classes, self._marks)
        for root in self._roots:
            if (tree := trees.get(root.name)) is None:
                continue
            try:
                if isinstance(root.owner, nn.Module):
                    decoder.module(root.owner, tree, root.own, root.name)
                elif root.fixed:
                    for name in root.own(root.owner).keys() & tree.keys():
                        decoder.value(tree[name], f"{root.name}/{name}")
                else:
                    decoder.attributes(root.owner, self._own(root), tree, root.name)
            except NotSerializable as exc:
                raise TaskError(
                    f"{root.label}, attribute {exc}: it cannot be given back what it held after the "
                    "last unit; make the object in the constructor or in setup(), or keep plain values"
                ) from None
        try:
            self._files.restore(decoder, files)
        except NotSerializable as exc:
            raise TaskError(
                f"a variable of the files {exc}: it cannot be given back what it held after the last unit; "
                "make the object when the file is imported, or keep plain values"
            ) from None

    def carry(
        self, *, changes_allowed: bool = False, new: Collection[str] = ()
    ) -> tuple[dict[str, Tree], dict[str, Tree]]:
        """The trees of the roots by name, and the changes of the files.

        Args:
            changes_allowed: Whether objects that cannot hop may have changed: after a config's last unit
            nothing
                hops.
            new: The paths of modules that were added since set-up, and will be added again in the next unit.

        Raises:
            TaskError: An object that cannot hop was set or has changed.
        """
        encoder, trees, files = self._walk()
        if not changes_allowed:
            self._check(encoder, new)
        if files or self._files.shared:  # the files are put back while these trees are being saved
            trees = cloned(trees)
        return trees, files

    def _walk(self) -> tuple[Encoder, dict[str, Tree], dict[str, Tree]]:
        at_setup = self._at_setup if self._at_setup.objects else None
        encoder = Encoder(self._known(), at_setup, self._marks, self._classes, strict=False)
        trees: dict[str, Tree] = {
            root.name: encoder.module(root.owner, root.own, root.name)
            if isinstance(root.owner, nn.Module)
            else encoder.attributes(self._own(root), root.name)
            for root in self._roots
        }
        opaque = list(encoder.index.opaque)
        if at_setup is None:
            self._bare = {name for name, tree in trees.items() if not tree}
            self._files.index(encoder)
            encoder.take_fingerprints(opaque)
            return encoder, trees, {}
        kept = {name: tree for name, tree in trees.items() if tree or name not in self._bare}
        files = self._files.changed(encoder)
        encoder.take_fingerprints(opaque)
        return encoder, kept, files

    def _own(self, root: GraphRoot) -> dict[str, Any]:
        return {name: value for name, value in root.own(root.owner).items() if name not in self._marks}

    def _check(self, encoder: Encoder, new: Collection[str]) -> None:
        for path, value in encoder.lost:
            root, name = self._named(path)
            if root is not None and not any(path.startswith(f"{root.name}/{part}/") for part in new):
                raise TaskError(
                    f"{root.label}.{name} was set to a {type(value).__qualname__} during training, which "
                    "cannot hop to another node: keep plain values and tensors, or give its class state_dict "
                    "and load_state_dict and make it in the constructor, or set the attribute to None before "
                    "the batch ends"
                )
        for path, present in encoder.index.opaque.items():
            root, name = self._named(path)
            if root is not None and present != self._at_setup.opaque.get(path, present):
                kind = type(encoder.index.objects[path]).__qualname__
                raise TaskError(
                    f"{root.label}.{name}, a {kind}, has changed during training in a way that cannot hop to "
                    "another node: keep what changes in plain values, tensors or objects of classes of your "
                    "own, or give its class state_dict and load_state_dict"
                )
        self._files.refuse_lost(encoder)

    def _refuse_unseen(self, index: ObjectIndex) -> None:
        """Raise ``TaskError`` for an object whose changes nothing would show."""
        for path, shown in index.opaque.items():
            root, name = self._named(path)
            if root is not None and isinstance(shown, Unseen):
                kind = name_of(type(index.objects[path]))
                raise TaskError(
                    f"{root.label}.{name} is a {kind}: whether training changes it cannot be seen "
                    f"({shown.why}), so it cannot hop. Keep plain values, tensors or objects of classes of "
                    "your own; or, if it does not matter to training, keep it in an object whose class has "
                    "state_dict and load_state_dict without it"
                )

    def _named(self, path: str) -> tuple[GraphRoot | None, str]:
        """The root that ``path`` begins at, and the rest as a user writes it; none for files."""
        for root in self._roots:
            if path.startswith(f"{root.name}/"):
                return root, path.removeprefix(f"{root.name}/").replace("/", ".")
        return None, path


def graph_of_parts(
    model: nn.Module, optimizer: Optimizer, scheduler: object, files: UserFiles, *, whole: bool
) -> ObjectGraph:
    """The graph of a plain model, its optimizer and scheduler; of the ``files`` alone unless this rank has
    the ``whole`` model."""
    if not whole:
        return ObjectGraph([], dict, files)
    roots = [
        GraphRoot("model", model, own_attributes, type(model).__name__),
        optimizer_root(0, optimizer),
        hooks(model, [optimizer]),
        *tensor_roots(model),
    ]
    known: dict[str, object] = {}
    if scheduler is not None:
        known["scheduler"] = scheduler
        roots.append(GraphRoot("scheduler", scheduler, vars, type(scheduler).__name__))
    return ObjectGraph(roots, lambda: {**known_of_model(model, [optimizer]), **known}, files)


def hooks(model: nn.Module, optimizers: Sequence[Optimizer] = ()) -> GraphRoot:
    """The state of the hooks that a model's modules and parameters, and its optimizers, have at set-up."""
    owners = [
        *model.named_modules(),
        *model.named_parameters(),
        *((f"optimizer {number}", optimizer) for number, optimizer in enumerate(optimizers)),
    ]
    keeping = {name.rpartition(".")[0] for name in hooks_that_keep(owners)}
    owners = [(name, owner) for name, owner in owners if name in keeping]
    return GraphRoot("hooks", None, lambda _: hooks_that_keep(owners), "hooks", fixed=True)


def tensor_roots(model: nn.Module) -> Iterator[GraphRoot]:
    """Attributes that were set on parameters and buffers."""
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        yield GraphRoot(f"tensor {name}", tensor, partial(_own_but, TENSOR_ATTRIBUTES), name)


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
