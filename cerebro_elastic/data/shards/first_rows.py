"""The first rows of a partition, wherever they lie: for checks before a run starts."""

from __future__ import annotations

from cerebro_elastic.data.column_checks import rows_in
from cerebro_elastic.data.manifest import Column, Manifest, PartitionFiles
from cerebro_elastic.data.preparing.growing import GrowingColumn
from cerebro_elastic.data.ragged import Ragged, of_one_length
from cerebro_elastic.data.reading.description import Rows, first_rows_of_files
from cerebro_elastic.data.shards.shard_columns import parts_in_memory, read_shard
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
        for piece in read_shard(locate(shard.url), manifest, most):
            most -= rows_in(piece)
            for name, values in piece.items():
                for part in parts_in_memory(values):
                    growing[name].append(part)
    return {column.name: _whole(growing[column.name], column) for column in manifest.columns}


def _whole(growing: GrowingColumn, column: Column) -> Rows:
    """All rows of a column. Those of a ragged one may have one length by chance."""
    values = growing.whole()
    return of_one_length(values) if column.kind == "ragged" and not isinstance(values, Ragged) else values
