"""The table of kinds: a row for each kind of value that hops, tried in this order."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from cerebro_elastic.hop.instances import attributes_of, set_attributes
from cerebro_elastic.hop.objects.container_kinds import CONTAINERS
from cerebro_elastic.hop.objects.kinds import (
    TAG,
    Decodes,
    Encodes,
    Kind,
    NotSerializable,
    Tree,
    carries_itself,
    class_named,
    is_made_empty,
    is_simple,
    name_of,
    torchs,
)
from cerebro_elastic.hop.objects.value_kinds import GENERATORS, VALUES
from cerebro_elastic.registry import is_users

_CONSTANT = frozenset(("functools", "inspect", "logging", "re", "threading", "typing"))
"""Modules of Python whose objects are not data."""


class _CarriesItself(Kind):
    """Objects with ``state_dict`` and ``load_state_dict`` that a constructor has made."""

    def tree(self, value: Any, path: str, walk: Encodes) -> Tree | None:
        with walk.whole():
            state = walk.named(dict(value.state_dict()), f"{path}/state")
        return {TAG: self.name, "class": name_of(type(value)), "value": state}

    def value(self, present: Any, tree: Tree, path: str, walk: Decodes) -> Any:
        if name_of(type(present)) != tree["class"]:
            raise NotSerializable(f"was a {tree['class']}, is now a {name_of(type(present))}")
        value = walk.keep(path, present)
        value.load_state_dict(walk.named(tree["value"], f"{path}/state"))
        return value


class _Objects(Kind):
    """Objects of the user's classes: an attribute that cannot hop stays as the constructor has made it."""

    def tree(self, value: Any, path: str, walk: Encodes) -> Tree | None:
        taken_apart = walk.named if walk.strict else walk.attributes
        own = taken_apart(attributes_of(value), path)
        return {TAG: self.name, "type": name_of(type(value)), "value": own}

    def value(self, present: Any, tree: Tree, path: str, walk: Decodes) -> Any:
        value = self.present_or_empty(present, tree, path, walk)
        set_attributes(value, walk.own(attributes_of(value), tree["value"], path))
        return value


class _Whole(Kind):
    """Objects of libraries: a part of one may be useless alone."""

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
    return is_simple(kind) and kind.__module__ not in _CONSTANT


def _is_users_object(kind: type) -> bool:
    """Torch's schedulers and scikit-learn's estimators, too, have attributes that training makes, such as the
    loss of an ``SGDClassifier``, an object of C that each ``partial_fit`` makes again."""
    torchs_own = issubclass(kind, torchs("optim.lr_scheduler.LRScheduler"))
    return _is_object(kind) and (is_users(kind) or torchs_own or kind.__module__.startswith("sklearn."))


OPAQUE = _Opaque("opaque", lambda _: True)

_KINDS: tuple[Kind, ...] = (
    *VALUES,
    *GENERATORS,
    *CONTAINERS,
    _CarriesItself("state dict", carries_itself),
    _Objects("object", _is_users_object),
    _Whole("object of a library", _is_object, attributes_of, set_attributes),
    OPAQUE,
)


def kinds_by_name() -> Mapping[str, Kind]:
    """The rows; torch's if it is imported: tasks of numpy's arrays do without."""
    return _rows(bool(torchs("Tensor")))


@functools.cache
def _rows(with_torch: bool) -> Mapping[str, Kind]:
    if not with_torch:
        return {kind.name: kind for kind in _KINDS}
    from cerebro_elastic.hop.objects.tensor_kinds import TENSORS

    return {kind.name: kind for kind in (*TENSORS, *_KINDS)}


@functools.cache
def _made(with_torch: bool) -> Mapping[str, Any]:
    return {name_of(made): made for kind in _rows(with_torch).values() for made in kind.made}


class Rows(dict[type, tuple[Kind, ...]]):
    """The rows that fit the values of a type. One walk looks for those of each type once."""

    def __missing__(self, kind: type) -> tuple[Kind, ...]:
        self[kind] = rows = tuple(row for row in kinds_by_name().values() if row.matches(kind))
        return rows


def makeable(name: str) -> Any:
    """The type of this full name if its values are made without a constructor; ``None`` without one."""
    if (made := _made(bool(torchs("Tensor"))).get(name)) is not None:
        return made
    found = class_named(name)
    return found if found is not None and is_made_empty(found) else None
