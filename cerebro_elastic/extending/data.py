"""Columns of data as sources give them, and their check."""

from __future__ import annotations

from cerebro_elastic.data.column_checks import check_given
from cerebro_elastic.data.sources import Columns

__all__ = [
    "Columns",
    "check_given",
]
