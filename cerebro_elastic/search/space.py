"""The points of a space: listing the values of a domain, and drawing from it."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
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
