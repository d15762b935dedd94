"""A row of the table of kinds (``table.py``), and the part of a walk that it may use.

A tree stands for a value in a checkpoint. *Plain* values are their own trees: numbers, strings, tensors,
numpy arrays, and lists, tuples and dicts of these. Any other is a *tagged* tree,
``{TAG: name of its kind, "type": full name of its type, "value": trees of its parts}``, or a reference:

- ``known``: an object that is carried elsewhere (a layer, a parameter, an optimizer), by name;
- ``same``: an object that was met before, by its path; ``view``: a tensor or array that shares its memory;
- ``placed``: a plain value that was at another path at set-up (``born``), or nowhere (``None``) while another
  object was at its path.
"""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import Enum
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from cerebro_elastic.hop.instances import attributes_of, set_attributes
from cerebro_elastic.hop.objects.object_index import MemoryIndex

if TYPE_CHECKING:
    import torch

LEAVES = {type(None), bool, int, float, complex, str, bytes}
"""Types whose values have no parts and no identity."""

_PYTHON_CLASS = 1 << 9  # Py_TPFLAGS_HEAPTYPE: an instance's attributes are in its __dict__ and its slots


def torchs(name: str) -> tuple[Any, ...]:
    """The class of torch of this name, to be looked for; none if torch is not imported: tasks of numpy's
    arrays do without."""
    module = sys.modules.get("torch")
    return () if module is None else (attrgetter(name)(module),)


def is_key(key: Any) -> bool:
    """Whether a dict's key or a set's item is its own tree."""
    return type(key) in LEAVES or (type(key) is tuple and all(map(is_key, key)))


def carries_itself(kind: type) -> bool:
    """Whether a class has ``state_dict`` and ``load_state_dict``, and they are complete: those of torch's
    schedulers leave out the state of their functions."""
    both = all(callable(getattr(kind, name, None)) for name in ("state_dict", "load_state_dict"))
    return both and not issubclass(kind, torchs("optim.lr_scheduler.LRScheduler"))


def name_of(kind: Any) -> str:
    """A type's full name."""
    return f"{kind.__module__}.{kind.__qualname__}"


def is_simple(kind: type) -> bool:
    """Whether instances are no more than their ``__dict__`` and their slots."""
    return kind is not functools.partial and all(
        base.__flags__ & _PYTHON_CLASS or base in (object, types.SimpleNamespace) for base in kind.__mro__
    )


def is_made_empty(kind: type) -> bool:
    """Whether an instance, or a value, of a class can be made without its constructor. One with ``__del__``
    may act on values from a checkpoint."""
    if issubclass(kind, torchs("nn.Module")) or hasattr(kind, "__del__"):
        return False
    return issubclass(kind, Enum | tuple | dict | list | set) or is_simple(kind)


def class_named(name: str) -> Any:
    """The class of this full name, in a module that has been imported; ``None`` without one."""
    parts = name.split(".")
    for length in range(len(parts) - 1, 0, -1):
        found: Any = sys.modules.get(".".join(parts[:length]))
        if found is not None:
            for part in parts[length:]:
                found = getattr(found, part, None)
            return found if isinstance(found, type) else None
    return None


Tree: TypeAlias = Any

TAG = "cerebro.kind"
KNOWN, SAME, VIEW, PLACED = "known", "same", "view", "placed"
REFERENCES = (KNOWN, SAME, VIEW)


class NotSerializable(Exception):
    """The value has no tree, or the tree no value; the text says why."""


class Encodes(Protocol):
    """The interface for rows of the walk that takes objects apart (``Encoder``)."""

    memory: MemoryIndex
    lost: list[tuple[str, Any]]
    strict: bool

    def tree(self, value: Any, path: str = "") -> Tree: ...
    def named(self, values: Mapping[str, Any], path: str) -> dict[str, Tree]: ...
    def items(self, values: Iterable[Any], path: str) -> list[Tree]: ...
    def parts(self, parts: Any, path: str) -> dict[str, Tree]: ...
    def attributes(self, own: Mapping[str, Any], path: str = "") -> dict[str, Tree]: ...
    def opaque(self, value: Any, path: str) -> Tree: ...
    def is_known(self, value: Any) -> bool: ...
    def has_moved(self, path: str, buffer: Any, writes: int) -> bool: ...
    def whole(self) -> AbstractContextManager[None]: ...


class Decodes(Protocol):
    """The interface for rows of the walk that puts them together (``Decoder``)."""

    device: torch.device | None

    def value(self, tree: Tree, path: str = "") -> Any: ...
    def named(self, trees: Mapping[str, Tree], path: str) -> dict[str, Any]: ...
    def parts(self, tree: Tree, path: str) -> Any: ...
    def own(self, present: Mapping[str, Any], trees: Mapping[str, Tree], path: str) -> dict[str, Any]: ...
    def attributes(self, owner: object, own: Mapping[str, Any], tree: Tree, path: str = "") -> None: ...
    def class_of(self, tree: Tree, present: Any) -> Any: ...
    def keep(self, path: str, value: Any) -> Any: ...


@dataclass(frozen=True, eq=False)
class Kind:
    """How the values of some types are taken apart, and rebuilt."""

    name: str
    """The tag of their trees."""
    matches: Callable[[type], bool]
    """Whether the values of a type may be of this kind."""
    parts: Callable[[Any], Any] = lambda _: None
    """A value's parts: a dict, a list, or another value. ``None``: the value is of another kind."""
    put: Callable[[Any, Any], object] = lambda *_: None
    """Gives a value its parts."""
    make: Callable[[Any, Tree], Any] | None = None
    """Returns a value of a type without its parts; if absent, no code of the class is run."""
    build: Callable[[Any, Any], Any] | None = None
    """Returns the value of a type that has these parts, in place of ``make`` and ``put``."""
    made: tuple[Any, ...] = ()
    """Types written in C whose values are made again by a call of the type."""
    options: Callable[[Any], dict[str, Any]] = lambda _: {}
    """The entries of a value's tree that ``make`` needs."""
    identity: bool = True
    """Whether it matters that two places hold the same object, and not an equal one."""
    attributes: bool = False
    """Whether the values may have attributes besides."""

    def tree(self, value: Any, path: str, walk: Encodes) -> Tree | None:
        """The tree of ``value``; ``None`` if it is of another kind."""
        parts = self.parts(value)
        if parts is None:
            return None
        tree = {TAG: self.name, "type": name_of(type(value)), **walk.parts(parts, path)}
        return self.with_attributes(tree | self.options(value), value, path, walk)

    def with_attributes(self, tree: Tree, value: Any, path: str, walk: Encodes) -> Tree:
        """The tree with the attributes that ``value`` has besides its parts."""
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
        """``present`` if it is of the type, else a new value that gets its parts later. Its parts may refer
        to it."""
        kind = walk.class_of(tree, present)
        return walk.keep(path, present if type(present) is kind else self._empty(kind, tree))

    def _empty(self, kind: Any, tree: Tree) -> Any:
        if self.make is not None:
            return self.make(kind, tree)
        return kind() if kind in self.made else kind.__new__(kind)


def of(*kinds: type) -> Callable[[type], bool]:
    """Whether a type is one of ``kinds``, or derived from one."""
    return lambda kind: issubclass(kind, kinds)
