"""Values that follow from one config, its own further values, and those shared by all configs.

States share the configs that an event has not changed. So a decision recomputes only the values of the
changed config, and not all possible steps of a thousand configs on a hundred nodes. The changes are known, or
found without running Python code per config.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import compress, islice
from operator import is_not
from typing import Any, Generic, TypeVar

from cerebro_elastic.core.model.configs import Config
from cerebro_elastic.core.model.entries import changed_since

Value = TypeVar("Value")


class PerConfig(Generic[Value]):
    """A pure function of many configs that remembers its last values: configs are compared by identity, all
    else by equality. So the values are those of a fresh computation. The function's arguments are the values
    shared by all configs, the config, and its entry in each further mapping (``None`` without one).
    """

    def __init__(self, function: Callable[..., Value]) -> None:
        self.function = function
        self._shared: Any = None
        self._last: tuple[Mapping[str, Any], ...] = ()
        self._values: dict[str, Value] = {}

    def __call__(
        self, shared: object, configs: Mapping[str, Config], *own: Mapping[str, Any]
    ) -> Mapping[str, Value]:
        """By config, in the order of ``configs``."""
        known, last = self._values, self._last
        if not last or self._shared != shared:
            known, last, self._shared = {}, ({}, *({} for _ in own)), shared
        due = set(changed(last[0], configs))
        for before, now in zip(last[1:], own, strict=True):
            due.update(name for name in changed(before, now) if before.get(name) != now.get(name))
        values: dict[str, Any] = dict(known)
        if changed_since(last[0], configs) is None and not _begins_with(configs, known):
            values = {name: known.get(name) for name in configs}
        values.update(dict.fromkeys(islice(configs, len(values), None)))
        for name in due:
            if name in configs:
                values[name] = self.function(self._shared, configs[name], *(each.get(name) for each in own))
        self._last, self._values = (configs, *own), values
        return values


def changed(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """The names that have another object ``now``, or no object."""
    if (names := changed_since(before, now)) is not None:
        return names
    if _begins_with(now, before):
        others = compress(now, map(is_not, now.values(), before.values()))
        return [*others, *islice(now, len(before), None)]
    return [name for name in {**before, **now} if name not in now or before.get(name) is not now[name]]


def _begins_with(names: Mapping[str, Any], first: Mapping[str, Any]) -> bool:
    return list(islice(names, len(first))) == list(first)
