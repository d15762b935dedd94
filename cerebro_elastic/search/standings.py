"""How do the configs of an asynchronous bracket rank at its rungs?

Thousands of configs rest at a rung, and an event changes one. So a rung keeps its configs sorted by loss, and
only changed views are taken out and put in again.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import compress
from operator import is_not
from typing import TypeAlias

from cerebro_elastic.core.model.configs import Status
from cerebro_elastic.core.model.interfaces import ConfigView
from cerebro_elastic.search.criterion import Criterion, Resource
from cerebro_elastic.search.procedure import at_rest

Entry: TypeAlias = tuple[float, int]
"""A config's loss at a rung, and its place among the bracket's configs, which decides between equals."""


@dataclass(slots=True)
class Rung:
    """The configs that have reached a rung, all sorted, the best first."""

    reached: list[Entry] = field(default_factory=list)
    """All of them, except those that failed or that a person stopped."""
    resting: list[Entry] = field(default_factory=list)
    """Configs that rest there and may be resumed."""
    arrived: list[Entry] = field(default_factory=list)
    """Live configs there that are in no unit and may be stopped."""

    def worst_promoted(self, reduction_factor: int) -> Entry:
        """The last of the configs promoted from the rung."""
        count = len(self.reached) // reduction_factor
        finite = bisect_left(self.reached, (math.inf, -1))
        return self.reached[min(count, finite) - 1] if count and finite else (-math.inf, -1)


class Standings:
    """The standings of one bracket with these ``rungs``."""

    def __init__(self, criterion: Criterion, resource: Resource, rungs: Sequence[int]) -> None:
        self.rungs = {rung: Rung() for rung in rungs}
        self._criterion = criterion
        self._resource = resource
        self._views: Sequence[ConfigView] = ()

    def update(self, views: Sequence[ConfigView]) -> bool:
        """Take in the bracket's present configs. Returns whether that was possible: they must be the previous
        ones, and perhaps further ones."""
        before = self._views
        changed = list(compress(range(len(before)), map(is_not, views, before)))
        if len(views) < len(before) or any(views[i].config != before[i].config for i in changed):
            return False
        for i in changed:
            self._put(before[i], i, _remove)
            self._put(views[i], i, insort)
        for i in range(len(before), len(views)):
            self._put(views[i], i, insort)
        self._views = views
        return True

    def _put(self, view: ConfigView, place: int, put: Callable[[list[Entry], Entry], None]) -> None:
        amount = self._resource.of(view)
        for at, rung in self.rungs.items():
            if amount < at:
                break
            point = self._resource.at(view, at)
            entry = math.inf if point is None else self._criterion.loss(point), place
            if not gone(view):
                put(rung.reached, entry)
            if amount == at and at_rest(view) and view.status in (Status.LIVE, Status.STOPPED):
                put(rung.arrived if view.status is Status.LIVE else rung.resting, entry)


def _remove(entries: list[Entry], entry: Entry) -> None:
    del entries[bisect_left(entries, entry)]


def gone(view: ConfigView) -> bool:
    """Whether the config has failed, which does not judge its point, or was stopped by a person."""
    return view.status is Status.FAILED or (view.by_hand and view.status is Status.STOPPED)
