"""The classes in partitions, where one column can be read alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context

from cerebro_elastic.data.kinds.kind import suffix_of
from cerebro_elastic.data.kinds.registry import kind_of_file
from cerebro_elastic.data.manifest import Manifest
from cerebro_elastic.data.ragged import Varying
from cerebro_elastic.data.shard import Shard
from cerebro_elastic.errors import DataError
from cerebro_elastic.system.files import locate, translated
from cerebro_elastic.system.words import some_of

_COLUMNAR = (".parquet", ".h5", ".hdf5")
"""The suffixes of shards whose columns can be read one by one."""
_READS = 8
_EXPECTED = 10
"""A class is missed in a partition that would have this number of its rows, had all rows been shuffled."""
_MOST_CLASSES = 1000
_SHOWN = 3


def missing_classes(manifest: Manifest, label: str) -> Iterator[str]:
    """A sentence, if partitions lack classes of the column ``label``. None for shards whose columns cannot be
    read alone, and for a column without classes."""
    partitions = [files.shards for files in manifest.train]
    if not all(suffix_of(shard.url) in _COLUMNAR for shards in partitions for shard in shards):
        return
    with ThreadPoolExecutor(_READS) as threads:
        reads = [
            [threads.submit(copy_context().run, _classes, shard, label) for shard in shards]
            for shards in partitions
        ]
        counts = [sum((read.result() for read in of_one), Counter[int]()) for of_one in reads]
    whole = sum(counts, Counter[int]())
    if len(whole) > _MOST_CLASSES:
        return
    lacking = {
        index: sorted(
            value
            for value, rows in whole.items()
            if not of_one[value] and rows * of_one.total() >= _EXPECTED * whole.total()
        )
        for index, of_one in enumerate(counts)
    }
    if few := [index for index, classes in lacking.items() if classes]:
        first = few[0]
        yield (
            f"{len(few)} of {len(counts)} partitions lack classes of {label}, as partition {first} lacks "
            f"{some_of(lacking[first], _SHOWN)}: were the shards written in the order of their classes? "
            "Write them shuffled, use fewer partitions, or name them as `source`, whose rows are shuffled "
            "all together"
        )


def _classes(shard: Shard, label: str) -> Counter[int]:
    found: Counter[int] = Counter()
    place = locate(shard.url)
    with translated(DataError, f"cannot read the shard {place}"):
        for piece in kind_of_file(str(place)).read(place, [label], None):
            values = piece.get(label)
            if values is not None and not isinstance(values, Varying) and values.dtype.kind in "biu":
                found.update(values.ravel().tolist())
    return found
