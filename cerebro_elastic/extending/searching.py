"""A search procedure proposes, stops and resumes configs; a sampler proposes points of a search space."""

from __future__ import annotations

from cerebro_elastic.core.model.interfaces import (
    ConfigView,
    Decision,
    Proposal,
    Resume,
    Search,
    SearchContext,
    Stop,
)
from cerebro_elastic.search.sampling import Sample, Sampler

__all__ = [
    "ConfigView",
    "Decision",
    "Proposal",
    "Resume",
    "Sample",
    "Sampler",
    "Search",
    "SearchContext",
    "Stop",
]
