"""Datasets for tests: ``prepare`` with sources of all kinds, and settings by name."""

from __future__ import annotations

from typing import Any

from cerebro_elastic.data.manifest import Manifest
from cerebro_elastic.data.preparing.from_columns import prepare_columns
from cerebro_elastic.data.preparing.settings import prepare_settings
from cerebro_elastic.data.preparing.sources import Source
from cerebro_elastic.data.preparing.splits import Sources


def prepare(
    source: Source,
    destination: str,
    *,
    valid: float | Source = 0.0,
    test: float | Source = 0.0,
    **settings: Any,
) -> Manifest:
    """The dataset of a source."""
    checked = prepare_settings(settings)
    return prepare_columns(Sources(source, valid, test), destination, checked)
