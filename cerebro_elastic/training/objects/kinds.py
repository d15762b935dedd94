"""What a row of the table of kinds (``table.py``) says, and what it may use of a walk.

A tree is what a checkpoint holds in place of a value. *Plain* values are their own trees: numbers, strings,
tensors, numpy arrays, and lists, tuples and dicts of these. Any other is a *tagged* tree,
``{TAG: name of its kind, "type": full name of its type, "value": trees of its parts}``, or a reference:

- ``known``: an object that is carried elsewhere (a layer, a parameter, an optimizer), by name;
- ``same``: an object that was met before, by its path; ``view``: a tensor or array that shares its memory;
- ``placed``: a plain value that was at another path at set-up (``born``), or nowhere (``None``) while another
  object was at its path.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import Enum
from types import FunctionType
from typing import Any, Protocol, TypeAlias

import torch
from torch import nn
from torch.optim.lr_scheduler import LRScheduler

from cerebro_elastic.registry import is_users
from cerebro_elastic.training.objects.object_index import MemoryIndex

LEAVES = {type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.Size}
"""Types whose values have no parts and no identity."""

CONSTANT = frozenset(("inspect", "logging", "re", "threading", "typing"))
"""Modules whose objects do not affect training."""

_PYTHON_CLASS = 1 << 9  # Py_TPFLAGS_HEAPTYPE: what an instance keeps is in its __dict__ and its slots


def is_key(key: Any) -> bool:
    """Whether a dict's key or a set's item is its own tree."""
    return type(key) in LEAVES or (type(key) is tuple and all(map(is_key, key)))


def carries_itself(kind: type) -> bool:
    """Whether a class has ``state_dict`` and ``load_state_dict``, and they are complete: those of torch's
    schedulers leave out what their functions keep."""
    both = all(callable(getattr(kind, name, None)) for name in ("state_dict", "load_state_dict"))
    return both and not issubclass(kind, LRScheduler)


def name_of(kind: Any) -> str:
    """A type's full name."""
    return f"{kind.__module__}.{kind.__qualname__}"


def is_simple(kind: type) -> bool:
    """Whether instances are no more than their ``__dict__`` and their slots."""
    return kind is not functools.partial and all(
        base.__flags__ & _PYTHON_CLASS or base in (object, types.SimpleNamespace) for base in kind.__mro__
    )


def is_made_empty(kind: type) -> bool:
    """Whether an instance, or a value, of a class of the user's can be made without its constructor."""
    if issubclass(kind, nn.Module):
        return False
    return issubclass(kind, Enum | tuple | dict | list | set) or is_simple(kind)


def slots_of(kind: type) -> list[str]:
    """The names of all slots but ``__dict__`` and ``__weakref__``."""
    names: list[str] = []
    for base in kind.__mro__:
        slots = vars(base).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name in ("__dict__", "__weakref__"):
                continue
            private = name.startswith("__") and not name.endswith("__")
            names.append(f"_{base.__name__.lstrip('_')}{name}" if private else name)
    return names


_OF_PROCESS = frozenset({"_original_object_hash"})
"""Attributes that a library makes by ``hash``, which differs from process to process: that of a
``GenerationConfig`` of transformers."""


def attributes_of(value: object) -> dict[str, Any]:
    """The attributes of an instance, by name; not those that hold in this process only."""
    kept = {n: item for n, item in getattr(value, "__dict__", {}).items() if n not in _OF_PROCESS}
    for name in slots_of(type(value)):
        try:
            kept[name] = object.__getattribute__(value, name)
        except AttributeError:
            continue
    return kept


def set_attributes(value: object, attributes: Mapping[str, Any]) -> None:
    """Set these attributes of ``value`` and remove all others, without running its own code."""
    slots = set(slots_of(type(value)))
    for name in attributes_of(value).keys() - attributes.keys():
        if name in slots:
            object.__delattr__(value, name)
        else:
            del vars(value)[name]
    for name, item in attributes.items():
        if name in slots:
            object.__setattr__(value, name, item)
        else:
            vars(value)[name] = item


def has_state(function: FunctionType) -> bool:
    """Whether a function keeps anything that may change."""
    closes_over = set(function.__code__.co_freevars) - {"__class__"}
    return bool(closes_over or function.__defaults__ or function.__kwdefaults__ or vars(function))


Tree: TypeAlias = Any

TAG = "cerebro.kind"
KNOWN, SAME, VIEW, PLACED = "known", "same", "view", "placed"
REFERENCES = (KNOWN, SAME, VIEW)


class NotSerializable(Exception):
    """The value has no tree, or the tree no value; the text says why."""


class Encodes(Protocol):
    """What a row may use of the walk that takes objects apart (``Encoder``)."""

    memory: MemoryIndex
    lost: list[tuple[str, Any]]

    def tree(self, value: Any, path: str = "") -> Tree: ...
    def named(self, values: Mapping[str, Any], path: str) -> dict[str, Tree]: ...
    def items(self, values: Iterable[Any], path: str) -> list[Tree]: ...
    def parts(self, parts: Any, path: str) -> dict[str, Tree]: ...
    def module(self, module: nn.Module, own: Any, path: str = "") -> dict[str, Tree]: ...
    def opaque(self, value: Any, path: str) -> Tree: ...
    def is_known(self, value: Any) -> bool: ...
    def whole(self) -> AbstractContextManager[None]: ...


class Decodes(Protocol):
    """What a row may use of the walk that puts them together (``Decoder``)."""

    device: torch.device
    as_new: bool

    def value(self, tree: Tree, path: str = "") -> Any: ...
    def named(self, trees: Mapping[str, Tree], path: str) -> dict[str, Any]: ...
    def parts(self, tree: Tree, path: str) -> Any: ...
    def module(self, module: nn.Module, tree: Tree, own: Any, path: str = "") -> None: ...
    def class_of(self, tree: Tree, present: Any) -> Any: ...
    def keep(self, path: str, value: Any) -> Any: ...


def nothing(_: Any) -> list[Any]:
    """What a value refers to that does not change."""
    return []


def empty(kind: Any, _: Tree) -> Any:
    """An empty value of a type. It runs no code of the user's."""
    return kind.__new__(kind) if is_users(kind) else kind()


@dataclass(frozen=True, eq=False)
class Kind:
    """How the values of some types are taken apart, and put together again."""

    name: str
    """The tag of their trees."""
    matches: Callable[[type], bool]
    """Whether the values of a type may be of this kind."""
    parts: Callable[[Any], Any] = lambda _: None
    """What a value consists of: a dict, a list, or another value. ``None``: this one is of another kind."""
    put: Callable[[Any, Any], object] = lambda *_: None
    """Gives a value its parts."""
    make: Callable[[Any, Tree], Any] = empty
    """Returns a value of a type that is to get its parts."""
    build: Callable[[Any, Any], Any] | None = None
    """Returns the value of a type that has these parts, in place of ``make`` and ``put``."""
    made: tuple[Any, ...] = ()
    """The types of libraries that are made again; any other value was made by a constructor."""
    options: Callable[[Any], dict[str, Any]] = lambda _: {}
    """What ``make`` needs of a value, as entries of its tree."""
    type_of: Callable[[Any], Any] = type
    """What a value was made by."""
    identity: bool = True
    """Whether it matters that two places hold the same object, and not an equal one."""
    attributes: bool = False
    """Whether the values may have attributes besides."""
    watch: Callable[[Any], list[Any] | None] = lambda _: None
    """The objects that a value refers to; ``None`` if it can change and still refer to the same ones."""

    def tree(self, value: Any, path: str, walk: Encodes) -> Tree | None:
        """The tree of ``value``; ``None`` if it is of another kind."""
        parts = self.parts(value)
        if parts is None:
            return None
        tree = {TAG: self.name, "type": name_of(self.type_of(value)), **walk.parts(parts, path)}
        tree |= self.options(value)
        if self.attributes and (attributes := attributes_of(value)):
            tree["attributes"] = walk.named(attributes, path)
        return tree

    def value(self, present: Any, tree: Tree, path: str, walk: Decodes) -> Any:
        """The value of ``tree``: ``present`` with other parts, if it is of the type."""
        if self.build is not None:
            return walk.keep(path, self.build(walk.class_of(tree, present), walk.parts(tree, path)))
        value = self.present_or_empty(present, tree, path, walk)
        self.put(value, walk.parts(tree, path))
        if self.attributes:
            set_attributes(value, walk.named(tree.get("attributes", {}), path))
        return value

    def present_or_empty(self, present: Any, tree: Tree, path: str, walk: Decodes) -> Any:
        """``present`` if it is of the type, else a new value that is to get its parts. Its parts may refer to
        it."""
        kind = walk.class_of(tree, present)
        return walk.keep(path, present if type(present) is kind else self.make(kind, tree))


def of(*kinds: type) -> Callable[[type], bool]:
    """Whether a type is one of ``kinds``, or derived from one."""
    return lambda kind: issubclass(kind, kinds)
