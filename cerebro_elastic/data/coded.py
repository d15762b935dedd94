"""A column of codes that knows what they stand for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from cerebro_elastic.data.manifest import Category


class Coded(np.ndarray[Any, np.dtype[np.int64]]):
    """A vector of codes, int64. Code ``i`` stands for ``categories[i]``."""

    categories: Sequence[Category] = ()
    """What the codes stand for."""

    @classmethod
    def of(cls, codes: Any, categories: Sequence[Category]) -> Self:
        """The codes, which stand for ``categories``."""
        column = np.asarray(codes, np.int64).view(cls)
        column.categories = tuple(categories)
        return column

    def __array_finalize__(self, source: object) -> None:
        self.categories = getattr(source, "categories", ())
