"""Kinds of containers: lists, dicts, sets, tuples, and those derived from them."""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any

from cerebro_elastic.hop.instances import set_attributes
from cerebro_elastic.hop.objects.kinds import TAG, Decodes, Encodes, Kind, Tree, is_key, name_of, of

_FACTORIES = {kind.__name__: kind for kind in (list, dict, set, int, float, str, tuple, bool)}


class _Plain(Kind):
    """The tree of one of Python's own lists and dicts is a list or a dict of trees."""

    def tree(self, value: Any, path: str, walk: Encodes) -> Tree | None:
        if type(value) not in (list, dict):
            return super().tree(value, path, walk)
        tree = walk.parts(value, path)
        return tree.get("value", {TAG: self.name, "type": "builtins.dict", **tree})


def _items_of_tuple(value: tuple[Any, ...]) -> list[Any]:
    """Also of one whose class has no ``len``, as e3nn's."""
    return list(tuple.__iter__(value))


class _Tuples(Kind):
    """The tree of one of Python's own tuples is a tuple of trees."""

    def tree(self, value: Any, path: str, walk: Encodes) -> Tree | None:
        if type(value) is not tuple:
            return super().tree(value, path, walk)
        return tuple(walk.items(value, path))


class _Sets(Kind):
    """Items have no path: they are plain, or known by name. Their order is not carried."""

    def tree(self, value: Any, path: str, walk: Encodes) -> Tree | None:
        items = list(value)
        tree: dict[str, Any] = {TAG: self.name, "type": name_of(type(value))}
        if all(map(is_key, items)):
            tree["value"] = set(items)
        elif all(is_key(item) or isinstance(item, Enum) or walk.is_known(item) for item in items):
            tree["value"] = sorted((walk.tree(item, f"{path}/item") for item in items), key=str)
        else:
            return None
        return self.with_attributes(tree, value, path, walk)

    def value(self, present: Any, tree: Tree, path: str, walk: Decodes) -> Any:
        items = tree["value"] if type(tree["value"]) is set else walk.parts(tree, path)
        if not self.identity:
            return walk.keep(path, walk.class_of(tree, present)(items))
        value = self.present_or_empty(present, tree, path, walk)
        set.clear(value)
        set.update(value, items)
        set_attributes(value, walk.named(tree.get("attributes", {}), path))
        return value


def _items(value: Any) -> dict[Any, Any]:
    return dict(value.items())


def fill_dict(present: Any, items: Mapping[Any, Any]) -> None:
    """Have a dict of any class hold these items, in their order, and run no code of the class."""
    base: Any = OrderedDict if isinstance(present, OrderedDict) else dict
    base.clear(present)
    for key, item in items.items():  # not update(): that of a Counter counts
        base.__setitem__(present, key, item)


def _factory(value: Any) -> dict[str, Any]:
    """The name of a defaultdict's factory, if the factory can be found by it."""
    factory = value.default_factory if isinstance(value, defaultdict) else None
    return next(({"factory": name} for name, kind in _FACTORIES.items() if kind is factory), {})


def _empty_dict(kind: Any, tree: Tree) -> Any:
    made = kind.__new__(kind)
    if "factory" in tree:
        made.default_factory = _FACTORIES[tree["factory"]]
    return made


def fill_list(present: Any, items: Iterable[Any]) -> None:
    """Have a list or deque of any class hold these items, and run no code of the class."""
    base: Any = list if isinstance(present, list) else deque
    base.clear(present)
    base.extend(present, items)


def _tuple(kind: Any, items: list[Any]) -> Any:
    """A constructor that does not take items, such as that of e3nn's class, is not called."""
    try:
        return kind._make(items) if hasattr(kind, "_make") else kind(items)
    except (TypeError, ValueError):
        return tuple.__new__(kind, items)


CONTAINERS = (
    _Plain(
        "dict", of(dict), _items, fill_dict, _empty_dict, options=_factory, attributes=True,
        made=(dict, OrderedDict, Counter, defaultdict),
    ),
    _Plain("list", of(list), list, fill_list, made=(list,), attributes=True),
    _Tuples("tuple", of(tuple), _items_of_tuple, build=_tuple, identity=False),
    _Sets("set", of(set), made=(set,), attributes=True),
    _Sets("frozenset", of(frozenset), made=(frozenset,), identity=False),
    Kind(
        "deque", of(deque), list, fill_list, lambda _, tree: deque(maxlen=tree.get("longest")),
        options=lambda value: {} if value.maxlen is None else {"longest": value.maxlen},
        made=(deque,), attributes=True,
    ),
)  # fmt: skip
