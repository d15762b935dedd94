"""Columns of data as sources give them, and their check."""

from __future__ import annotations

from cerebro_elastic.data.column_checks import check_given
from cerebro_elastic.data.sources import Arrays, Columns

__all__ = [
    "Arrays",
    "Columns",
    "check_given",
]
