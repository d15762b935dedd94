"""A file of the user's right after its import: what of it may change, and what that was."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from operator import is_
from types import FunctionType, MappingProxyType, ModuleType
from typing import Any, TypeAlias

import numpy as np
from torch import Tensor

from cerebro_elastic.training.objects.encoder import Encoder
from cerebro_elastic.training.objects.kinds import LEAVES, TAG, Tree, has_state, name_of
from cerebro_elastic.training.objects.object_index import ObjectIndex
from cerebro_elastic.training.objects.opaque import Watched, watch
from cerebro_elastic.training.objects.table import FUNCTION, OPAQUE, Rows, opaque, parts_of_function
from cerebro_elastic.training.objects.tensor_kinds import cloned, size_in_bytes

_LARGEST = 64 << 20
"""In bytes: a variable that is larger is not carried, so it must stay as it is."""

_Watch: TypeAlias = Callable[[Any], list[Any] | None]
_MOST_OBJECTS = 5_000
NOWHERE = object()
"""In place of a value that there is not."""


@dataclass(frozen=True)
class Owner:
    """A file or a class."""

    name: str
    """Its path in the graph of objects."""
    thing: Any
    """The module object or the class."""

    def own(self, fixed: Mapping[str, Any] = MappingProxyType({})) -> dict[str, Any]:
        """The variables that may change, by name. Members of an enum do not, nor what is bound as in
        ``fixed``."""
        if isinstance(self.thing, type) and issubclass(self.thing, Enum):
            return {}
        return {
            name: value
            for name, value in vars(self.thing).items()
            if (fixed.get(name, NOWHERE) is not value or isinstance(value, FunctionType))
            and self._may_change(name, value)
        }

    def fixed(self) -> dict[str, Any]:
        """What can only change by being bound anew, by name: most of a file. Of functions, those that keep
        nothing yet: they may be given attributes."""
        return {
            name: value
            for name, value in vars(self.thing).items()
            if type(value) in LEAVES or not self._may_change(name, value)
        }

    def plain_functions(self) -> dict[str, FunctionType]:
        """The functions of its own that keep nothing, by name."""
        return {
            name: value
            for name, value in vars(self.thing).items()
            if isinstance(value, FunctionType)
            and value.__module__ == self._module
            and name[:2] != "__"
            and not has_state(value)
        }

    def _may_change(self, name: str, value: Any) -> bool:
        if name.startswith(("__", "_abc_")):
            return False
        if isinstance(value, FunctionType):
            return has_state(value) and value.__module__ == self._module
        return not isinstance(value, type | ModuleType | property | classmethod | staticmethod)

    @property
    def _module(self) -> str:
        return str(self.thing.__module__ if isinstance(self.thing, type) else self.thing.__name__)


def _owners(module: ModuleType) -> list[Owner]:
    """A file and its classes, each once. A function that is called twice makes two classes of one name: the
    second has its number behind it."""
    owners, known = [Owner(f"file {module.__name__}", module)], Counter[str]()
    for kind in dict.fromkeys(_classes_in(module, module.__name__)):
        name = f"class {name_of(kind)}"
        known[name] += 1
        owners.append(Owner(name if known[name] == 1 else f"{name} ({known[name]})", kind))
    return owners


def _classes_in(outer: Any, module: str) -> Iterator[type]:
    """The classes that are defined in a file, or in a class of it."""
    inside = f"{outer.__qualname__}." if isinstance(outer, type) else ""
    for value in list(vars(outer).values()):
        if not isinstance(value, type) or value.__module__ != module:
            continue
        if value.__qualname__.startswith(inside) and value is not outer:
            yield value
            yield from _classes_in(value, module)


class Snapshot:
    """What the objects that a value reaches refer to. ``index`` is of the walk that has just met them.

    An encoder takes objects apart to write them down. To see that nothing has changed, it is enough that each
    object refers to the same objects as before: that is ten times as fast.

    Raises:
        CannotWatch: It reaches an object that can change and still refer to the same ones: a tensor, an
            array, a random generator, an iterator, one with a ``state_dict``, or one of a type written in C.
    """

    def __init__(self, value: Any, index: ObjectIndex) -> None:
        self._value = value
        self._contents: list[tuple[_Watch, Any, list[Any]]] = []
        self.paths: dict[int, str | None] = {}
        """By id: the path at which the walk has met each object; ``None`` where it has no need of it."""
        rows, left = Rows(), [value]
        while left:
            item = left.pop()
            if id(item) in self.paths or type(item) in LEAVES:
                continue
            self.paths[id(item)] = index.paths.get(id(item))
            watch = rows[type(item)][0].watch
            refers = watch(item)
            if refers is None or len(self._contents) == _MOST_OBJECTS:
                raise CannotWatch
            self._contents.append((watch, item, refers))
            left += refers

    def shows(self, value: Any) -> bool:
        """Whether ``value`` is the object that it was, and nothing that it reaches has changed."""
        return value is self._value and all(
            _identical(watch(item), before) for watch, item, before in self._contents
        )


class CannotWatch(Exception):
    """Identity does not show all changes of a value."""


def _identical(now: list[Any] | None, before: list[Any]) -> bool:
    return now is not None and len(now) == len(before) and all(map(is_, now, before))


@dataclass(frozen=True)
class Variable:
    """A variable right after its file's import."""

    tree: Tree
    met: ObjectIndex
    """The objects that were first met in it."""
    snapshot: Snapshot | None
    """What shows that it has not changed; ``None`` if only its tree can."""


@dataclass(frozen=True)
class Pristine:
    """A file right after its import."""

    owners: Sequence[Owner]
    """The file and its classes."""
    variables: Mapping[str, Mapping[str, Variable]]
    """By owner: its variables by name."""
    fixed: Mapping[str, Mapping[str, Any]]
    """By owner: what has not to be looked into as long as it is bound as here."""
    functions: Mapping[str, FunctionType]
    """The functions that kept nothing, by their paths in the graph of objects."""
    index: ObjectIndex
    """The objects that it kept."""
    arrays: Sequence[Any]
    """The tensors and arrays among them."""
    not_carried: Sequence[str]
    """The paths of what cannot be carried. It may only stay as it is."""
    watched: Watched = field(default_factory=dict)
    """The same with its fingerprints."""
    rebound: dict[str, Any] = field(default_factory=dict)
    """By path: what a variable was bound to in the unit that can be neither carried nor put back."""
    spoiled: list[str] = field(default_factory=list)
    """What has changed of that, for errors: every later unit of this process would begin with it."""

    def watch(self) -> None:
        """Take the fingerprints. All files of the walk must have been met: a fingerprint does not look into
        what any of them keeps."""
        objects = {path: self.index.objects[path] for path in self.not_carried}
        self.watched.update(watch(objects, self.index.paths))


def pristine(module: ModuleType, encoder: Encoder) -> Pristine:
    owners = _owners(module)
    variables = {
        owner.name: {
            **{name: _variable(encoder, owner, name, value) for name, value in owner.own().items()},
            **{name: _plain_function(encoder, owner, name, f) for name, f in owner.plain_functions().items()},
        }
        for owner in owners
    }
    fixed = {owner.name: owner.fixed() for owner in owners}
    functions = {f"{o.name}/{name}": value for o in owners for name, value in o.plain_functions().items()}
    known = encoder.index.objects.values()
    arrays = [value for value in known if isinstance(value, Tensor | np.ndarray)]
    opaque = [path for path in encoder.index.opaque if path.startswith(tuple(f"{o.name}/" for o in owners))]
    large = [
        f"{owner}/{name}"
        for owner, of_owner in variables.items()
        for name, variable in of_owner.items()
        if size_in_bytes(variable.tree) > _LARGEST
    ]
    return Pristine(owners, variables, fixed, functions, encoder.index, arrays, [*opaque, *large])


def _variable(encoder: Encoder, owner: Owner, name: str, value: Any) -> Variable:
    before = encoder.index.size()
    tree = cloned(tree_of(encoder, owner, name, value))
    try:
        snapshot = Snapshot(value, encoder.index)
    except CannotWatch:
        snapshot = None
    return Variable(tree, encoder.index.since(before), snapshot)


def _plain_function(encoder: Encoder, owner: Owner, name: str, function: FunctionType) -> Variable:
    """A function that keeps nothing: as such it is restored when a unit has given it attributes."""
    tree_of(encoder, owner, name, function)  # so that it is known to be this one
    parts = encoder.parts(parts_of_function(function), f"{owner.name}/{name}")
    tree = {TAG: FUNCTION.name, "type": name_of(FunctionType), **parts}
    return Variable(tree, ObjectIndex(), None)


def tree_of(encoder: Encoder, owner: Owner, name: str, value: Any) -> Tree:
    return encoder.attributes({name: value}, owner.name).get(name, opaque(value))


def is_constant(tree: Tree) -> bool:
    return (type(tree) is dict and tree.get(TAG) == OPAQUE.name) or size_in_bytes(tree) > _LARGEST
