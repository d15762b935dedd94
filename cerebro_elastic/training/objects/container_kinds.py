"""Kinds of containers: lists, dicts, sets, tuples, and those derived from them."""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any
from weakref import WeakKeyDictionary, WeakSet, WeakValueDictionary

from cerebro_elastic.training.objects import sets
from cerebro_elastic.training.objects.kinds import (
    TAG,
    Decodes,
    Encodes,
    Kind,
    NotSerializable,
    Tree,
    attributes_of,
    is_key,
    name_of,
    of,
    set_attributes,
)

IN_FILES = ("file ", "class ")
"""How the paths of what the user's files keep begin."""

_FACTORIES = {kind.__name__: kind for kind in (list, dict, set, int, float, str, tuple, bool)}
_DICTS = (OrderedDict, dict, WeakKeyDictionary, WeakValueDictionary)


def of_dict(value: dict[Any, Any]) -> list[Any]:
    """What a dict refers to."""
    return [*value, *value.values()]


def _exactly(kind: type, read: Callable[[Any], list[Any]]) -> Callable[[Any], list[Any] | None]:
    """Of a type derived from ``kind`` nothing is known."""
    return lambda value: read(value) if type(value) is kind else None


class _Plain(Kind):
    """The tree of one of Python's own lists and dicts is a list or a dict of trees."""

    def tree(self, value: Any, path: str, walk: Encodes) -> Tree | None:
        if type(value) not in (list, dict):
            return super().tree(value, path, walk)
        tree = walk.parts(value, path)
        return tree.get("value", {TAG: self.name, "type": "builtins.dict", **tree})


class _Tuples(Kind):
    """The tree of one of Python's own tuples is a tuple of trees."""

    def tree(self, value: Any, path: str, walk: Encodes) -> Tree | None:
        if type(value) is not tuple:
            return super().tree(value, path, walk)
        return tuple(walk.items(value, path))


class _Sets(Kind):
    """Sets of numbers come back in their order. Items have no path: they are plain, or found by name."""

    def tree(self, value: Any, path: str, walk: Encodes) -> Tree | None:
        items = list(value)
        tree: dict[str, Any] = {TAG: self.name, "type": name_of(type(value))}
        if sets.has_order(items):
            tree |= {"value": items, **sets.additions(value)}
        elif all(map(is_key, items)):
            tree["value"] = set(items)
        elif all(is_key(item) or isinstance(item, Enum) or walk.is_known(item) for item in items):
            tree["value"] = sorted((walk.tree(item, f"{path}/item") for item in items), key=str)
        else:
            return None
        if self.attributes and (attributes := attributes_of(value)):
            tree["attributes"] = walk.named(attributes, path)
        return tree

    def value(self, present: Any, tree: Tree, path: str, walk: Decodes) -> Any:
        items: Any = tree["value"] if type(tree["value"]) is set else walk.parts(tree, path)
        ordered = sets.has_order(items)
        items = items if ordered else set(items)
        how = {name: tree[name] for name in ("added", "size") if name in tree}
        if self.identity:
            value = self.present_or_empty(present, tree, path, walk)
            sets.refill(value, items, as_new=walk.as_new)
            if how and (walk.as_new or list(value) != items):
                sets.rebuild(value, items, **how)
            set_attributes(value, walk.named(tree.get("attributes", {}), path))
        else:
            kind = walk.class_of(tree, present)
            same = type(present) is kind and (list(present) if ordered else present) == items
            value = present if same else kind(sets.frozen(list(items), **how))
        if ordered and list(value) != items:
            raise NotSerializable(
                "was a set in an order that depends on what it has held before (the keys of a dict, and a "
                "list, keep their own)"
            )
        return walk.keep(path, value)


@dataclass(frozen=True, eq=False)
class _Weak(Kind):
    """What refers to objects without keeping them: they must be carried elsewhere."""

    refers: Callable[[Any], Iterable[Any]] = list
    in_files: bool = False
    """Whether one in a file of the user's is more than a register of what lives in the process."""

    def tree(self, value: Any, path: str, walk: Encodes) -> Tree | None:
        carried = self.in_files or not path.startswith(IN_FILES)
        if not carried or not all(walk.is_known(item) for item in list(self.refers(value))):
            return None
        tree = super().tree(value, path, walk)
        if tree and isinstance(tree.get("value"), list):
            tree["value"].sort(key=str)  # items lie where their addresses say
        return tree


def _items(value: Any) -> dict[Any, Any]:
    return dict(value.items())


def _fill_dict(present: Any, items: dict[Any, Any]) -> None:
    base: Any = next(kind for kind in _DICTS if isinstance(present, kind))
    base.clear(present)
    for key, item in items.items():  # not update(): that of a Counter counts
        base.__setitem__(present, key, item)


def _factory(value: Any) -> dict[str, Any]:
    """The name of a defaultdict's factory, if the factory can be found by it."""
    factory = getattr(value, "default_factory", None)
    return next(({"factory": name} for name, kind in _FACTORIES.items() if kind is factory), {})


def _empty_dict(kind: Any, tree: Tree) -> Any:
    made = kind.__new__(kind)
    if "factory" in tree:
        made.default_factory = _FACTORIES[tree["factory"]]
    return made


def _fill_list(present: Any, items: list[Any]) -> None:
    base: Any = list if isinstance(present, list) else deque
    base.clear(present)
    base.extend(present, items)


def _fill_weak_set(present: WeakSet[Any], items: list[Any]) -> None:
    present.clear()
    present.update(items)


def _tuple(kind: Any, items: list[Any]) -> Any:
    return kind._make(items) if hasattr(kind, "_make") else kind(items)


CONTAINERS = (
    _Plain(
        "dict", of(dict), _items, _fill_dict, _empty_dict, options=_factory, attributes=True,
        made=(dict, OrderedDict, Counter, defaultdict), watch=_exactly(dict, of_dict),
    ),
    _Plain("list", of(list), list, _fill_list, made=(list,), attributes=True, watch=_exactly(list, list)),
    _Tuples("tuple", of(tuple), list, build=_tuple, identity=False, watch=_exactly(tuple, list)),
    _Sets("set", of(set), made=(set,), attributes=True, watch=_exactly(set, list)),
    _Sets("frozenset", of(frozenset), made=(frozenset,), identity=False, watch=_exactly(frozenset, list)),
    Kind(
        "deque", of(deque), list, _fill_list, lambda _, tree: deque(maxlen=tree.get("longest")),
        options=lambda value: {} if value.maxlen is None else {"longest": value.maxlen},
        made=(deque,), attributes=True,
    ),
    _Weak("weak keys", of(WeakKeyDictionary), _items, _fill_dict, in_files=True),
    _Weak("weak values", of(WeakValueDictionary), _items, _fill_dict, refers=WeakValueDictionary.values),
    _Weak("weak set", of(WeakSet), list, _fill_weak_set),
)  # fmt: skip
