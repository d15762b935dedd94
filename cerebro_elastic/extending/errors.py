"""Errors of this package. Their messages say what is wrong, what the rule is, and what to do next."""

from __future__ import annotations

from cerebro_elastic.errors import (
    CerebroError,
    CheckpointError,
    DataError,
    GroupBroken,
    MissingExtra,
    RecipeError,
    RunError,
    SearchError,
    TaskError,
    did_you_mean,
)

__all__ = [
    "CerebroError",
    "CheckpointError",
    "DataError",
    "GroupBroken",
    "MissingExtra",
    "RecipeError",
    "RunError",
    "SearchError",
    "TaskError",
    "did_you_mean",
]
