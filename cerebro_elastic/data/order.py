"""The order of rows within a partition."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def sample_order(seed: int, epoch: int, partition: int, rows: int, shuffle: bool = True) -> NDArray[np.int64]:
    """The order in which ``epoch``'s pass over ``partition`` takes its ``rows``: a permutation.

    A function of the arguments alone, stable between releases (tests hold stored values); without
    ``shuffle``, and so for validation, the natural order. ``seed`` is the run's, not negative.
    """
    if not shuffle:
        return np.arange(rows, dtype=np.int64)
    generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, epoch, partition])))
    return generator.permutation(rows)
