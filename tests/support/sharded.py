"""Datasets of shards for tests, and the prepared dataset that has the same partitions."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from numpy.typing import NDArray

from cerebro_elastic.data.manifest import NAME, SPLITS, Manifest, PartitionFiles
from cerebro_elastic.data.preparing.column_files import ColumnData
from cerebro_elastic.data.preparing.settings import prepare_settings
from cerebro_elastic.data.shards.opening import ShardSources, open_shards
from cerebro_elastic.system.files import locate, open_buffered, write

Rows: TypeAlias = dict[str, Any]
"""The columns of a shard: arrays, or lists of arrays."""

SIZES = (7, 5, 9, 4, 6, 8)
"""The rows of the shards, which differ."""


def rows_of(shard: int) -> Rows:
    """The rows of a shard: ``x`` of one shape, ragged ``tokens``, ``y``, and encoded ``image``."""
    rng, size = np.random.default_rng(shard), SIZES[shard]
    x = rng.normal(size=(size, 2)).astype(np.float32)
    return {
        "x": x,
        "tokens": [rng.integers(0, 99, int(length)) for length in rng.integers(0, 5, size)],
        "y": (x[:, 0] > 0).astype(np.int64),
        "image": [bytes([shard, row]) * (row + 1) for row in range(size)],
    }


def table_of(rows: Rows) -> pa.Table:
    return pa.table({name: pa.array(list(values)) for name, values in rows.items()})


def write_parquet(
    url: str, rows: Callable[[int], Rows] = rows_of, shards: int = len(SIZES), group: int = 3
) -> str:
    """Write shards of Parquet below ``url``; returns the glob of their names. A row group
    has ``group`` rows."""
    for shard in range(shards):
        with pa.BufferOutputStream() as buffer:
            pyarrow.parquet.write_table(table_of(rows(shard)), buffer, row_group_size=group)
            content = buffer.getvalue().to_pybytes()
        write(locate(url) / f"{shard:03d}.parquet", [content])
    return f"{url}/*.parquet"


def opened(
    shards: str, url: str, *, valid: float | str = 0.0, test: float | str = 0.0, **settings: Any
) -> tuple[str, Manifest]:
    """The dataset of the shards, whose manifest is below ``url``."""
    return open_shards(ShardSources(shards, valid, test), url, prepare_settings(settings))


def prepared_twin(manifest: Manifest, url: str) -> Manifest:
    """Write the prepared dataset that has the same rows in the same partitions, as another program reads
    them."""
    root = locate(url)
    partitions: dict[str, Any] = {
        split: tuple(
            PartitionFiles(files.rows, tuple(_written(manifest, files, root, split, index)))
            for index, files in enumerate(manifest.split(split))
        )
        for split in SPLITS
    }
    twin = replace(manifest, **partitions, reading={})
    write(root / NAME, [twin.to_json()])
    return twin


def _written(manifest: Manifest, files: PartitionFiles, root: Any, split: Any, index: int) -> Any:
    tables = []
    for shard in files.shards:
        with open_buffered(locate(shard.url)) as file:
            tables.append(pyarrow.parquet.read_table(file).to_pylist())
    rows = [row for table in tables for row in table]
    for column in manifest.columns:
        values = [np.frombuffer(row[column.name], np.uint8) if column.kind == "bytes" else row[column.name]
                  for row in rows]  # fmt: skip
        yield from _column_data(column, values).write(root, split, index)


def _column_data(column: Any, values: list[Any]) -> ColumnData:
    def parts() -> list[NDArray[Any]]:
        return [np.concatenate([np.asarray(value, column.dtype) for value in values])]

    if column.kind == "rows":
        return ColumnData(column, len(values), lambda: [np.array(values, column.dtype)])
    return ColumnData(column, len(values), parts, np.array([len(value) for value in values]))


def cache_files(folder: Path) -> dict[str, bytes]:
    """What the column files of the partitions in a cache hold, by partition and number."""
    return {f"{path.parent.name}/{path.name}": path.read_bytes() for path in folder.rglob("*.npy")}


_KILLED = """
import os, signal, sys
from pathlib import Path
from cerebro_elastic.data.manifest import read_manifest
from cerebro_elastic.data.reading.cache import PartitionCache
from cerebro_elastic.data.shards import making
from cerebro_elastic.data.shards.counting import counted

def halfway(source):
    for chunk in making.chunks_of(source):
        yield chunk[: len(chunk) // 2]
        os.kill(os.getpid(), signal.SIGKILL)

making.chunks_of, making.chunks = making.chunks, halfway
url, root = sys.argv[1:]
manifest, cache = read_manifest(url), PartitionCache(Path(root), make=making.make_columns)
if manifest.estimated:
    counted(url, manifest, cache, lambda: None, lambda: [0])
cache.fetch(url, manifest, "train", 0)
"""


def killed_while_it_fetches(url: str, root: Path) -> None:
    """A host that is killed when half of a shard of the first partition has come, with its cache at ``root``.
    It counts the rows while it fetches them, if nobody knows them."""
    killed = subprocess.run([sys.executable, "-c", _KILLED, url, str(root)])
    assert killed.returncode == -signal.SIGKILL
