"""The order of rows that makes batches of rows of similar length, so that little is padded."""

from __future__ import annotations

import numpy as np

from cerebro_elastic.data.ragged import Index

_POOL = 100
"""The number of batches whose rows are sorted by length together: enough for similar lengths, and in each
epoch other rows meet in a batch."""


def bucketed(order: Index, lengths: Index, batch_size: int, seed: tuple[int, ...]) -> Index:
    """``order`` rearranged: rows are sorted by length in pools of batches, then the batches are shuffled.

    The short last batch stays the last one, of the rows that are last in ``order``.

    Args:
        order: The shuffled rows of a partition.
        lengths: The length of each row of the partition, by its number.
        batch_size: Rows of a batch.
        seed: The seed of the batches' order; not that of ``order``.
    """
    full = len(order) // batch_size * batch_size
    by_length = [
        pool[np.argsort(lengths[pool], kind="stable")]
        for pool in np.split(order[:full], range(_POOL * batch_size, full, _POOL * batch_size))
    ]
    batches = np.concatenate(by_length).reshape(-1, batch_size)
    generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed)))
    return np.concatenate([generator.permutation(batches).reshape(-1), order[full:]])
