"""What is private to optuna. Tried with optuna 5.

``tests/search/test_optuna_internals.py`` names what an upgrade takes away.
"""

from __future__ import annotations

from typing import Any

from optuna.distributions import BaseDistribution
from optuna.storages.journal._storage import JournalOperation

__all__ = ["JournalOperation", "contains"]


def contains(distribution: BaseDistribution, value: Any) -> bool:
    """Whether ``value`` may be drawn from ``distribution``."""
    return distribution._contains(distribution.to_internal_repr(value))
