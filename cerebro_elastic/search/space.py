"""The points of a space: listing the values of a domain, and drawing from it."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Mapping, Sequence
from typing import Any

from cerebro_elastic.recipes import Domain

_SCALARS = (bool, int, float, str, type(None))


def values(domain: Domain) -> Sequence[Any] | None:
    """All values of a finite domain, in order; ``None`` for a continuous one."""
    if domain.choice is not None:
        return domain.choice
    if domain.integers is not None:
        low, high = domain.integers
        return range(low, high + 1)
    return None


def contains(domain: Domain, value: Any) -> bool:
    """Whether ``value`` is one of the ``domain``'s."""
    if domain.choice is not None:
        return _text(value) in map(_text, domain.choice)
    if not _is_number(value):
        return False
    low, high = domain.integers or domain.uniform or domain.loguniform or (value, value)
    return bool(low <= value <= high)


def misfit(domain: Domain, value: Any) -> str | None:
    """What kind of value the ``domain`` needs instead of a person's ``value``; ``None`` if it fits.

    A number may lie out of bounds and between choices, but must be whole where all numbers are.
    """
    listed = domain.choice if domain.choice is not None else domain.integers or (0.5,)
    numbers = [item for item in listed if _is_number(item)]
    if _text(value) in map(_text, listed):
        return None
    if not numbers:
        return f"one of {', '.join(map(repr, listed))}"
    if not _is_number(value) or not math.isfinite(value):
        return "a number"
    whole = all(isinstance(number, int) for number in numbers)
    return "a whole number" if whole and not isinstance(value, int) else None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def key(hparams: Mapping[str, Any]) -> str:
    """A text that is the same for equal points."""
    return _text(dict(hparams))


class Labels:
    """The values of a choice as optuna and Ray Tune take them: scalars.

    What is no scalar is JSON text there. If two of these would be equal (1, 1.0 and true are), all values are
    JSON text.
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
        """The label of ``value``. Raises ``KeyError`` if that is none of the choice."""
        return self._labels[_text(value)]

    def value(self, label: Any) -> Any:
        """The value of the choice that has this ``label``."""
        return self._values[label]


def _text(value: Any) -> str:
    """The same for equal values: the record does not keep the order of a mapping's keys."""
    return json.dumps(value, sort_keys=True)


def draw(domain: Domain, rng: random.Random) -> Any:
    """One value, each as likely as any other (for ``loguniform``: each order of magnitude)."""
    listed = values(domain)
    if listed is not None:
        return rng.choice(listed)
    if domain.loguniform is not None:
        low, high = domain.loguniform
        return min(max(math.exp(rng.uniform(math.log(low), math.log(high))), low), high)
    assert domain.uniform is not None
    return rng.uniform(*domain.uniform)


def perturbed(domain: Domain, value: Any, factor: float) -> Any:
    """The value times ``factor``, within the domain; of a choice the neighbour on that side."""
    if domain.choice is not None:
        place = [*map(_text, domain.choice)].index(_text(value)) + (1 if factor > 1 else -1)
        return domain.choice[min(max(place, 0), len(domain.choice) - 1)]
    low, high = domain.integers or domain.uniform or domain.loguniform or (value, value)
    moved = value * factor
    if domain.integers is not None:
        moved = math.ceil(moved) if factor > 1 else math.floor(moved)
    return min(max(moved, low), high)
