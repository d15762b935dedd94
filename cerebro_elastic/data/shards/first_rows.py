"""The first rows of a partition, wherever they lie: for checks before a run starts."""

from __future__ import annotations

from cerebro_elastic.data.manifest import Manifest, PartitionFiles
from cerebro_elastic.data.preparing.growing import GrowingColumn
from cerebro_elastic.data.reading.description import Rows, first_rows_of_files
from cerebro_elastic.data.shards.shard_columns import append_to, read_shard, whole
from cerebro_elastic.system.files import Place, locate

_IN_MEMORY = 1 << 30
"""First rows are not more bytes."""


def first_rows(root: Place, manifest: Manifest, files: PartitionFiles, most: int) -> dict[str, Rows]:
    """The first ``most`` rows of a partition of the dataset at ``root``, by column; no more of it is read."""
    if not files.shards:
        return first_rows_of_files(root, manifest.columns, files, most)
    growing = {column.name: GrowingColumn(column.name, _IN_MEMORY) for column in manifest.columns}
    for shard in files.shards:
        if most <= 0:
            break
        place = locate(shard.url)
        columns = read_shard(place, manifest.reading, manifest.columns, manifest.vocabulary, most)
        for name, values in columns.items():
            append_to(growing[name], values)
        most -= shard.rows
    return {column.name: whole(growing[column.name], column) for column in manifest.columns}
