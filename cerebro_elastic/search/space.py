"""The points of a space: listing the values of a domain, and drawing from it."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Mapping, Sequence
from typing import Any

from cerebro_elastic.recipes import Domain


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
        return any(key({"": value}) == key({"": item}) for item in domain.choice)
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
    if any(key({"": value}) == key({"": item}) for item in listed):
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
    return json.dumps(dict(hparams), sort_keys=True)


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
        place = domain.choice.index(value) + (1 if factor > 1 else -1)
        return domain.choice[min(max(place, 0), len(domain.choice) - 1)]
    low, high = domain.integers or domain.uniform or domain.loguniform or (value, value)
    moved = value * factor
    if domain.integers is not None:
        moved = math.ceil(moved) if factor > 1 else math.floor(moved)
    return min(max(moved, low), high)
