"""A partition as a unit sees it: named columns of equal length, memory-mapped and read-only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Partition:
    """``columns[name]`` has shape ``(rows, ...)``; the order of names is the manifest's."""

    index: int
    rows: int
    columns: Mapping[str, NDArray[np.generic]]
