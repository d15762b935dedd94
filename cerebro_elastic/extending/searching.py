"""A search procedure proposes, stops and resumes configs; a sampler proposes points of a search space."""

from __future__ import annotations

from cerebro_elastic.core.model.configs import HParams, Status
from cerebro_elastic.core.model.interfaces import (
    ConfigView,
    Decision,
    Proposal,
    Resume,
    Search,
    SearchContext,
    Stop,
)
from cerebro_elastic.search.constraints import constraint_of
from cerebro_elastic.search.criterion import Criterion, criteria_of
from cerebro_elastic.search.sampling import Labels, Sample, Sampler, contains, key, values

__all__ = [
    "ConfigView",
    "Criterion",
    "Decision",
    "HParams",
    "Labels",
    "Proposal",
    "Resume",
    "Sample",
    "Sampler",
    "Search",
    "SearchContext",
    "Status",
    "Stop",
    "constraint_of",
    "contains",
    "criteria_of",
    "key",
    "values",
]
