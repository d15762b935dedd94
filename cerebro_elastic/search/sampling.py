"""The points of a space, and the samplers that choose those of new configs; random and grid sampling."""

from __future__ import annotations

import itertools
import json
import math
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from cerebro_elastic.core.model.configs import HParams
from cerebro_elastic.core.model.interfaces import ConfigView
from cerebro_elastic.errors import RecipeError
from cerebro_elastic.recipes import Domain, Recipe
from cerebro_elastic.recipes.search import AshaSearch, MedianSearch, SampledSearch, Space, flattened
from cerebro_elastic.registry import load
from cerebro_elastic.search.constraints import constraint_of

_SCALARS = (bool, int, float, str, type(None))


def values(domain: Domain) -> Sequence[Any] | None:
    """All values of a finite domain, in order; ``None`` for a continuous one."""
    if domain.choice is not None:
        return domain.choice
    if domain.branches is not None:
        return sorted(domain.branches)  # the record does not keep the order of a mapping's keys
    if domain.integers is not None:
        low, high = domain.integers
        return range(low, high + 1)
    return None


def size(space: Space) -> float:
    """The number of points in the space; infinite for a continuous one."""
    return math.prod(
        math.inf
        if (listed := values(domain)) is None
        else sum(map(size, domain.branches.values()))
        if domain.branches is not None
        else len(listed)
        for domain in space.values()
    )


def written_alike(domain: Domain, value: Any) -> Any:
    """A person's ``value`` with the type of the ``domain``'s values: 1 becomes 1.0 if these are floats, and
    1.0 becomes 1 if they are whole."""
    if not _is_number(value) or not _in_range(value):
        return value
    if domain.choice is not None:
        alike = [item for item in domain.choice if _is_number(item) and item == value]
        return value if contains(domain, value) or not alike else alike[0]
    if domain.integers is not None:
        return int(value) if value == int(value) else value
    return float(value)


def contains(domain: Domain, value: Any) -> bool:
    """Whether the ``domain`` contains ``value``."""
    if domain.choice is not None or domain.branches is not None:
        return _text(value) in map(_text, values(domain) or ())
    if not _is_number(value):
        return False
    low, high = domain.integers or domain.uniform or domain.loguniform or (value, value)
    return bool(low <= value <= high)


def misfit(domain: Domain, value: Any) -> str | None:
    """The kind of value that the ``domain`` needs instead of a person's ``value``; ``None`` if that fits.

    A number may lie out of bounds and between choices, but must be whole where all numbers are.
    """
    if domain.branches is not None:
        domain = Domain(choice=tuple(domain.branches))
    listed = domain.choice if domain.choice is not None else domain.integers or (0.5,)
    numbers = [item for item in listed if _is_number(item)]
    if _text(value) in map(_text, listed):
        return None
    if not numbers:
        return f"one of {', '.join(map(repr, listed))}"
    if not _is_number(value) or not _in_range(value):
        return "a number"
    whole = all(isinstance(number, int) for number in numbers)
    return "a whole number" if whole and not isinstance(value, int) else None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _in_range(value: int | float) -> bool:
    """Whether it is a finite float, or a whole number within the range of floats."""
    return -sys.float_info.max <= value <= sys.float_info.max


def key(hparams: Mapping[str, Any]) -> str:
    """A text that is the same for equal points."""
    return _text(dict(hparams))


class Labels:
    """The values of a choice in the form for optuna and Ray Tune: scalars.

    Values other than scalars become JSON text. If two labels would be equal (1, 1.0 and true are), all values
    become JSON text.
    """

    def __init__(self, choice: Sequence[Any]) -> None:
        labels = [value if isinstance(value, _SCALARS) else _text(value) for value in choice]
        if len(set(labels)) < len(labels):
            labels = [_text(value) for value in choice]
        self._values = dict(zip(labels, choice, strict=True))
        self._labels = {_text(value): label for label, value in self._values.items()}

    @property
    def all(self) -> list[Any]:
        """The labels, in the order of the choice."""
        return list(self._values)

    def of(self, value: Any) -> Any:
        """The label of ``value``. Raises ``KeyError`` for a value outside the choice."""
        return self._labels[_text(value)]

    def value(self, label: Any) -> Any:
        """The value with this ``label``."""
        return self._values[label]


def _text(value: Any) -> str:
    """A text that is the same for equal values: the record does not keep the order of a mapping's keys."""
    return json.dumps(value, sort_keys=True)


def draw(domain: Domain, rng: random.Random) -> Any:
    """One value, all equally likely (for ``loguniform``: all orders of magnitude)."""
    listed = values(domain)
    if listed is not None:
        return rng.choice(listed)
    if domain.loguniform is not None:
        low, high = domain.loguniform
        return min(max(math.exp(rng.uniform(math.log(low), math.log(high))), low), high)
    assert domain.uniform is not None
    return rng.uniform(*domain.uniform)


def perturbed(domain: Domain, value: Any, factor: float) -> Any:
    """The value times ``factor``, within the domain; for a choice, the neighbour on that side."""
    if domain.choice is not None:
        place = [*map(_text, domain.choice)].index(_text(value)) + (1 if factor > 1 else -1)
        return domain.choice[min(max(place, 0), len(domain.choice) - 1)]
    low, high = domain.integers or domain.uniform or domain.loguniform or (value, value)
    moved = value * factor
    if domain.integers is not None:
        moved = math.ceil(moved) if factor > 1 else math.floor(moved)
    return min(max(moved, low), high)


@dataclass(frozen=True, slots=True)
class Sample:
    """A point of the space."""

    hparams: HParams
    """Its hyper-parameters by name."""
    notes: Mapping[str, Any] = field(default_factory=dict)
    """JSON values that the sampler gets back in the ``origin`` of the point's config."""


class Sampler(Protocol):
    """Chooses the points of a space, one at a time. The next point depends on the arguments alone."""

    def sample(self, known: Sequence[ConfigView]) -> Sample | None:
        """A new point.

        Args:
            known: The search's configs, in the order of their proposals.

        Returns:
            A point that none of them has, or ``None`` if the space has no other.
        """


_DRAWS = 10_000
"""Draws for one point before the space counts as exhausted."""


class RandomSampler:
    """Points drawn by the run's seed, each once. The drawn points are cached for speed; they follow from the
    recipe."""

    def __init__(self, recipe: Recipe, options: Mapping[str, Any] | None = None) -> None:
        if options:
            raise RecipeError(
                f"{recipe.source.where(('search', 'options'))}: the sampler random takes no options; "
                "remove them"
            )
        if not recipe.search.space:
            raise RecipeError(
                f"{recipe.source.where(('search', 'space_fn'))}: a function of an optuna trial needs one of "
                "optuna's samplers: set method or sampler to tpe, say"
            )
        self._recipe = recipe
        self._holds = constraint_of(recipe)
        self._drawn: dict[str, HParams] = {}
        self._all = False
        self._before: list[HParams] = []
        self._taken: set[str] = set()
        self._order: list[str] = []
        self._passed = 0

    def sample(self, known: Sequence[ConfigView]) -> Sample | None:
        self._draw(len(known) + 1)
        count, points = len(self._before), [view.hparams for view in known]
        if points[:count] != self._before:  # thousands of points are drawn one by one
            count, self._taken, self._passed = 0, set(), 0
        self._taken.update(map(key, points[count:]))
        self._before = points
        while self._passed < len(self._order) and self._order[self._passed] in self._taken:
            self._passed += 1
        left = self._order[self._passed : self._passed + 1]
        return Sample(self._drawn[left[0]]) if left else None

    def count(self, most: int) -> int:
        """The number of distinct points, as far as draws find them; at most ``most``."""
        self._draw(most)
        return min(most, len(self._drawn))

    def _draw(self, count: int) -> None:
        while len(self._drawn) < count and not self._all:
            rng = random.Random(f"{self._recipe.seed}/{len(self._drawn)}")
            draws = (self._point(rng) for _ in range(_DRAWS))
            fresh = next((p for p in draws if self._holds(p) and key(p) not in self._drawn), None)
            if fresh is None:
                self._all = True
            else:
                self._drawn[key(fresh)] = fresh
                self._order.append(key(fresh))

    def _point(self, rng: random.Random) -> HParams:
        return _drawn(self._recipe.search.space, rng)


def _drawn(space: Space, rng: random.Random) -> dict[str, Any]:
    point: dict[str, Any] = {}
    for name, domain in sorted(space.items()):
        point[name] = draw(domain, rng)
        if domain.branches is not None:
            point |= _drawn(domain.branches[point[name]], rng)
    return point


_LARGEST = 10**6
"""The largest grid before constraints. Enumerating it takes a second or two."""


class GridSampler:
    """All points, ordered by the names of the hyper-parameters, so that equal recipes number them alike.

    Raises:
        RecipeError: The space is not finite, or no point or too many points are left.
    """

    def __init__(self, recipe: Recipe) -> None:
        holds, limit = constraint_of(recipe), recipe.limits.configs
        self._points = list(itertools.islice(filter(holds, _points(recipe)), limit + 1))
        if not self._points:
            raise RecipeError(
                f"{recipe.source.where(('search', 'constraints'))}: no point of the space satisfies all "
                "constraints; relax one"
            )
        if len(self._points) > limit:
            raise RecipeError(
                f"{recipe.source.where(('search', 'space'))}: the grid has more than {limit} configs "
                "(limits.configs); list fewer values, add constraints, or raise the limit"
            )
        given = [*recipe.search.enqueue, *(config.hparams for config in recipe.search.known_configs)]
        taken = {key(point) for point in given}
        self._left = [point for point in self._points if key(point) not in taken]
        self._given = len(given)
        self._enqueued = len(recipe.search.enqueue)
        if not self._left and not recipe.search.enqueue:
            raise RecipeError(
                f"{recipe.source.where(('search', 'known'))}: every point of the grid is known already; "
                "extend the space, or remove `known`"
            )

    def sample(self, known: Sequence[ConfigView]) -> Sample | None:
        place = len(known) - self._given
        return Sample(self._left[place]) if place < len(self._left) else None

    def count(self, most: int) -> int:
        """The number of configs, enqueued ones included; at most ``most``."""
        return min(most, self._enqueued + len(self._left))


def _points(recipe: Recipe) -> Iterator[HParams]:
    if not recipe.search.space:
        raise RecipeError(
            f"{recipe.source.where(('search', 'space_fn'))}: a grid needs a `space`, not a function; use "
            "method: random or tpe"
        )
    for name, domain in flattened(recipe.search.space).items():
        if values(domain) is None:
            raise RecipeError(
                f"{recipe.source.where(('search', 'space', name))}: {name!r} is continuous, a grid needs a "
                "list or int: list its values, or use method: random with num"
            )
    if size(recipe.search.space) > _LARGEST:
        raise RecipeError(
            f"{recipe.source.where(('search', 'space'))}: the grid has more than {_LARGEST:,} points, too "
            "many to go through; list fewer values, or use method: random with num"
        )
    return _grid(recipe.search.space)


def _grid(space: Space) -> Iterator[dict[str, Any]]:
    axes = [list(_axis(name, domain)) for name, domain in sorted(space.items())]
    return (
        {name: value for part in parts for name, value in part.items()} for parts in itertools.product(*axes)
    )


def _axis(name: str, domain: Domain) -> Iterator[dict[str, Any]]:
    """The values of one hyper-parameter, each with the points of its branch."""
    for value in values(domain) or ():
        for own in _grid(domain.branches[value]) if domain.branches is not None else ({},):
            yield {name: value, **own}


def make_sampler(recipe: Recipe, name: str, section: AshaSearch | MedianSearch | SampledSearch) -> Sampler:
    """The sampler ``name`` with the section's options."""
    sampler: Sampler = load("cerebro.samplers", name)(recipe, section.options)
    return sampler
