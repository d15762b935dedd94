"""Whether objects of the user's code have changed, for tasks that do not import torch.

A digest covers what training code keeps beside its framework's state: numbers, containers, arrays,
variables, random generators, iterators, closures, and attributes of the user's classes. An object of a
library that is none of these counts as changed if it is another object.
"""

from __future__ import annotations

import functools
import hashlib
import random
import sys
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from types import FunctionType, GeneratorType, MethodType, ModuleType
from typing import Any

import numpy as np

from cerebro_elastic.data.user_state import in_cell
from cerebro_elastic.errors import TaskError
from cerebro_elastic.registry import is_users, is_users_module
from cerebro_elastic.training.equality import values_equal
from cerebro_elastic.training.spoiled import spoil

_PLAIN = (type(None), bool, int, float, complex, str, bytes, np.generic)
_LARGEST = 1 << 20
"""In bytes: an array that is larger is taken to be constant."""


def digest(value: Any) -> str:
    """Equal, as a rule, while ``value`` does not change."""
    walk = _Walk()
    walk.add(value)
    return walk.hash.hexdigest()


class UserGlobals:
    """What the user's files keep in variables, in classes and in functions.

    Args:
        functions: The user's functions: their files count, and the user's files that these import.
    """

    def __init__(self, functions: Iterable[Callable[..., Any]]) -> None:
        self._modules: list[ModuleType] = []
        for function in functions:
            if hasattr(function, "__module__") and is_users(function):
                self._find(sys.modules[function.__module__])
        self._before = self._tokens()

    def check(self) -> None:
        """Raise ``TaskError`` if any has changed since this object was made."""
        now, before = self._tokens(), self._before
        changed = sorted(
            name for name in {*now, *before} if not values_equal(now.get(name), before.get(name))
        )
        if changed:
            spoil(changed[0])
            raise TaskError(
                f"{', '.join(changed[:3])} changed in training: what is kept in a global variable, a class "
                "or a function does not hop with a config, and all configs of a rank share it; make it in "
                "the function that makes the model, and keep what changes in the model's state"
            )

    def _find(self, module: ModuleType) -> None:
        if module in self._modules:
            return
        self._modules.append(module)
        for value in list(vars(module).values()):
            if isinstance(value, ModuleType):
                imported: ModuleType | None = value
            else:
                imported = sys.modules.get(getattr(value, "__module__", None) or "")
            if imported is not None and is_users_module(imported.__name__):
                self._find(imported)

    def _tokens(self) -> dict[str, Any]:
        """The digest of each variable; of what can only be bound anew the value itself, which is faster."""
        return {
            f"{module.__name__}.{name}": value if _is_fixed(value) else _Digest(digest(value))
            for module in self._modules
            for name, value in _variables(module, module.__name__)
        }


class _Digest(str):
    __slots__ = ()


def _is_fixed(value: Any) -> bool:
    if isinstance(value, FunctionType):
        return not (value.__closure__ or value.__defaults__ or value.__kwdefaults__ or value.__dict__)
    return isinstance(value, _PLAIN)


def _variables(owner: Any, module: str, prefix: str = "") -> Iterable[tuple[str, Any]]:
    for name, value in list(vars(owner).items()):
        if name.startswith("__") or isinstance(value, ModuleType | property | classmethod | staticmethod):
            continue
        if not isinstance(value, type):
            yield f"{prefix}{name}", value
        elif value.__module__ == module and value.__qualname__ == f"{prefix}{name}":
            yield from _variables(value, module, f"{prefix}{name}.")


class _Walk:
    """One walk over a value and all that it holds."""

    def __init__(self) -> None:
        self.hash = hashlib.blake2b(digest_size=16)
        self._seen: dict[int, Any] = {}

    def add(self, value: Any) -> None:
        if isinstance(value, _PLAIN):
            self._say(f"{type(value).__qualname__} {value!r}")
        elif id(value) in self._seen:
            self._say(f"same {list(self._seen).index(id(value))}")
        else:
            self._seen[id(value)] = value
            self._say(type(value).__qualname__)
            self._add_parts(value)

    def _add_parts(self, value: Any) -> None:
        if isinstance(value, Mapping):
            for key, item in value.items():
                self.add(key)
                self.add(item)
        elif isinstance(value, set | frozenset):
            self._say(sorted(map(repr, value)))
        elif isinstance(value, list | tuple | deque):
            self._say(len(value))
            for item in value:
                self.add(item)
        elif (parts := _parts(value)) is None:
            self._say(id(value))
        elif isinstance(parts, np.ndarray):
            small = parts.nbytes <= _LARGEST and parts.dtype != object
            self._say((parts.dtype, parts.shape))
            self.hash.update(parts.tobytes() if small else b"")
        else:
            self.add(parts)

    def _say(self, text: object) -> None:
        self.hash.update(f"{text!r};".encode())


def _parts(value: Any) -> Any:
    """What of an object may change, as a value to go into; ``None`` if only the object itself may."""
    if isinstance(value, FunctionType):
        return _function_parts(value) if is_users(value) else None
    if isinstance(value, MethodType):
        return [value.__func__, value.__self__]
    if isinstance(value, functools.partial):
        return [value.func, value.args, value.keywords]
    if isinstance(value, random.Random):
        return [value.getstate()]
    if isinstance(value, np.random.RandomState):
        return [value.get_state(legacy=False)]
    if isinstance(value, np.random.Generator):
        seeds = value.bit_generator.seed_seq
        return [value.bit_generator.state, getattr(seeds, "n_children_spawned", 0)]
    if isinstance(value, GeneratorType):
        frame = value.gi_frame
        return [frame and frame.f_lasti, frame and dict(frame.f_locals)]
    if isinstance(value, type):
        return None
    if hasattr(value, "__next__"):
        return _reduced(value)
    if hasattr(value, "__array__") and hasattr(value, "shape"):
        return _array(value)
    if isinstance(variables := getattr(value, "variables", None), list):  # of a part of a framework
        return variables
    return {**vars(value)} if hasattr(value, "__dict__") and is_users(type(value)) else None


def _array(value: Any) -> Any:
    try:
        return np.asarray(value)
    except (RuntimeError, TypeError, ValueError):  # on no host, or with a gradient
        return None


def _function_parts(function: FunctionType) -> list[Any]:
    cells = [item for cell in function.__closure__ or () for item in in_cell(cell)]
    return [cells, function.__defaults__, function.__kwdefaults__, vars(function)]


def _reduced(iterator: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python is about to take this from its iterators
        try:
            return list(iterator.__reduce__()[1:])
        except TypeError:  # it cannot be taken apart
            return None
