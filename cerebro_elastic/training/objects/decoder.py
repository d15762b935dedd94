"""From a tree back to objects: into those that are at the same paths."""

from __future__ import annotations

import functools
import inspect
import queue
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from enum import Enum
from types import CellType, FunctionType, MethodType
from typing import Any
from weakref import WeakKeyDictionary, WeakSet, WeakValueDictionary

import numpy as np
import torch
from torch import Tensor, nn

from cerebro_elastic.system.torch_internals import buffers_of
from cerebro_elastic.training.objects import sets, shared_memory, value_types
from cerebro_elastic.training.objects.encoder import TAG, NotSerializable, Tree, own_attributes
from cerebro_elastic.training.objects.keepers import keeper_of
from cerebro_elastic.training.objects.object_index import ObjectIndex
from cerebro_elastic.training.objects.value_types import (
    CELL,
    FUNCTION,
    KNOWN,
    LEAF_TENSOR,
    METHOD,
    ON_ACCELERATOR,
    OPAQUE,
    ORDERED,
    PLACED,
    REDUCED,
    SAME,
    VIEW,
    name_of,
)


class Decoder:
    """One walk over a tree.

    Args:
        at_setup: The objects that are there, by path.
        device: Where tensors go that were on an accelerator.
        known: Objects by the names that the encoder had for them.
        classes: The classes that instances can be made of, by their full names.
        marks: Names of attributes to leave alone.
        as_new: Whether the objects become what they were when they were made.
    """

    def __init__(
        self,
        at_setup: ObjectIndex,
        device: torch.device,
        known: Mapping[str, Any] | None = None,
        classes: Mapping[str, type] | None = None,
        marks: frozenset[str] = frozenset(),
        *,
        as_new: bool = False,
    ) -> None:
        self._at_setup = at_setup
        self._as_new = as_new
        self._device = device
        self._known = known or {}
        self._classes = classes or {}
        self._marks = marks
        self._decoded: dict[str, Any] = {}

    def value(self, tree: Tree, path: str = "") -> Any:
        """The value of ``tree``; raises ``NotSerializable`` if an object that it needs is missing."""
        if type(tree) is dict and TAG in tree:
            return self._tagged(tree, path)
        if type(tree) in (list, dict, set) or isinstance(tree, Tensor | np.ndarray):
            return self._plain(tree, path, path)
        if type(tree) is tuple:
            return tuple(self.value(item, f"{path}/{at}") for at, item in enumerate(tree))
        if type(tree) is frozenset:
            return self._frozen(self._at_setup.objects.get(path), tree)
        return tree

    def module(
        self, module: nn.Module, tree: Tree, own: Any, path: str = "", *, lenient: bool = False
    ) -> None:
        """Restore what ``Encoder.module`` has encoded, after the state dict. If ``lenient``, attributes that
        refer to objects of the training alone stay as they are."""
        trained = set(tree["trained"])
        for name, parameter in module.named_parameters():
            parameter.requires_grad = name in trained  # a lazy one does not know requires_grad_()
        for at, buffers in tree["buffers"].items():
            table = buffers_of(module.get_submodule(at))
            for name, buffer in buffers.items():
                table[name] = (
                    buffer if buffer is None else self._into(table.get(name), buffer.to(self._device))
                )
        for at, part in module.named_modules():
            saved = tree["attributes"].get(at, {"plain": {}, "other": []})
            self.attributes(part, own(part), saved, f"{path}/{at}" if at else path, lenient=lenient)

    def attributes(
        self, owner: object, own: Mapping[str, Any], tree: Tree, path: str = "", *, lenient: bool = False
    ) -> None:
        """Restore what ``Encoder.attributes`` has encoded."""
        for name in own.keys() - tree["plain"].keys() - set(tree["other"]) - self._marks:
            _remove(owner, name)
        for name, value in tree["plain"].items():
            try:
                restored = self.value(value, f"{path}/{name}")
            except NotSerializable as exc:
                if lenient:
                    continue
                raise NotSerializable(f"{name!r}: {exc}") from None
            if name not in own or own[name] is not restored:
                _set(owner, name, restored)

    def variables(self, owner: object, tree: Tree, path: str) -> None:
        """Set the values ``tree["plain"]`` in a file or a class, and remove the names ``tree["gone"]``."""
        for name in tree["gone"]:
            _remove(owner, name)
        for name, value in tree["plain"].items():
            restored = self.value(value, f"{path}/{name}")
            if vars(owner).get(name) is not restored:
                _set(owner, name, restored)

    def _plain(self, tree: Tree, path: str, born: str | None) -> Any:
        present: Any = None if born is None else self._at_setup.objects.get(born)
        if isinstance(tree, Tensor | np.ndarray):
            return self._finish(path, self._into(present, tree))
        if type(present) is not type(tree):
            present = type(tree)()
        self._decoded[path] = present
        if isinstance(tree, dict):
            items: Any = {key: self.value(item, f"{path}/{key}") for key, item in tree.items()}
        elif isinstance(tree, list):
            items = [self.value(item, f"{path}/{at}") for at, item in enumerate(tree)]
        else:
            items = tree
        if isinstance(present, set):
            sets.refill(present, items, as_new=self._as_new)
        else:
            present.clear()
            (present.extend if isinstance(tree, list) else present.update)(items)
        return present

    def _ordered_set(self, present: Any, tree: Tree, path: str) -> Any:
        items, fills = tree["value"], type(present) is set
        kept: Any = present if fills else set()
        if tree.get("frozen"):
            kept = self._frozen(present, frozenset(items))
        else:
            self._decoded[path] = kept
            sets.refill(kept, items, as_new=self._as_new)
            if "added" in tree and (self._as_new or list(kept) != items):
                sets.rebuild(kept, items, tree["added"], tree["size"])
        if list(kept) != items:
            raise NotSerializable(
                "was a set in an order that depends on what it has held before (the keys of a dict, and a "
                "list, keep their own)"
            )
        return self._finish(path, kept)

    def _frozen(self, present: Any, value: frozenset[Any]) -> frozenset[Any]:
        """``present`` if it is equal: it has its order."""
        return present if type(present) is frozenset and present == value else value

    def _into(self, present: Any, value: Any) -> Any:
        """``value``, written into the memory of ``present`` if it fits."""
        if type(present) is not type(value) or not shared_memory.fits(present, value):
            return value
        if isinstance(present, Tensor):
            present.detach().copy_(value)
        else:
            present[...] = value
        return present

    def _finish(self, path: str, value: Any) -> Any:
        self._decoded[path] = value
        return value

    def _tagged(self, tree: Tree, path: str) -> Any:
        kind, content = tree[TAG], tree["value"]
        born = tree.get("born", path)
        if kind == KNOWN:
            return self._by_name(content)
        if kind == SAME:
            return self._seen(content)
        if kind == PLACED:
            return self._plain(content, path, born)
        present: Any = None if born is None else self._at_setup.objects.get(born)
        if kind == ORDERED:
            return self._ordered_set(present, tree, path)
        if kind == VIEW:
            return self._finish(path, self._viewed(present, content))
        if kind == ON_ACCELERATOR:
            return self._finish(path, self._into(present, content.to(self._device)))
        if kind == LEAF_TENSOR:
            is_leaf = isinstance(present, Tensor) and present.is_leaf and present.requires_grad
            value = self._into(present, content.to(present.device)) if is_leaf else content.to(self._device)
            self._finish(path, value.requires_grad_())
            self._beside(value, tree, path)
            return value
        if kind == METHOD:
            return self._finish(path, self._method(content, tree["name"], path))
        if kind == REDUCED:
            return self._finish(path, self._reduced(content, path))
        if kind in (FUNCTION, CELL, OPAQUE):
            return self._finish(path, self._callable(kind, present, content, path))
        return self._instance(kind, present, tree, path)

    def _beside(self, tensor: Tensor, tree: Tree, path: str) -> None:
        tensor.grad = self.value(tree["grad"], f"{path}/grad") if "grad" in tree else None
        self._attributes(tree.get("hooks", {}), f"{path}/hooks")

    def _by_name(self, name: str) -> Any:
        if name not in self._known:
            raise NotSerializable(f"was {name}, which there is not")
        return self._known[name]

    def _seen(self, path: str) -> Any:
        """The object at ``path``."""
        value = self._decoded.get(path, self._at_setup.objects.get(path))
        if value is None:
            raise NotSerializable(f"was the same as {path}, which there is not")
        return value

    def _viewed(self, present: Any, view: dict[str, Any]) -> Any:
        where, _, name = view["of"].partition(":")
        holder = self._by_name(name) if where == KNOWN else self._seen(name)
        value = shared_memory.viewed(holder, view)
        same = isinstance(present, Tensor | np.ndarray) and shared_memory.same_memory(present, value)
        return present if same else value

    def _reduced(self, content: list[Any], path: str) -> Any:
        name, arguments, *state = (
            content[0], *(self.value(item, f"{path}/of/{at}") for at, item in enumerate(content[1:]))
        )  # fmt: skip
        maker = value_types.ITERATORS.get(name) or value_types.VALUES.get(name)
        if maker is None:
            raise NotSerializable(
                f"was made by {name}, which is none of the standard library's iterators and values"
            )
        value = maker(*arguments)
        if state and state[0] is not None:
            value.__setstate__(state[0])
        return value

    def _callable(self, kind: str, present: Any, content: Tree, path: str) -> Any:
        if kind == OPAQUE:
            if name_of(type(present)) != content:
                raise NotSerializable(f"was a {content}, is now a {name_of(type(present))}")
            return present
        if kind == CELL:
            cell = present if isinstance(present, CellType) else CellType()
            self._decoded[path] = cell
            for at, item in enumerate(content):
                cell.cell_contents = self.value(item, f"{path}/{at}")
            return cell
        if not isinstance(present, FunctionType):
            raise NotSerializable(f"was a function, is now a {name_of(type(present))}")
        self.function(present, content, path)
        return present

    def _method(self, content: Tree, name: str, path: str) -> MethodType:
        owner = self.value(content, f"{path}/self")
        function = inspect.getattr_static(type(owner), name, None)
        if not isinstance(function, FunctionType):
            raise NotSerializable(f"was the method {name}, which a {name_of(type(owner))} has not")
        return MethodType(function, owner)

    def function(self, function: FunctionType, content: Tree, path: str) -> None:
        """Restore what ``Encoder.function`` has encoded."""
        for at, cell in enumerate(content["cells"]):
            self.value(cell, f"{path}/closure/{at}")
        function.__defaults__ = self.value(content["defaults"], f"{path}/defaults")
        function.__kwdefaults__ = self.value(content["keywords"], f"{path}/keywords")
        attributes = self._attributes(content["attributes"], path)
        for name in vars(function).keys() - attributes.keys() - {"__wrapped__"}:
            del vars(function)[name]
        vars(function).update(attributes)

    def _attributes(self, content: Tree, path: str) -> dict[str, Any]:
        return {name: self.value(item, f"{path}/{name}") for name, item in content.items()}

    def _instance(self, kind: str, present: Any, tree: Tree, path: str) -> Any:
        content = tree["value"]
        if name_of(type(present)) != kind:
            present = self._new(kind, present, tree)
        if isinstance(present, torch.device):
            return present  # where a config trains is no part of its state
        if isinstance(present, Enum):
            return self._finish(path, _member(type(present), content))
        if isinstance(present, type) and issubclass(present, Enum):
            return self._finish(path, _member(present, content))
        kind_of = present if isinstance(present, type) else type(present)
        if issubclass(kind_of, tuple | frozenset):
            return self._finish(path, self._immutable(kind_of, content, path))
        self._decoded[path] = present
        if isinstance(present, nn.Parameter):
            present.data = content.to(present.device)
            present.requires_grad = tree.get("trained", present.requires_grad)
            self._beside(present, tree, path)
        elif isinstance(present, nn.Module):
            present.load_state_dict(content["state"])
            self.module(present, content, own_attributes, path)
            grads = content.get("grads", {})
            for name, parameter in present.named_parameters():
                parameter.grad = self.value(grads[name], f"{path}/grads/{name}") if name in grads else None
            self._attributes(content.get("hooks", {}), f"{path}/hooks")
        elif type(present) in value_types.BUFFERS:
            value_types.BUFFERS[type(present)][1](present, content)
        elif isinstance(present, functools.partial):
            parts = (self.value(item, f"{path}/{at}") for at, item in enumerate(content))
            present.__setstate__((*parts, vars(present)))  # type: ignore[attr-defined]
        elif isinstance(present, queue.Queue):
            present.queue = self.value(content, f"{path}/queue")
        elif isinstance(present, (dict, list, set, deque, *_WEAK)):
            self._container(present, tree, path)
        elif (generator := value_types.generator_kind(present)) is not None:
            generator.put(present, self.value(content, f"{path}/state"))
            if value_types.is_users(type(present)):
                attributes = self._attributes(tree.get("attributes", {}), path)
                value_types.set_attributes_of_generator(present, attributes)
        elif (keeper := keeper_of(present)) is not None:
            keeper.write(present, self.value(content, f"{path}/kept"))
        else:
            self._object(present, tree, path)
        return present

    def _object(self, present: Any, tree: Tree, path: str) -> None:
        if value_types.carries_itself(present):
            present.load_state_dict(self._attributes(tree["value"], f"{path}/state"))
            left_out = self._attributes(tree.get("attributes", {}), path)
            value_types.set_attributes(present, {**value_types.attributes_of(present), **left_out})
        else:
            value_types.set_attributes(present, self._attributes(tree["value"], path))

    def _container(self, present: Any, tree: Tree, path: str) -> None:
        content = tree["value"]
        if isinstance(present, _DICTS):
            pairs = [
                (
                    self.value(key, f"{path}/key {at}"),
                    self.value(item, f"{path}/{at if _is_tagged(key) else key}"),
                )
                for at, (key, item) in enumerate(content)
            ]
            base: Any = next(kind for kind in _DICTS if isinstance(present, kind))
            base.clear(present)
            for key, item in pairs:  # not update(): that of a Counter counts
                base.__setitem__(present, key, item)
        else:
            items = [self.value(item, f"{path}/{at}") for at, item in enumerate(content)]
            if isinstance(present, set):
                sets.refill(present, items, as_new=self._as_new)
            else:
                present.clear()
                (present.update if isinstance(present, WeakSet) else present.extend)(items)
        if "attributes" in tree:
            value_types.set_attributes(present, self._attributes(tree["attributes"], path))

    def _immutable(self, kind: Any, content: Tree, path: str) -> Any:
        items = [self.value(item, f"{path}/{at}") for at, item in enumerate(content)]
        return kind._make(items) if hasattr(kind, "_make") else kind(items)

    def _new(self, kind: str, present: Any, tree: Tree) -> Any:
        """An empty instance; of an immutable kind its class. It runs no code of the user's."""
        if kind in value_types.CONTAINERS:
            container = value_types.CONTAINERS[kind]()
            if isinstance(container, deque):
                return deque(maxlen=tree.get("longest"))
            if "factory" in tree:
                container.default_factory = value_types.factory(tree["factory"])
            return container
        if kind in value_types.MADE_BUFFERS:
            return value_types.MADE_BUFFERS[kind](tree["value"])
        if (generator := value_types.GENERATOR_NAMES.get(kind)) is not None:
            return generator.make(tree["value"])
        if kind in _MADE_OF:
            return _MADE_OF[kind](tree["value"])
        defined = self._classes.get(kind)
        if defined is None or not value_types.is_made_empty(defined):
            raise NotSerializable(f"was a {kind}, is now a {name_of(type(present))}")
        return defined if issubclass(defined, Enum | tuple) else defined.__new__(defined)


_DICTS = (OrderedDict, dict, WeakKeyDictionary, WeakValueDictionary)
_WEAK = (WeakKeyDictionary, WeakValueDictionary, WeakSet)

_MADE_OF: dict[str, Callable[[Any], Any]] = {
    name_of(torch.device): torch.device,
    name_of(nn.Parameter): nn.Parameter,
    name_of(frozenset): lambda _: frozenset,
}


def _member(kind: type[Enum], content: Any) -> Enum:
    """A member by its name; of a ``Flag``, which may have several, by its value."""
    return kind[content] if isinstance(content, str) else kind(content)


def _is_tagged(tree: Tree) -> bool:
    return type(tree) is dict and TAG in tree


def _set(owner: object, name: str, value: Any) -> None:
    """Set an attribute without running code of the user's."""
    if isinstance(owner, type):
        type.__setattr__(owner, name, value)
    else:
        vars(owner)[name] = value


def _remove(owner: object, name: str) -> None:
    if isinstance(owner, type):
        type.__delattr__(owner, name)
    else:
        del vars(owner)[name]
