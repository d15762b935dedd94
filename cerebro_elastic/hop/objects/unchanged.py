"""Whether a value that does not hop is as it was, as far as is cheap to see. Nothing here imports torch.

A digest is of all that a value leads to: containers, small arrays and tensors, generators, functions, and
objects of the user's classes. Objects of libraries, iterators and large arrays are not looked into.
"""

from __future__ import annotations

import array
import hashlib
import marshal
import types
from collections import deque
from collections.abc import Callable
from functools import partial
from math import prod
from types import FunctionType, MethodType
from typing import Any

import numpy as np

from cerebro_elastic.data.user_state import in_cell
from cerebro_elastic.hop.instances import attributes_of, made_by_compiler
from cerebro_elastic.hop.objects.kinds import torchs
from cerebro_elastic.hop.objects.value_kinds import GENERATORS, PLAIN_VALUES
from cerebro_elastic.registry import is_users

_PLAIN = (type(None), bool, int, float, complex, str, bytes, np.generic)
_MARSHALLED = {type(None), bool, int, float, complex, str, bytes}
_LARGEST = 1 << 20
"""In bytes: an array or a tensor that is larger is not looked into."""
_LONGEST = 100_000
"""The items of a container that is looked into."""


def token(value: Any) -> tuple[Any, ...]:
    """Another one if ``value`` is another object, or has another length, or if other values are in a small
    array or table."""
    try:
        length = len(value)
    except Exception:  # a library's object may raise anything
        length = None
    holds = isinstance(value, bytearray | array.array) or hasattr(type(value), "__array__")
    return type(value).__qualname__, id(value), length, digest(value) if holds else None


def digest(value: Any) -> str:
    """Equal, as a rule, while ``value`` does not change."""
    return Walk().digest(value)


class Walk:
    """A walk over values and all that they lead to, up to a number of objects."""

    def __init__(self, most: float = float("inf")) -> None:
        self._left = most
        self._seen: dict[int, tuple[str, Any]] = {}

    def digest(self, value: Any, name: str = "") -> str:
        """That of a value of this name. A value met under another name counts there."""
        self._hash, self._name, self._first = hashlib.blake2b(digest_size=16), name, len(self._seen)
        self._add(value)
        return self._hash.hexdigest()

    def _add(self, value: Any) -> None:
        if isinstance(value, _PLAIN):
            self._say(type(value).__qualname__, value)
        elif (met := self._seen.get(id(value))) is not None:
            self._say("same", met[0])
        else:
            self._seen[id(value)] = f"{self._name} {len(self._seen) - self._first}", value
            self._add_parts(value)

    def _add_parts(self, value: Any) -> None:
        self._left -= 1
        parts = _parts(value) if self._left >= 0 else None
        self._say(type(value).__qualname__)
        if isinstance(parts, bytes):
            self._hash.update(parts)
        elif parts is None:
            self._say(id(value))
        elif _MARSHALLED.issuperset(map(type, parts)):
            self._hash.update(marshal.dumps(parts, 2))  # of version 2: equal values have equal bytes
        else:
            for part in parts:
                self._add(part)

    def _say(self, *words: object) -> None:
        self._hash.update(f"{words!r};".encode())


def _parts(value: Any) -> list[Any] | bytes | None:
    """A value's parts; ``None``: they are not compared."""
    try:
        if isinstance(value, dict | list | deque | set | tuple | frozenset) and len(value) > _LONGEST:
            return None
        return next((parts(value) for fits, parts in _ROWS if fits(value)), None)
    except Exception:  # a class of a user or a library may raise anything
        return None


def _place(item: Any) -> str:
    """A sort key for an item of a set, independent of the set's order."""
    return repr(item if isinstance(item, _PLAIN) else id(item))


def _of_mapping(value: dict[Any, Any]) -> list[Any]:
    return [*value, *value.values()]


def _of_instance(value: Any) -> list[Any]:
    return _of_mapping(attributes_of(value))


def _of_function(function: FunctionType) -> list[Any]:
    """Its code, defaults, attributes, and the values of its closure."""
    own = {name: item for name, item in vars(function).items() if not made_by_compiler(name)}
    cells = [item for cell in function.__closure__ or () for item in in_cell(cell)]
    kept = (function.__defaults__, function.__kwdefaults__, own)
    return [id(function.__code__), *(part for part in kept if part), *cells]


def _of_array(value: Any) -> list[Any] | bytes | None:
    """The content of an array, or of an object that converts to one, such as a table of pandas or polars."""
    if getattr(value, "nbytes", 8 * prod(value.shape)) > _LARGEST:
        return None
    content = np.asarray(value)
    kind = f"{content.dtype} {content.shape}"
    if not content.dtype.hasobject:
        return kind.encode() + content.tobytes()
    # A table makes its items at each look.
    return [kind, *content.flat] if content is value else [kind, repr(content.tolist())]


def _of_tensor(tensor: Any) -> list[Any] | bytes | None:
    plain = str(tensor.layout) == "torch.strided" and tensor.device.type != "meta"
    if not plain or tensor.nbytes > _LARGEST:
        return None
    return [str(tensor.dtype), tuple(tensor.shape), tensor.detach().cpu().reshape(-1).tolist()]


def _is_generator(value: Any) -> bool:
    return any(kind.matches(type(value)) for kind in GENERATORS)


def _of_generator(value: Any) -> list[Any]:
    return [kind.parts(value) for kind in GENERATORS if kind.matches(type(value))]


def _is_users_object(value: Any) -> bool:
    return not isinstance(value, type) and (is_users(type(value)) or isinstance(value, types.SimpleNamespace))


_ROWS: tuple[tuple[Callable[[Any], bool], Callable[[Any], list[Any] | bytes | None]], ...] = (
    (lambda v: isinstance(v, dict), _of_mapping),
    (lambda v: isinstance(v, list | deque | tuple), list),
    (lambda v: isinstance(v, set | frozenset), lambda v: sorted(v, key=_place)),
    (lambda v: isinstance(v, bytearray | array.array), lambda v: bytes(v) if len(v) <= _LARGEST else None),
    (lambda v: isinstance(v, PLAIN_VALUES), lambda v: repr(v).encode()),
    (lambda v: isinstance(v, np.ndarray), _of_array),
    (lambda v: isinstance(v, torchs("Tensor")), _of_tensor),
    (_is_generator, _of_generator),
    (lambda v: isinstance(v, torchs("Generator")), lambda v: v.get_state().tolist()),
    (lambda v: isinstance(v, FunctionType) and is_users(v), _of_function),
    (lambda v: isinstance(v, MethodType), lambda v: [v.__func__, v.__self__]),
    (lambda v: isinstance(v, partial), lambda v: [v.func, v.args, v.keywords]),
    (lambda v: isinstance(v, torchs("nn.Module")) or _is_users_object(v), _of_instance),
    (lambda v: isinstance(getattr(v, "variables", None), list), lambda v: list(v.variables)),
    (lambda v: hasattr(type(v), "__array__"), _of_array),
)
"""How values are looked into, tried in this order."""
