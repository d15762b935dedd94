"""Values that follow from one config, from what is its own besides, and from what all configs share.

States share the configs that an event has not changed. So a decision computes anew only what concerns the
config that has changed, and not all that a thousand configs may do on a hundred nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from cerebro_elastic.core.model.configs import Config

Shared = TypeVar("Shared")
Own = TypeVar("Own")
Value = TypeVar("Value")


class PerConfig(Generic[Shared, Own, Value]):
    """A pure function of many configs that remembers its last values: a config is known by identity, all else
    by equality. So the values are those that would be computed anew. The function is one of what all configs
    share, of the config, and of what else is its own.
    """

    def __init__(self, function: Callable[[Shared, Config, Own], Value]) -> None:
        self.function = function
        self._last: tuple[Shared | None, dict[str, tuple[Config, Own, Value]]] = (None, {})

    def __call__(self, shared: Shared, configs: Iterable[tuple[Config, Own]]) -> dict[str, Value]:
        before, known = self._last
        if before is None or before != shared:
            known = {}
        entries: dict[str, tuple[Config, Own, Value]] = {}
        values: dict[str, Value] = {}
        for config, own in configs:
            name = config.id
            entry = known.get(name)
            if entry is None or entry[0] is not config or entry[1] != own:
                entry = config, own, self.function(shared, config, own)
            entries[name] = entry
            values[name] = entry[2]
        self._last = shared, entries
        return values
