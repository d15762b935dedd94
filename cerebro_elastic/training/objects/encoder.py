"""From objects to a tree that a checkpoint holds.

*Plain* values are their own tree: numbers, strings, tensors, numpy arrays, and lists, tuples, sets and dicts
of these. Everything else becomes a *tagged* tree, ``{TAG: kind, "value": content}``:

- ``known``: an object that is carried elsewhere (a layer, a parameter, an optimizer), by name;
- ``same``: an object that was met before, by its path; ``view``: a tensor or array that shares the memory of
one;
- ``placed``: a plain value that was at another path at set-up (``born``), or nowhere (``None``) while another
object was
  at its path;
- other containers, enums, random generators, iterators, functions (what they close over, their defaults and
  attributes), objects with ``state_dict`` and ``load_state_dict``, objects of the user's classes with their
  attributes and slots, and those of libraries all of whose attributes can be carried;
- ``opaque``: all the rest, which stays as the constructor has made it.
"""

from __future__ import annotations

import functools
import inspect
import queue
import types
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum, Flag
from types import CellType, FunctionType, MethodType
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary, WeakSet, WeakValueDictionary

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler

from cerebro_elastic.system.torch_internals import (
    MODULE_ATTRIBUTES,
    buffers_of,
    made_by_compiler,
    non_persistent_buffers_of,
)
from cerebro_elastic.training.objects import sets, value_types
from cerebro_elastic.training.objects.hook_tables import hooks_that_keep
from cerebro_elastic.training.objects.keepers import keeper_of
from cerebro_elastic.training.objects.object_index import ObjectIndex
from cerebro_elastic.training.objects.opaque import fingerprint
from cerebro_elastic.training.objects.shared_memory import MemoryIndex
from cerebro_elastic.training.objects.trees import trees_equal
from cerebro_elastic.training.objects.value_types import (
    KNOWN,
    LEAF_TENSOR,
    ON_ACCELERATOR,
    OPAQUE,
    ORDERED,
    PLACED,
    SAME,
    VIEW,
    name_of,
)

Tree: TypeAlias = Any

TAG = "cerebro.kind"
IN_FILES = ("file ", "class ")
"""How the paths of what the user's files keep begin."""


class NotSerializable(Exception):
    """The value has no tree; the text names the type that has none."""


class Encoder:
    """One walk over a graph of objects.

    Args:
        known: Objects that are carried elsewhere, by name.
        at_setup: The objects that were there when the unit had been set up.
        marks: Names of attributes to pass over.
        classes: The classes that instances can be made of, by their full names.
        strict: Raise ``NotSerializable`` for opaque values.
    """

    def __init__(
        self,
        known: Mapping[str, object] | None = None,
        at_setup: ObjectIndex | None = None,
        marks: frozenset[str] = frozenset(),
        classes: Mapping[str, type] | None = None,
        *,
        strict: bool = True,
    ) -> None:
        self.index = ObjectIndex()
        self.lost: list[tuple[str, Any]] = []
        """Path and value of objects that the next unit lacks at their path, and cannot make."""
        self._classes = classes or {}
        self._at_setup = at_setup
        self._known = {id(value): name for name, value in (known or {}).items()}
        self._marks = marks
        self._strict = strict
        self._shared_memory = MemoryIndex()
        for name, value in (known or {}).items():
            if isinstance(value, Tensor):
                self._shared_memory.add(value, f"{KNOWN}:{name}")

    def tree(self, value: Any, path: str = "") -> Tree:
        """The tree of ``value`` at ``path``; raises ``NotSerializable``. Tensors are detached, not copied."""
        kind = type(value)
        if kind in value_types.LEAVES or (isinstance(value, np.generic) and value.dtype.kind in "biufc"):
            return value
        if kind is tuple:
            return self._immutable(value, path, tuple(self._items(value, path)))
        if kind is frozenset and all(map(_is_key, value)):
            items = list(value)
            tree = {TAG: ORDERED, "value": items, "frozen": True} if sets.has_order(items) else value
            return self._immutable(value, path, tree)
        if isinstance(value, Enum | torch.device) or kind in value_types.VALUE_TYPES:
            return self._immutable(value, path, self._standard(value, path))
        if isinstance(value, tuple) and kind is not tuple:
            return self._immutable(value, path, self._container(value, path))
        if isinstance(value, MethodType) and (tree := self._method(value, path)) is not None:
            return tree
        if (name := self._known.get(id(value))) is not None:
            return {TAG: KNOWN, "value": name}
        if (first := self.index.paths.get(id(value))) is not None:
            return {TAG: SAME, "value": first}
        return self._object(value, path)

    def take_fingerprints(self, paths: Iterable[str]) -> None:
        """Of the opaque objects at these paths. To be called after the walk, which then knows all objects
        that are carried: a fingerprint does not look into them."""
        carried = {**self.index.paths, **self._known}
        for path in paths:
            self.index.opaque[path] = fingerprint(self.index.objects[path], carried)

    def meets_at(self, paths: Mapping[int, str | None]) -> bool:
        """Whether this walk would meet the objects of these ids at these paths, and so did the one at set-up:
        ``None`` for those that it would not remember."""
        met = self.index.paths
        if any(met.get(number, path) != path for number, path in paths.items()):
            return False
        if self._at_setup is not None:
            at_setup = self._at_setup.paths
            if any(at_setup.get(number) != path for number, path in paths.items()):
                return False
        return self._known.keys().isdisjoint(paths)

    def attributes(self, own: Mapping[str, Any], path: str = "") -> Tree:
        """The tree of an object's ``own`` attributes: ``{"plain": {name: tree}, "other": [names of opaque
        ones]}``."""
        plain, other = {}, []
        for name, value in own.items():
            if name in self._marks or made_by_compiler(name):
                continue
            try:
                with self._undone():
                    tree = self.tree(value, f"{path}/{name}")
            except NotSerializable:
                other.append(name)
                continue
            if type(tree) is dict and tree.get(TAG) == OPAQUE and "born" not in tree:
                other.append(name)
            else:
                plain[name] = tree
        return {"plain": plain, "other": other}

    def module(self, module: nn.Module, own: Any, path: str = "", *, buffers: bool = True) -> Tree:
        """The tree of a module without its state dict.

        It has the names of the trained parameters, non-persistent buffers (unless ``buffers`` is false), and
        the attributes of each module in it that ``own`` gives.
        """
        parts = dict(module.named_modules())
        return {
            "trained": [name for name, parameter in module.named_parameters() if parameter.requires_grad],
            "buffers": {
                at: {name: buffers_of(part)[name] for name in non_persistent_buffers_of(part)}
                for at, part in parts.items()
                if buffers and non_persistent_buffers_of(part)
            },
            "attributes": {
                at: self.attributes(own(part), f"{path}/{at}" if at else path) for at, part in parts.items()
            },
        }

    def _object(self, value: Any, path: str) -> Tree:
        self.index.paths[id(value)] = path
        self.index.objects[path] = value
        born = self._setup_place(value, path)
        tree = self._content(value, path)
        if (
            self._at_setup is not None
            and id(value) not in self._at_setup.paths
            and not self._can_be_made(tree)
        ):
            self.lost.append((path, value))
        if not born:
            return tree
        if type(tree) is dict and TAG in tree:
            return tree if tree[TAG] in (KNOWN, SAME, VIEW) else {**tree, **born}
        return {TAG: PLACED, "value": tree, **born}

    def _setup_place(self, value: Any, path: str) -> dict[str, str | None]:
        """Where the object was at set-up; nothing if it was here."""
        if self._at_setup is None:
            return {}
        born = self._at_setup.paths.get(id(value))
        if born == path or (born is None and path not in self._at_setup.objects):
            return {}
        return {"born": born}

    def _can_be_made(self, tree: Tree) -> bool:
        """Whether ``tree`` can be decoded without an object that a constructor has made."""
        if type(tree) is not dict or TAG not in tree:
            return True
        return value_types.can_be_made(tree[TAG], self._classes)

    def _immutable(self, value: Any, path: str, tree: Tree) -> Tree:
        self.index.objects[path] = value
        born = None if self._at_setup is None else self._at_setup.objects.get(path)
        if self._at_setup is not None and type(born) is not type(value) and not self._can_be_made(tree):
            self.lost.append((path, value))
        return tree

    def _items(self, values: Iterable[Any], path: str) -> list[Tree]:
        return [self.tree(item, f"{path}/{at}") for at, item in enumerate(values)]

    def _content(self, value: Any, path: str) -> Tree:
        kind = type(value)
        if isinstance(value, Tensor):
            return self._tensor(value, path)
        if isinstance(value, np.ndarray):
            if kind is not np.ndarray or value.dtype.kind not in "biufc":
                return self._opaque(value, path)
            return self._viewed(value, path) or value
        if kind is list:
            return self._items(value, path)
        if kind in (set, frozenset):
            items = list(value)  # a set of weak references may shrink meanwhile
            if not all(map(_is_key, items)):
                return self._set(value, path)
            return self._ordered_set(value, items) if sets.has_order(items) else set(items)
        if kind is dict:
            if TAG not in value and all(map(_is_key, value)):
                return {key: self.tree(item, f"{path}/{key}") for key, item in value.items()}
            return self._tagged(kind, self._pairs(value, path))
        for content in (self._standard, self._callable, self._instance):
            tree = content(value, path)
            if tree is not None:
                return tree
        return self._opaque(value, path)

    @staticmethod
    def _ordered_set(value: Any, items: list[Any]) -> Tree:
        built = sets.additions(value) if isinstance(value, set) else None
        if built is None:
            return {TAG: ORDERED, "value": items}
        order, size = built
        return {TAG: ORDERED, "value": items, "added": order, "size": size}

    def _tensor(self, value: Tensor, path: str) -> Tree:
        if type(value) not in (Tensor, nn.Parameter, nn.Buffer):
            return self._opaque(value, path)
        if (view := self._viewed(value, path)) is not None:
            return view
        tensor = value.detach()
        if isinstance(value, nn.Parameter):
            return {
                **self._tagged(type(value), tensor),
                "trained": value.requires_grad,
                **self._beside(value, path),
            }
        if value.requires_grad and value.is_leaf:
            return {TAG: LEAF_TENSOR, "value": tensor, **self._beside(value, path)}
        return tensor if tensor.device.type == "cpu" else {TAG: ON_ACCELERATOR, "value": tensor}

    def _beside(self, tensor: Tensor, path: str) -> dict[str, Tree]:
        """The gradient of a tensor outside the model, and what its hooks keep."""
        beside = {}
        if tensor.grad is not None:
            beside["grad"] = self.tree(tensor.grad, f"{path}/grad")
        if hooks := hooks_that_keep([("", tensor)]):
            beside["hooks"] = self._attributes(hooks, f"{path}/hooks")
        return beside

    def _viewed(self, value: Any, path: str) -> Tree | None:
        """The tree of a view; ``None`` if the value is the first with its memory."""
        view = self._shared_memory.view(value)
        if view is None:
            self._shared_memory.add(value, f"{SAME}:{path}")
            return None
        return {TAG: VIEW, "value": view}

    def _standard(self, value: Any, path: str) -> Tree | None:
        """The tree of enums, devices, and objects of the standard library and numpy."""
        kind = type(value)
        if isinstance(value, Enum):
            return self._tagged(kind, value.value if isinstance(value, Flag) else value.name)
        if isinstance(value, torch.device):
            return self._tagged(kind, str(value))
        if (generator := value_types.generator_kind(value)) is not None:
            tree = self._tagged(kind, self.tree(generator.get(value), f"{path}/state"))
            if attributes := value_types.attributes_of_generator(value):
                tree["attributes"] = self._attributes(attributes, path)
            return tree
        if (keeper := keeper_of(value)) is not None:
            return self._tagged(kind, self.tree(keeper.read(value), f"{path}/kept"))
        if kind in value_types.BUFFERS:
            return self._tagged(kind, value_types.BUFFERS[kind][0](value))
        if isinstance(value, dict | list | set | frozenset | tuple | deque):
            return self._container(value, path)
        if isinstance(value, queue.Queue):
            return self._tagged(kind, self.tree(value.queue, f"{path}/queue"))
        if isinstance(value, WeakKeyDictionary) and all(id(key) in self._known for key in value):
            return self._tagged(kind, self._pairs(value, path))
        if isinstance(value, WeakValueDictionary | WeakSet) and not path.startswith(IN_FILES):
            items = list(value.values() if isinstance(value, WeakValueDictionary) else value)
            if all(id(item) in self._known for item in items):
                kept = self._items(items, path) if isinstance(value, WeakSet) else self._pairs(value, path)
                return self._tagged(kind, kept)
        if (parts := value_types.reduced(value)) is not None:
            name = f"{parts[0].__module__}.{parts[0].__qualname__}"
            if name in value_types.ITERATORS or parts[0] is kind:
                content = [name, *self._items(parts[1:], f"{path}/of")]
                return {TAG: value_types.REDUCED, "value": content}
        return None

    def _container(self, value: Any, path: str) -> Tree:
        if isinstance(value, set):
            tree = self._set(value, path)
        else:
            items = self._pairs(value, path) if isinstance(value, dict) else self._items(value, path)
            tree = self._tagged(type(value), items)
        if isinstance(value, deque) and value.maxlen is not None:
            tree["longest"] = value.maxlen
        if isinstance(value, defaultdict) and (factory := value_types.factory_name(value)):
            tree["factory"] = factory
        if attributes := value_types.attributes_of(value):
            tree["attributes"] = self._attributes(attributes, path)
        return tree

    def _callable(self, value: Any, path: str) -> Tree | None:
        if isinstance(value, functools.partial):
            parts = (value.func, value.args, value.keywords)
            return self._tagged(type(value), self._items(parts, path))
        if isinstance(value, FunctionType) and value_types.is_users(value) and value_types.has_state(value):
            return {TAG: value_types.FUNCTION, "value": self.function(value, path)}
        if isinstance(value, CellType):
            return {TAG: value_types.CELL, "value": self._items(_in_cell(value), path)}
        return None

    def _method(self, value: MethodType, path: str) -> Tree | None:
        """The tree of a bound method, which has no identity: Python binds it anew at each access."""
        name = value.__func__.__name__
        if inspect.getattr_static(type(value.__self__), name, None) is not value.__func__:
            return None
        tree = {TAG: value_types.METHOD, "name": name, "value": self.tree(value.__self__, f"{path}/self")}
        return self._immutable(value, path, tree)

    def function(self, function: FunctionType, path: str) -> Tree:
        """The tree of what a function keeps."""
        return {
            "cells": self._items(_cells(function), f"{path}/closure"),
            "defaults": self.tree(function.__defaults__, f"{path}/defaults"),
            "keywords": self.tree(function.__kwdefaults__, f"{path}/keywords"),
            "attributes": self._attributes(
                {k: v for k, v in vars(function).items() if k != "__wrapped__" and not made_by_compiler(k)},
                path,
            ),
        }

    def _instance(self, value: Any, path: str) -> Tree | None:
        kind = type(value)
        if isinstance(value, type | FunctionType):
            return None
        if isinstance(value, nn.Module):
            return self._tagged(kind, self._part(value, path))
        if value_types.carries_itself(value):
            tree = self._tagged(kind, self._whole(dict(value.state_dict()), f"{path}/state"))
            if value_types.is_users(kind) and (left_out := self._left_out(value, tree["value"], path)):
                tree["attributes"] = left_out
            return tree
        if not value_types.is_simple(kind) or kind.__module__ in value_types.CONSTANT:
            return None
        attributes = value_types.attributes_of(value)
        if value_types.is_users(kind):
            return self._tagged(kind, self._attributes(attributes, path))
        if isinstance(value, LRScheduler):
            return self._tagged(kind, self._attributes(attributes, path))
        if not attributes and kind is not types.SimpleNamespace:
            return None
        try:
            return self._tagged(kind, self._whole(attributes, path))
        except NotSerializable:
            return None

    def _left_out(self, value: Any, state: Tree, path: str) -> dict[str, Tree]:
        """The trees of the attributes that the state dict of ``value`` leaves out. Its class answers for
        those that have none."""
        left_out: dict[str, Tree] = {}
        for name, item in value_types.attributes_of(value).items():
            lost = len(self.lost)
            try:
                tree = self._whole({name: item}, path)[name]
            except NotSerializable:
                continue
            if len(self.lost) > lost:
                del self.lost[lost:]
            elif not any(trees_equal(tree, kept) for kept in state.values()):
                left_out[name] = tree
        return left_out

    def _part(self, module: nn.Module, path: str) -> dict[str, Tree]:
        """The tree of a module that is no part of the model: with its gradients and what its hooks keep."""
        tree = {"state": dict(module.state_dict()), **self.module(module, own_attributes, path)}
        grads = {name: p.grad for name, p in module.named_parameters() if p.grad is not None}
        if grads:
            tree["grads"] = self._attributes(grads, f"{path}/grads")
        if hooks := hooks_that_keep([*module.named_modules(), *module.named_parameters()]):
            tree["hooks"] = self._attributes(hooks, f"{path}/hooks")
        return tree

    def _whole(self, values: dict[str, Any], path: str) -> Tree:
        """All values, or ``NotSerializable``: a part of a library's object may mean nothing by itself."""
        strict, self._strict = self._strict, True
        try:
            with self._undone():
                return self._attributes(values, path)
        finally:
            self._strict = strict

    @contextmanager
    def _undone(self) -> Iterator[None]:
        """If the block raises ``NotSerializable``, forget the objects met in it."""
        before = self.index.size(), self._shared_memory.size(), len(self.lost)
        try:
            yield
        except NotSerializable:
            self.index.forget(before[0])
            self._shared_memory.forget(before[1])
            del self.lost[before[2] :]
            raise

    def _attributes(self, values: Mapping[str, Any], path: str) -> Tree:
        return {name: self.tree(item, f"{path}/{name}") for name, item in values.items()}

    def _pairs(self, value: Mapping[Any, Any], path: str) -> list[Tree]:
        return [
            [self._key(key, f"{path}/key {at}"), self.tree(item, f"{path}/{key if _is_key(key) else at}")]
            for at, (key, item) in enumerate(value.items())
        ]

    def _set(self, value: Any, path: str) -> Tree:
        """Items of sets have no path: they must be plain, or found by name."""
        items = list(value)
        if not all(_is_key(item) or isinstance(item, Enum) or id(item) in self._known for item in items):
            return self._opaque(value, path)
        return self._tagged(type(value), self._items(sorted(items, key=str), path))

    def _key(self, key: Any, path: str) -> Tree:
        return key if _is_key(key) else self.tree(key, path)

    def _tagged(self, kind: type, content: Tree) -> dict[str, Tree]:
        return {TAG: name_of(kind), "value": content}

    def _opaque(self, value: Any, path: str) -> Tree:
        if self._strict:
            raise NotSerializable(name_of(type(value)))
        self.index.opaque[path] = None
        return {TAG: OPAQUE, "value": name_of(type(value))}


def own_attributes(part: nn.Module) -> dict[str, Any]:
    """The attributes that a user's code has set on a plain module."""
    return {
        name: value
        for name, value in vars(part).items()
        if name not in MODULE_ATTRIBUTES and not made_by_compiler(name)
    }


def _cells(function: FunctionType) -> list[Any]:
    """Cells are objects: several functions may close over one variable."""
    names = function.__code__.co_freevars
    return [cell for name, cell in zip(names, function.__closure__ or (), strict=True) if name != "__class__"]


def _in_cell(cell: CellType) -> list[Any]:
    try:
        return [cell.cell_contents]
    except ValueError:  # it is empty
        return []


def _is_key(key: Any) -> bool:
    """Whether a dict's key or a set's item needs no tree."""
    return type(key) in value_types.LEAVES or (type(key) is tuple and all(map(_is_key, key)))
