"""Patched libraries: what a unit changes in their most patched classes and modules is undone at its end.

A walk over all of torch would take longer than a unit. So some hundred classes and modules are watched.
Python itself numbers their changes: a unit that patches nothing reads one number of each.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import chain
from typing import Any

from cerebro_elastic.registry import is_library
from cerebro_elastic.training._python_internals import versions_of

_MODULES = (
    *(
        "builtins",
        "copy",
        "functools",
        "itertools",
        "json",
        "logging",
        "math",
        "os",
        "pickle",
        "random",
        "time",
    ),
    *("numpy", "numpy.linalg", "numpy.random"),
    *("torch", "torch.autograd", "torch.linalg", "torch.nn.functional", "torch.nn.init", "torch.nn.utils"),
    *("torch.optim", "torch.utils.data", "lightning.pytorch", "jax", "jax.lax", "jax.nn", "jax.random"),
    *("jax.numpy", "optax", "keras.ops", "keras.random"),
)
_CLASSES = (
    *("torch.nn", "torch.optim", "torch.optim.lr_scheduler", "torch.utils.data", "torch.distributions"),
    *("lightning.pytorch", "lightning.pytorch.callbacks", "torchmetrics", "flax.nnx", "flax.linen"),
    *("keras.layers", "keras.losses", "keras.metrics", "keras.optimizers"),
)
"""The public classes of these modules are watched, with all from which they are derived."""
_WATCHED = (*_MODULES, *_CLASSES)
_PLAIN = (bool, int, float, str, type(None))
_DESCRIPTORS = (property, classmethod, staticmethod)
_NOWHERE = object()


class LibraryPatches:
    """The watched classes and modules of this process, and what they consisted of before the unit."""

    def __init__(self) -> None:
        self._before: dict[int, tuple[Any, dict[str, Any]]] = {}
        """By ``id``: a class or module, and its variables by name."""
        self._seen: set[str] = set()
        self._numbers: Callable[[], list[Any]] = list
        self._last: list[Any] = []

    def look(self) -> None:
        """Watch what was imported since the last look."""
        new = [name for name in _WATCHED if name not in self._seen and sys.modules.get(name)]
        if new:
            self._seen.update(new)
            for owner in chain.from_iterable(map(_owners, new)):
                self._before.setdefault(id(owner), (owner, dict(vars(owner))))
            self._number()

    def undo(self, imported: Collection[str]) -> list[str]:
        """Undo what has changed, unless a library has done it by itself: the modules ``imported`` meanwhile
        may have, and optimizers do. Returns the names of what was undone."""
        present = self._numbers()
        if present == self._last and all(present):
            return []
        undone: list[str] = []
        for (owner, before), was, now in zip(self._before.values(), self._last, present, strict=True):
            if was != now or not now:
                undone += _undo(owner, before, imported)
        self._number()
        return undone

    def _number(self) -> None:
        self._numbers = versions_of([owner for owner, _ in self._before.values()])
        self._last = self._numbers()


_PATCHES = LibraryPatches()


def watched() -> LibraryPatches:
    """What is watched in this process."""
    _PATCHES.look()
    return _PATCHES


def _undo(owner: Any, before: dict[str, Any], imported: Collection[str]) -> Iterator[str]:
    """Undo the patches of a class or module. Its other changes are kept: from now on they were before."""
    present = dict(vars(owner))
    for name in {**before, **present}:
        old, new = before.get(name, _NOWHERE), present.get(name, _NOWHERE)
        if old is not new and _is_patch(owner, name, old, new) and not _is_librarys_own(old, new, imported):
            _put(owner, name, old)
            yield f"{_name(owner)}.{name}"
    before.clear()
    before.update(vars(owner))


def _owners(name: str) -> Iterator[Any]:
    module = sys.modules[name]
    if name in _MODULES:
        yield module
    if name in _CLASSES:
        classes = [
            value for public, value in vars(module).items() if public[0] != "_" and isinstance(value, type)
        ]
        for base in chain.from_iterable(kind.__mro__ for kind in classes):
            if base.__flags__ & _HEAP_TYPE:
                yield base


_HEAP_TYPE = 1 << 9
"""In ``type.__flags__``: the class was made by a ``class`` statement, and can be changed."""


def _is_patch(owner: Any, name: str, old: Any, new: Any) -> bool:
    """Whether a change is one of code, or of a public constant. A library sets other variables by itself."""
    if name in ("__annotations__", "__abstractmethods__", "__doc__"):
        return False
    if not isinstance(owner, type) and old is _NOWHERE and owner is not builtins:
        return False  # of a module, imported later
    values = [value for value in (old, new) if value is not _NOWHERE]
    plain = all(isinstance(value, _PLAIN) for value in values)
    return all(map(_is_code, values)) or (plain and name[0] != "_")


def _is_code(value: Any) -> bool:
    return callable(value) or isinstance(value, _DESCRIPTORS)


def _is_librarys_own(old: Any, new: Any, imported: Collection[str]) -> bool:
    """Whether a library has made the change, on its import or its first use."""
    # The ``step`` of an optimizer's class, since its first instance; what ``frozen_prefix.py`` has set.
    if getattr(new, "hooked", False):
        return True
    scope = _scope(new)
    name, file = scope.get("__name__", ""), scope.get("__file__")
    if file and not is_library(file):
        return False
    return name in imported or (bool(imported) and getattr(new, "__wrapped__", _NOWHERE) is old)


def _scope(value: Any) -> Mapping[str, Any]:
    """The global variables of the code that defines a function, or another object that can be called."""
    while not hasattr(value, "__globals__"):
        inner = next(
            (getattr(value, name) for name in ("__func__", "fget", "func") if hasattr(value, name)), None
        )
        if inner is None:
            kind = value if isinstance(value, type) else type(value)
            return vars(sys.modules[kind.__module__]) if kind.__module__ in sys.modules else {}
        value = inner
    scope: Mapping[str, Any] = value.__globals__
    return scope


def _put(owner: Any, name: str, value: Any) -> None:
    if value is _NOWHERE:
        delattr(owner, name)
    else:
        setattr(owner, name, value)


def _name(owner: Any) -> str:
    return f"{owner.__module__}.{owner.__qualname__}" if isinstance(owner, type) else str(owner.__name__)
