"""A limited cache: which partitions it drops for which, and which it never drops."""

from __future__ import annotations

import errno
import gc
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread
from typing import Any

import fsspec
import numpy as np
import pytest

from cerebro_elastic.data.manifest import Manifest
from cerebro_elastic.data.reading import cached_column
from cerebro_elastic.data.reading.cache import PartitionCache
from cerebro_elastic.data.reading.partition import Partition
from cerebro_elastic.errors import DiskFull
from cerebro_elastic.system import cache_space
from cerebro_elastic.system.cache_space import NoRoom
from support.prepared import prepare

ROWS, PARTITIONS = 1000, 5
URL = "memory://data"


@pytest.fixture
def manifest() -> Iterator[Manifest]:
    """Partitions of one size at a place from where they are copied."""
    yield prepare(lambda: {"y": np.arange(ROWS)}, URL, partitions=PARTITIONS, seed=0)
    fsspec.filesystem("memory").store.clear()


def size_of(manifest: Manifest) -> int:
    """The bytes of a partition in the cache: the column, its sha256, and the sums of its rows."""
    return manifest.train[0].files[0].bytes + 32 + 8 * manifest.train[0].rows


def of_partitions(root: Path, manifest: Manifest, partitions: float) -> PartitionCache:
    """A cache with room for ``partitions`` partitions."""
    return PartitionCache(root, int(partitions * size_of(manifest)))


def fetched(cache: PartitionCache, manifest: Manifest, index: int, **more: Any) -> Partition:
    return cache.fetch(URL, manifest, "train", index, **more)


def bytes_in(root: Path) -> int:
    return sum(path.stat().st_size for path in root.rglob("*") if path.is_file())


def test_the_least_recently_used_partition_goes_first(tmp_path: Path, manifest: Manifest) -> None:
    cache = of_partitions(tmp_path, manifest, 2)
    for index in (0, 1, 0, 2):
        fetched(cache, manifest, index)
        assert bytes_in(tmp_path) <= 2 * size_of(manifest)
    assert cache.cached(manifest) == (0, 2)
    fetched(of_partitions(tmp_path, manifest, 2), manifest, 1)  # another process of the host
    assert cache.cached(manifest) == (1, 2)
    part = fetched(cache, manifest, 0)
    assert cache.cached(manifest) == (0, 1)
    assert np.array_equal(
        np.sort(part.columns["y"]), np.sort(np.load(fsspec.open(f"{URL}/train/00000/y.npy").open()))
    )


def test_on_a_full_disk_a_partition_comes_in_the_place_of_others(
    tmp_path: Path, manifest: Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a limit, too; unless others are in use."""
    replacing, bytes_of_disk = cached_column.replacing, 2.5 * size_of(manifest)

    def on_small_disk(path: str) -> Any:
        if path.endswith(".npy") and bytes_in(tmp_path) + size_of(manifest) > bytes_of_disk:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return replacing(path)

    def usage(root: Path) -> Any:
        return shutil._ntuple_diskusage(0, 0, int(bytes_of_disk) - bytes_in(root))

    monkeypatch.setattr(cached_column, "replacing", on_small_disk)
    monkeypatch.setattr(cache_space, "_SPARE_BYTES", 0)
    monkeypatch.setattr(shutil, "disk_usage", usage)
    cache = PartitionCache(tmp_path)
    for index in (0, 1, 0, 2):
        fetched(cache, manifest, index)
    assert cache.cached(manifest) == (0, 2)
    with pytest.raises(NoRoom):
        fetched(cache, manifest, 3, room="spare")
    used = [fetched(cache, manifest, index) for index in (0, 2)]
    with pytest.raises(DiskFull):
        fetched(cache, manifest, 3)
    assert cache.cached(manifest) == (0, 2)
    del used


def test_a_partition_in_use_stays_and_a_needed_one_comes_all_the_same(
    tmp_path: Path, manifest: Manifest
) -> None:
    cache = of_partitions(tmp_path, manifest, 2)
    used = [fetched(cache, manifest, index) for index in (0, 1)]
    with pytest.raises(NoRoom, match="no room for the next partition"):
        fetched(cache, manifest, 2, room="next")
    needed = fetched(cache, manifest, 3)
    assert cache.cached(manifest) == (0, 1, 3)
    del used[0]
    gc.collect()
    fetched(cache, manifest, 4)
    assert cache.cached(manifest) == (1, 3, 4), "one is dropped for one: two are in use"
    assert len(needed.columns["y"]) == needed.rows


def test_nothing_is_dropped_for_a_replica(tmp_path: Path, manifest: Manifest) -> None:
    cache = of_partitions(tmp_path, manifest, 2)
    fetched(cache, manifest, 0, room="spare")
    fetched(cache, manifest, 1, room="spare")
    with pytest.raises(NoRoom, match="no room left for a replica"):
        fetched(cache, manifest, 2, room="spare")
    fetched(cache, manifest, 1, room="spare")
    fetched(cache, manifest, 2, room="next")
    assert cache.cached(manifest) == (1, 2)


USES = """
import sys
from pathlib import Path
from cerebro_elastic.system.cache_space import use
use(Path(sys.argv[1]))
print("in use", flush=True)
sys.stdin.read()
"""


def test_a_killed_process_uses_nothing_any_more(tmp_path: Path, manifest: Manifest) -> None:
    cache = of_partitions(tmp_path, manifest, 1)
    fetched(cache, manifest, 0)
    folder = next(tmp_path.glob("*/train-00000"))
    (folder / "reserved").write_text("1000000000")
    with subprocess.Popen(
        [sys.executable, "-c", USES, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        fetched(cache, manifest, 1)
        assert cache.cached(manifest) == (0, 1)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    fetched(cache, manifest, 2, room="next")
    assert cache.cached(manifest) == (2,)
    assert [path.name for path in sorted(folder.iterdir())] == ["lock", "use"]


def test_a_fetch_that_is_under_way_has_its_room_reserved(tmp_path: Path, manifest: Manifest) -> None:
    cache, began, go = of_partitions(tmp_path, manifest, 2), Event(), Event()

    def wait() -> None:
        began.set()
        assert go.wait(60)

    thread = Thread(target=lambda: fetched(cache, manifest, 1, beat=wait))
    thread.start()
    try:
        assert began.wait(60)
        fetched(cache, manifest, 0)
        with pytest.raises(NoRoom):
            fetched(cache, manifest, 2, room="spare")
    finally:
        go.set()
        thread.join()
    assert cache.cached(manifest) == (0, 1)


def test_references_and_clones_take_no_space(
    tmp_path: Path, manifest: Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the sums of their rows do."""
    url, elsewhere = str(tmp_path / "data"), manifest
    manifest = prepare(lambda: {"y": np.arange(ROWS)}, url, partitions=PARTITIONS, seed=1)
    for name in ("references", "clones"):
        cache = of_partitions(tmp_path / name, manifest, 1)
        for index in range(PARTITIONS):
            cache.fetch(url, manifest, "train", index, room="spare")
        assert cache.cached(manifest) == tuple(range(PARTITIONS))
        with_sums = of_partitions(tmp_path / name, manifest, 4)
        assert fetched(with_sums, elsewhere, 0, room="spare").rows
        monkeypatch.setattr(cached_column, "_cloned", cloned)


def cloned(source: Any, path: str) -> bool:
    """What a clone looks like from outside."""
    if source.local:
        Path(path).write_bytes(Path(source.path).read_bytes())
    return bool(source.local)
