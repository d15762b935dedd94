"""Making a partition's column files of its shards: each is fetched once, hashed on its way, and removed when
its rows are in the columns."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from contextvars import copy_context
from pathlib import Path
from typing import Any

from cerebro_elastic.data.column_checks import rows_in
from cerebro_elastic.data.made_partition import MadePartition
from cerebro_elastic.data.manifest import Manifest, PartitionFiles
from cerebro_elastic.data.shard import Shard, check_shard
from cerebro_elastic.data.shards.column_writer import ColumnWriter, column_writer
from cerebro_elastic.data.shards.shard_columns import parts_in_memory, read_shard
from cerebro_elastic.errors import DataError
from cerebro_elastic.system.files import (
    Place,
    as_its_folder,
    chunks,
    content,
    locate,
    pour,
    redacted,
    temporary_beside,
)
from cerebro_elastic.system.words import counted

_AHEAD = 2
"""Shards that are fetched while one becomes columns."""
_LOOK_SECONDS = 0.05


def make_columns(
    manifest: Manifest, files: PartitionFiles, folder: Path, beat: Callable[[], None]
) -> MadePartition:
    """Make the column files of a partition of shards in ``folder``, a local one, under their numbers; their
    digests are left to the check of the written files.

    ``beat`` is called again and again while bytes come. Raises ``DataError`` if a shard is another one now,
    is damaged, or has other columns; the message names it.
    """
    digests, total = dict[str, str](), 0
    with ExitStack() as stack:
        writers = dict[str, ColumnWriter]()
        number = 0
        for column in manifest.columns:
            writers[column.name] = stack.enter_context(column_writer(folder, column, number))
            number += 1 if column.kind == "rows" else 2
        for shard, place, digest in _fetched(files.shards, folder, beat):
            rows = 0
            for piece in read_shard(place, manifest):
                rows += rows_in(piece)
                for name, values in piece.items():
                    for part in parts_in_memory(values):
                        writers[name].append(part)
                        beat()
            check_shard(shard)  # it may have changed while it was read
            _check_rows(shard, rows)
            digests[shard.url] = digest
            total += rows
        written = [file for writer in writers.values() for file in writer.finish()]
    return MadePartition(tuple(written), digests, total)


def _check_rows(shard: Shard, rows: int) -> None:
    if not rows:
        raise DataError(f"the shard {redacted(shard.url)} has no rows: remove it, or write it again")
    if shard.rows not in (0, rows):
        raise DataError(
            f"the shard {redacted(shard.url)} has {counted(rows, 'row')}, and {shard.rows} by its footer or "
            "index: write them again, or remove the index"
        )


def _fetched(
    shards: Sequence[Shard], folder: Path, beat: Callable[[], None]
) -> Iterator[tuple[Shard, Place, str]]:
    """Each shard, the place to read it, and its sha256. A remote one is a file in ``folder`` until the next
    is requested; others are fetched meanwhile."""
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
