"""The table of kinds: a row for each kind of value that a user's code may keep, tried in this order.

The last rows, of functions and of objects that are no more than their attributes, are made here.
"""

from __future__ import annotations

import argparse
import functools
import inspect
import types
from collections.abc import Mapping
from types import CellType, FunctionType, MethodType
from typing import Any

from torch.optim.lr_scheduler import LRScheduler

from cerebro_elastic.data.user_state import in_cell
from cerebro_elastic.registry import is_users
from cerebro_elastic.system.torch_internals import made_by_compiler
from cerebro_elastic.training.equality import values_equal
from cerebro_elastic.training.objects.container_kinds import CONTAINERS, of_dict
from cerebro_elastic.training.objects.kinds import (
    CONSTANT,
    TAG,
    Decodes,
    Encodes,
    Kind,
    NotSerializable,
    Tree,
    attributes_of,
    carries_itself,
    has_state,
    is_made_empty,
    is_simple,
    name_of,
    of,
    set_attributes,
)
from cerebro_elastic.training.objects.library_kinds import BUFFERS, GENERATORS, ITERATOR, KEEPERS, VALUES
from cerebro_elastic.training.objects.opaque import is_harmless
from cerebro_elastic.training.objects.tensor_kinds import TENSORS

_WRAPPED = "__wrapped__"
_CLOSURE, _DEFAULTS, _KEYWORDS = "__closure__", "__defaults__", "__kwdefaults__"


def parts_of_function(function: FunctionType) -> dict[str, Any]:
    """What a function keeps. Cells are objects: several functions may close over one variable."""
    names = function.__code__.co_freevars
    cells = zip(names, function.__closure__ or (), strict=True)
    own = {k: v for k, v in vars(function).items() if k != _WRAPPED and not made_by_compiler(k)}
    return {
        _CLOSURE: tuple(cell for name, cell in cells if name != "__class__"),
        _DEFAULTS: function.__defaults__,
        _KEYWORDS: function.__kwdefaults__,
        **own,
    }


def _put_function(function: FunctionType, parts: dict[str, Any]) -> None:
    """All but the cells, which have got their values."""
    own = {name: value for name, value in parts.items() if name not in (_CLOSURE, _DEFAULTS, _KEYWORDS)}
    function.__defaults__, function.__kwdefaults__ = parts[_DEFAULTS], parts[_KEYWORDS]
    for name in vars(function).keys() - own.keys() - {_WRAPPED}:
        del vars(function)[name]
    vars(function).update(own)


def _kept_by_function(function: FunctionType) -> dict[str, Any] | None:
    return parts_of_function(function) if is_users(function) and has_state(function) else None


def _of_function(function: FunctionType) -> list[Any]:
    if not is_users(function):
        return []
    attributes = {name: item for name, item in vars(function).items() if name != _WRAPPED}
    return [
        *(function.__closure__ or ()), function.__defaults__, function.__kwdefaults__, *of_dict(attributes)
    ]  # fmt: skip


def _put_cell(cell: CellType, content: list[Any]) -> None:
    for item in content:
        cell.cell_contents = item


def _parts_of_method(method: MethodType) -> dict[str, Any] | None:
    """A bound method has no identity: Python binds it anew at each access."""
    name = method.__func__.__name__
    if inspect.getattr_static(type(method.__self__), name, None) is not method.__func__:
        return None
    return {"name": name, "self": method.__self__}


def _bound(_: type, parts: dict[str, Any]) -> MethodType:
    name, owner = parts["name"], parts["self"]
    function = inspect.getattr_static(type(owner), name, None)
    if not isinstance(function, FunctionType):
        raise NotSerializable(f"was the method {name}, which a {name_of(type(owner))} has not")
    return MethodType(function, owner)


def _of_partial(value: Any) -> list[Any] | None:
    return [value.func, value.args, value.keywords] if type(value) is functools.partial else None


def _of_instance(value: Any) -> list[Any]:
    return [type(value), *of_dict(attributes_of(value))]


class _CarriesItself(Kind):
    """Objects with ``state_dict`` and ``load_state_dict``."""

    def tree(self, value: Any, path: str, walk: Encodes) -> Tree | None:
        with walk.whole():
            state = walk.named(dict(value.state_dict()), f"{path}/state")
        tree = {TAG: self.name, "type": name_of(type(value)), "value": state}
        if is_users(type(value)) and (left_out := _left_out(value, state, path, walk)):
            tree["attributes"] = left_out
        return tree

    def value(self, present: Any, tree: Tree, path: str, walk: Decodes) -> Any:
        value = self.present_or_empty(present, tree, path, walk)
        value.load_state_dict(walk.named(tree["value"], f"{path}/state"))
        left_out = walk.named(tree.get("attributes", {}), path)
        set_attributes(value, {**attributes_of(value), **left_out})
        return value


def _left_out(value: Any, state: Tree, path: str, walk: Encodes) -> dict[str, Tree]:
    """The trees of the attributes that the state dict of ``value`` leaves out. Its class answers for those
    that have none."""
    left_out: dict[str, Tree] = {}
    for name, item in attributes_of(value).items():
        lost = len(walk.lost)
        try:
            with walk.whole():
                tree = walk.tree(item, f"{path}/{name}")
        except NotSerializable:
            continue
        if len(walk.lost) > lost:
            del walk.lost[lost:]
        elif not any(values_equal(tree, kept) for kept in state.values()):
            left_out[name] = tree
    return left_out


class _Whole(Kind):
    """Objects of libraries: a part of one may mean nothing by itself."""

    def tree(self, value: Any, path: str, walk: Encodes) -> Tree | None:
        try:
            with walk.whole():
                return super().tree(value, path, walk)
        except NotSerializable:
            return None


def opaque(value: Any) -> Tree:
    """The tree of a value that stays as a constructor has made it."""
    return {TAG: OPAQUE.name, "value": name_of(type(value))}


class _Opaque(Kind):
    """All the rest."""

    def tree(self, value: Any, path: str, walk: Encodes) -> Tree | None:
        return walk.opaque(value, path)

    def value(self, present: Any, tree: Tree, path: str, walk: Decodes) -> Any:
        if name_of(type(present)) != tree["value"]:
            raise NotSerializable(f"was a {tree['value']}, is now a {name_of(type(present))}")
        return walk.keep(path, present)


def _is_object(kind: type) -> bool:
    return is_simple(kind) and kind.__module__ not in CONSTANT


def _is_users_object(kind: type) -> bool:
    return _is_object(kind) and (is_users(kind) or issubclass(kind, LRScheduler))


def _attributes_or_none(value: Any) -> dict[str, Any] | None:
    attributes = attributes_of(value)
    return attributes if attributes or type(value) is types.SimpleNamespace else None


FUNCTION = Kind("function", of(FunctionType), _kept_by_function, _put_function, watch=_of_function)

FUNCTIONS = (
    FUNCTION,
    Kind(
        "partial", of(functools.partial), lambda value: [value.func, value.args, value.keywords],
        lambda value, parts: value.__setstate__((*parts, vars(value))), watch=_of_partial,
    ),
    Kind("cell", of(CellType), in_cell, _put_cell, made=(CellType,), watch=in_cell),
    Kind(
        "method", of(MethodType), _parts_of_method, build=_bound, made=(MethodType,), identity=False,
        watch=lambda method: [method.__func__, method.__self__],
    ),
)  # fmt: skip

OPAQUE = _Opaque(
    "opaque", lambda _: True,
    watch=lambda value: [] if is_harmless(value) or type(value).__module__ in CONSTANT else None,
)  # fmt: skip

OBJECTS = (
    _CarriesItself("state dict", carries_itself),
    Kind("object", _is_users_object, attributes_of, set_attributes, watch=_of_instance),
    _Whole(
        "object of a library", _is_object, _attributes_or_none, set_attributes,
        made=(types.SimpleNamespace, argparse.Namespace),
        watch=lambda value: [] if is_harmless(value) else _of_instance(value),
    ),
    OPAQUE,
)  # fmt: skip


KINDS: tuple[Kind, ...] = (
    *TENSORS, *VALUES, *GENERATORS, *KEEPERS, *BUFFERS, *CONTAINERS, ITERATOR, *FUNCTIONS, *OBJECTS
)  # fmt: skip

BY_NAME = {kind.name: kind for kind in KINDS}

_MADE = {name_of(made): made for kind in KINDS for made in kind.made}


class Rows(dict[type, tuple[Kind, ...]]):
    """The rows that fit the values of a type. One walk looks for those of each type once."""

    def __missing__(self, kind: type) -> tuple[Kind, ...]:
        self[kind] = rows = _fitting(kind) if is_users(kind) else _fitting_library(kind)
        return rows


def _fitting(kind: type) -> tuple[Kind, ...]:
    return tuple(row for row in KINDS if row.matches(kind))


_fitting_library = functools.lru_cache(maxsize=4096)(_fitting)
"""Not of classes of the user's: they come and go, with all that their files keep."""


def makeable(name: str, classes: Mapping[str, type]) -> Any:
    """What makes values without a constructor: a type of libraries, or one of the user's ``classes``, by its
    name. ``None`` if there is none."""
    defined = classes.get(name)
    return defined if defined is not None and is_made_empty(defined) else _MADE.get(name)
