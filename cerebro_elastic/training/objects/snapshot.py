"""Whether all objects that a value reaches are as they were, seen by identity alone.

An encoder takes objects apart to write them down. To see that nothing has changed, it is enough that each
object refers to the same objects as before: that is ten times as fast.
"""

from __future__ import annotations

import functools
import queue
from collections import deque
from collections.abc import Callable, Mapping
from enum import Enum
from operator import is_
from types import CellType, FunctionType, MethodType, ModuleType
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn

from cerebro_elastic.training.objects import value_types
from cerebro_elastic.training.objects.keepers import keeper_of
from cerebro_elastic.training.objects.object_index import ObjectIndex
from cerebro_elastic.training.objects.opaque import is_harmless

_Read: TypeAlias = Callable[[Any], list[Any]]
_MOST_OBJECTS = 5_000

_OF_THEIR_OWN = (
    Tensor, np.ndarray, nn.Module, dict, list, set, frozenset, tuple, deque, queue.Queue, WeakKeyDictionary,
    *value_types.GENERATORS, *value_types.BUFFERS,
)  # fmt: skip
"""Types, with their subclasses, that keep more than their attributes."""


class Snapshot:
    """What the objects that a value reaches refer to. ``index`` is of the walk that has just met them.

    Raises:
        CannotWatch: It reaches an object that can change and still refer to the same ones: a tensor, an
            array, a random generator, an iterator, one with a ``state_dict``, or one of a type written in C.
    """

    def __init__(self, value: Any, index: ObjectIndex) -> None:
        self._value = value
        self._contents: list[tuple[_Read, Any, list[Any]]] = []
        self.paths: dict[int, str | None] = {}
        """By id: the path at which the walk has met each object; ``None`` where it has no need of it."""
        left = [value]
        while left:
            item = left.pop()
            if id(item) in self.paths or type(item) in value_types.LEAVES:
                continue
            self.paths[id(item)] = index.paths.get(id(item))
            read = _reader(item)
            self._contents.append((read, item, read(item)))
            left += self._contents[-1][-1]
            if len(self._contents) > _MOST_OBJECTS:
                raise CannotWatch

    def shows(self, value: Any) -> bool:
        """Whether ``value`` is the object that it was, and nothing that it reaches has changed."""
        return value is self._value and all(
            _identical(read(item), before) for read, item, before in self._contents
        )


class CannotWatch(Exception):
    """Identity does not show all changes of a value."""


def _identical(now: list[Any], before: list[Any]) -> bool:
    return len(now) == len(before) and all(map(is_, now, before))


def _reader(value: Any) -> _Read:
    """A function that lists what ``value`` refers to: all that its tree depends on."""
    kind = type(value)
    if kind in _READERS:
        return _READERS[kind]
    if isinstance(value, Enum | type) or kind in _FIXED:
        return _nothing
    if isinstance(value, np.generic) and value.dtype.kind in "biufc":
        return _nothing
    if (
        isinstance(value, _OF_THEIR_OWN)
        or hasattr(kind, "__next__")
        or kind in value_types.VALUE_TYPES
        or value_types.carries_itself(value)
        or keeper_of(value) is not None
    ):
        raise CannotWatch
    if is_harmless(value) or kind.__module__ in value_types.CONSTANT:
        return _nothing
    if not value_types.is_simple(kind):
        raise CannotWatch
    return _of_instance


def _nothing(_: Any) -> list[Any]:
    return []


def _of_dict(value: Mapping[Any, Any]) -> list[Any]:
    return [*value, *value.values()]


def _of_function(value: FunctionType) -> list[Any]:
    if not value_types.is_users(value):
        return []
    attributes = {name: item for name, item in vars(value).items() if name != "__wrapped__"}
    return [*(value.__closure__ or ()), value.__defaults__, value.__kwdefaults__, *_of_dict(attributes)]


def _of_cell(cell: CellType) -> list[Any]:
    try:
        return [cell.cell_contents]
    except ValueError:  # it is empty
        return []


def _of_instance(value: Any) -> list[Any]:
    return [type(value), *_of_dict(value_types.attributes_of(value))]


_READERS: dict[type, _Read] = {
    list: list,
    tuple: list,
    set: list,
    frozenset: list,
    dict: _of_dict,
    ModuleType: _nothing,
    FunctionType: _of_function,
    MethodType: lambda method: [method.__func__, method.__self__],
    functools.partial: lambda partial: [partial.func, partial.args, partial.keywords],
    CellType: _of_cell,
}

_FIXED = {torch.device} | {
    kind
    for name, kind in value_types.VALUES.items()
    if name not in ("datetime.datetime", "datetime.time", "builtins.slice")
}
"""Values that refer to nothing that can change."""
