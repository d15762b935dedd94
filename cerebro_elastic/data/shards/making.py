"""Making a partition's column files of its shards: each is fetched once, hashed on its way, and removed when
its rows are in the columns."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from contextvars import copy_context
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from cerebro_elastic.data.made_partition import MadePartition, numbered
from cerebro_elastic.data.manifest import Column, ColumnFile, Manifest, PartitionFiles
from cerebro_elastic.data.preparing.column_checks import rows_in
from cerebro_elastic.data.preparing.column_files import ColumnData
from cerebro_elastic.data.preparing.growing import GrowingColumn
from cerebro_elastic.data.ragged import Columns, Ragged
from cerebro_elastic.data.shard import Shard, check_shard
from cerebro_elastic.data.shards.shard_columns import append_to, read_shard, whole
from cerebro_elastic.errors import DataError
from cerebro_elastic.system.files import (
    CHUNK,
    Chunk,
    Content,
    Place,
    as_its_folder,
    chunks,
    content,
    locate,
    pour,
    redacted,
    replacing,
    temporary_beside,
)
from cerebro_elastic.system.words import counted

_AHEAD = 2
"""Shards that are fetched while one becomes columns."""
_IN_MEMORY = 16 * CHUNK
"""The bytes of a partition's columns that are kept in memory until they are written."""
_LOOK_SECONDS = 0.05


def make_columns(
    manifest: Manifest, files: PartitionFiles, folder: Path, beat: Callable[[], None]
) -> MadePartition:
    """Make the column files of a partition of shards in ``folder``, a local one, under their numbers.

    ``beat`` is called again and again while bytes come. Raises ``DataError`` if a shard is another one now,
    is damaged, or has other columns; the message names it.
    """
    in_memory = _IN_MEMORY // len(manifest.columns)
    growing = {column.name: GrowingColumn(column.name, in_memory, str(folder)) for column in manifest.columns}
    digests = dict[str, str]()
    for shard, place, digest in _fetched(files.shards, folder, beat):
        for name, column in _columns_of(shard, place, manifest).items():
            append_to(growing[name], column)
        digests[shard.url] = digest
        beat()
    written = list[ColumnFile]()
    for column in manifest.columns:
        for _, length, data in _data(column, whole(growing.pop(column.name), column), files.rows).arrays():
            path = numbered(len(written))
            content = _write(folder / path, data)
            written.append(ColumnFile(path, content.bytes, content.sha256, length))
            beat()
    return MadePartition(tuple(written), digests)


def _write(path: Path, data: Iterable[Chunk]) -> Content:
    with replacing(str(path)) as temporary, open(temporary, "xb", opener=as_its_folder) as file:
        return pour(data, file)


def _columns_of(shard: Shard, place: Place, manifest: Manifest) -> Columns:
    columns = read_shard(place, manifest.reading, manifest.columns, manifest.vocabulary)
    check_shard(shard)  # it may have changed while it was read
    if (rows := rows_in(columns)) != shard.rows:
        raise DataError(
            f"the shard {redacted(shard.url)} has {counted(rows, 'row')}, and {shard.rows} by its footer or "
            "index: write them again, or remove the index"
        )
    return columns


def _fetched(
    shards: Sequence[Shard], folder: Path, beat: Callable[[], None]
) -> Iterator[tuple[Shard, Place, str]]:
    """Each shard, where it may be read, and its sha256. A remote one is a file in ``folder`` until the next
    is asked for; others are on their way meanwhile."""
    came = [0] * len(shards)

    def fetch(at: int, stack: ExitStack) -> tuple[Place, str]:
        check_shard(shard := shards[at])
        source = locate(shard.url)
        if source.local:
            return source, content(source).sha256
        path = stack.enter_context(temporary_beside(str(folder / f"shard-{at:05d}")))

        def arriving() -> Iterator[bytes]:
            for chunk in chunks(source):
                came[at] += len(chunk)
                yield chunk

        with open(path, "xb", opener=as_its_folder) as file:
            found = pour(arriving(), file)
        return Place(locate(path).fs, path, str(source)), found.sha256

    with ExitStack() as all_of_them, ThreadPoolExecutor(_AHEAD) as threads:
        waiting: deque[tuple[int, ExitStack, Future[tuple[Place, str]]]] = deque()
        try:
            for at in range(len(shards) + _AHEAD):
                if at < len(shards):
                    stack = all_of_them.enter_context(ExitStack())
                    waiting.append((at, stack, threads.submit(copy_context().run, fetch, at, stack)))
                if at >= _AHEAD and waiting:
                    number, stack, future = waiting.popleft()
                    _wait(future, came, beat)
                    yield shards[number], *future.result()
                    stack.close()
        finally:
            for _, _, future in waiting:
                future.cancel()


def _wait(future: Future[Any], came: Sequence[int], beat: Callable[[], None]) -> None:
    """Wait for the future; ``beat`` is called as long as bytes come."""
    before = -1
    while not future.done():
        wait([future], timeout=_LOOK_SECONDS)
        if (now := sum(came)) != before:
            before = now
            beat()


def _data(column: Column, values: NDArray[Any] | Ragged, rows: int) -> ColumnData:
    """What the whole column has, to be written."""
    if isinstance(values, Ragged):
        return ColumnData(column, rows, lambda: _in_chunks(values.values), values.lengths)
    return ColumnData(column, rows, lambda: _in_chunks(values))


def _in_chunks(values: Any) -> Iterator[NDArray[Any]]:
    step = max(1, CHUNK // max(1, values[:1].nbytes))
    return (values[start : start + step] for start in range(0, len(values), step))
