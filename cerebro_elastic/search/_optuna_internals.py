"""Private names of optuna. Tested with optuna 5.

``tests/search/test_optuna_internals.py`` names each one that an upgrade removes.
"""

from __future__ import annotations

from typing import Any

from optuna.distributions import BaseDistribution
from optuna.storages.journal._storage import JournalOperation
from optuna.study._constrained_optimization import _CONSTRAINTS_KEY as CONSTRAINTS

__all__ = ["CONSTRAINTS", "JournalOperation", "is_in"]


def is_in(distribution: BaseDistribution, value: Any) -> bool:
    """Whether ``value`` may be drawn from ``distribution``."""
    try:
        return distribution._contains(distribution.to_internal_repr(value))
    except ValueError:  # it is not one of the choices, or not a number
        return False
