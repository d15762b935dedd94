"""Deals shards to the partitions of each split, by the seed and the shards' rows alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from cerebro_elastic.data.manifest import SPLITS, Split
from cerebro_elastic.data.preparing.splits import KEYS
from cerebro_elastic.data.shard import Shard
from cerebro_elastic.errors import DataError
from cerebro_elastic.system.words import counted


def deal_shards(
    given: Mapping[Split, float | Sequence[Shard]],
    partitions: Mapping[Split, int],
    seed: int,
    rows_of: Callable[[Shard], int],
) -> dict[Split, list[list[Shard]]]:
    """The shards of each partition, by split. A partition has its shards in the order of their names.

    Args:
        given: By split its shards, sorted by name. Or a share of the training rows: as many whole shards as
            come nearest to it, and at least one.
        partitions: By split, the number of partitions; by default 1.
        seed: The seed by which shards are held out, and dealt where rows leave a choice.
        rows_of: The rows of a shard, at least approximately.

    Raises:
        DataError: The shards are fewer than the partitions.
    """
    shards = given["train"]
    assert not isinstance(shards, float), "training rows are no share"
    order = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed))).permutation(len(shards))
    left, total = [shards[at] for at in order], sum(map(rows_of, shards))
    of_split: dict[Split, list[Shard]] = {}
    for split in ("test", "valid"):
        share = given.get(split, 0.0)
        if isinstance(share, float):
            sums = np.cumsum(list(map(rows_of, left)))
            count = int(np.argmin(np.abs(sums - share * total))) + 1 if share else 0
            of_split[split], left = left[:count], left[count:]
        else:
            of_split[split] = list(share)
    of_split["train"] = left
    return {
        split: _dealt(split, of_split[split], partitions.get(split, 1), rows_of)
        for split in SPLITS
        if of_split[split] or split == "train"
    }


def _dealt(
    split: Split, shards: Sequence[Shard], partitions: int, rows_of: Callable[[Shard], int]
) -> list[list[Shard]]:
    """The largest shard first, each to the partition that has the fewest rows."""
    if not shards:
        raise DataError("all shards are held out for validation or test: give smaller shares, or more shards")
    if len(shards) < partitions:
        raise DataError(
            f"{counted(len(shards), 'shard')} for {counted(partitions, f'{split} partition')}: a partition "
            f"is a set of whole shards; use at most {len(shards)} (`{KEYS.get(split, 'partitions')}`), "
            "write more shards, or name them as `source`, whose rows are dealt one by one"
        )
    dealt: list[list[Shard]] = [[] for _ in range(partitions)]
    rows = [0] * partitions
    for shard in sorted(shards, key=rows_of, reverse=True):  # stable: equal ones keep the seed's order
        least = min(range(partitions), key=lambda at: (rows[at], len(dealt[at])))
        dealt[least].append(shard)
        rows[least] += rows_of(shard)
    return [sorted(part, key=lambda shard: shard.url) for part in dealt]
