"""Objects as trees of plain values and arrays, and back. Nothing is pickled: an object is taken apart as
``copy`` does it (``__reduce_ex__``), and only what the named libraries and the user's own module define is
made again."""

from __future__ import annotations

import copyreg
import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import numpy as np

from cerebro_elastic.errors import CheckpointError, TaskError

_MAKERS = {"copyreg:__newobj__": copyreg.__newobj__}  # type: ignore[attr-defined]
_PLAIN = (str, bytes, bool, int, float, complex, type(None), np.generic, np.dtype)
_OBJECT, _SAME, _NAMED, _DTYPE = "object", "same", "named", "dtype"


class ObjectEncoder:
    """One walk over an object and all that it holds. Arrays and objects that are met twice stay the same."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}
        self._kept: list[Any] = []

    def tree(self, value: Any, path: str = "value") -> Any:
        """The value as a tree. Raises ``TaskError`` naming what cannot be taken apart."""
        if isinstance(value, np.dtype):
            return {_DTYPE: value.str}
        if isinstance(value, _PLAIN):
            return value
        if isinstance(value, type) or (callable(value) and hasattr(value, "__qualname__")):
            return {_NAMED: _name(value, path)}
        if id(value) in self._numbers:
            return {_SAME: self._numbers[id(value)]}
        if isinstance(value, tuple):
            return tuple(self.tree(item, f"{path}[{at}]") for at, item in enumerate(value))
        number = self._numbers[id(value)] = len(self._kept)
        self._kept.append(value)  # so that no other object gets its id
        if isinstance(value, np.ndarray) and value.dtype != object:
            return {_OBJECT: [number, "array", value]}
        if isinstance(value, np.ndarray):
            return {_OBJECT: [number, "objects", value.shape, self.tree(value.ravel().tolist(), path)]}
        if isinstance(value, list):
            return {_OBJECT: [number, "list", [self.tree(v, f"{path}[{at}]") for at, v in enumerate(value)]]}
        if type(value) is dict:
            pairs = [[self.tree(key), self.tree(item, f"{path}[{key!r}]")] for key, item in value.items()]
            return {_OBJECT: [number, "dict", pairs]}
        return {_OBJECT: [number, "made", *self._reduced(value, path)]}

    def _reduced(self, value: Any, path: str) -> list[Any]:
        try:
            make, args, *rest = value.__reduce_ex__(2)
        except (TypeError, ValueError) as exc:
            raise TaskError(
                f"{path} is a {type(value).__module__}.{type(value).__qualname__}, which cannot be taken "
                f"apart ({exc}): its attributes must be numbers, arrays and objects of such"
            ) from exc
        state, *iterators = (*rest, None)[:1] + tuple(rest[1:])
        if any(each is not None for each in iterators[:2]):
            raise TaskError(f"{path} is a {type(value).__qualname__}, a list or dict of its own kind")
        return [f"{make.__module__}:{make.__qualname__}", self.tree(args, path), self.tree(state, path)]


class ObjectDecoder:
    """Makes objects again, of the user's ``module`` and of ``libraries``, prefixes of modules' names. Of the
    libraries' functions none is called but those that unpickle an object."""

    def __init__(self, module: str, libraries: tuple[str, ...]) -> None:
        self._module = module
        self._libraries = libraries
        self._made: dict[int, Any] = {}

    def value(self, tree: Any) -> Any:
        """The value of a tree. Raises ``CheckpointError`` for a class that is none of these."""
        if isinstance(tree, tuple):
            return tuple(map(self.value, tree))
        if not isinstance(tree, Mapping):
            return tree
        ((tag, content),) = tree.items()
        if tag == _SAME:
            return self._made[content]
        if tag == _DTYPE:
            return np.dtype(content)
        if tag == _NAMED:
            return self._named(content)
        number, kind, *parts = content
        if kind == "array":
            return self._keep(number, parts[0])
        if kind == "objects":
            objects = self._keep(number, np.empty(parts[0], object))
            objects.ravel()[:] = self.value(parts[1])
            return objects
        if kind == "list":
            items: list[Any] = self._keep(number, [])
            items.extend(map(self.value, parts[0]))
            return items
        if kind == "dict":
            pairs: dict[Any, Any] = self._keep(number, {})
            pairs.update((self.value(key), self.value(item)) for key, item in parts[0])
            return pairs
        make, args, state = parts
        made = self._keep(number, self._maker(make)(*self.value(args)))
        return _with_state(made, self.value(state))

    def _keep(self, number: int, value: Any) -> Any:
        self._made[number] = value
        return value

    def _maker(self, name: str) -> Any:
        return _MAKERS.get(name) or self._named(name)

    def _named(self, name: str) -> Any:
        module, _, qualified = name.partition(":")
        plain = module in (self._module, "numpy", "builtins")
        known = plain or module.startswith(self._libraries)
        found: Any = import_module(module) if known else None
        for part in qualified.split(".") if known else ():
            found = getattr(found, part, None)
        makes = isinstance(found, type) or qualified.startswith("__pyx_unpickle")
        if found is None or not (makes or module in ("numpy.random._pickle", self._module)):
            raise CheckpointError(
                f"the state has a {name}, which is not made again: classes of "
                f"{', '.join(self._libraries)}, numpy and {self._module} are. Train a torch module that such "
                "an object wraps, as skorch's do, with `kind: torch`"
            )
        return found


def _name(value: Any, path: str) -> str:
    """The name by which a class or function is found again."""
    found: Any = sys.modules.get(value.__module__ or "")
    for part in value.__qualname__.split("."):
        found = getattr(found, part, None)
    if found is not value:
        raise TaskError(
            f"{path} is {value.__qualname__}, which is not found by this name in {value.__module__}: a "
            "function of a state must be one of a module's own, and no lambda, closure or method of an object"
        )
    return f"{value.__module__}:{value.__qualname__}"


def _with_state(made: Any, state: Any) -> Any:
    if state is None:
        return made
    if hasattr(made, "__setstate__"):
        made.__setstate__(state)
        return made
    own, slots = state if isinstance(state, tuple) else (state, None)
    for name, value in {**(own or {}), **(slots or {})}.items():
        setattr(made, name, value)
    return made
