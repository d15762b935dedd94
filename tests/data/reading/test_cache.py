"""The cache: checked once, shared by processes, never fooled by a kill or a damaged file."""

from __future__ import annotations

import json
import os
import pickle
import random
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fsspec
import numpy as np
import pytest

from cerebro_elastic.data.manifest import Manifest, read_manifest
from cerebro_elastic.data.reading import cached_column as column_module
from cerebro_elastic.data.reading.cache import PartitionCache
from cerebro_elastic.errors import DamagedData, DataError, StorageError
from cerebro_elastic.system.files import place as place_module
from support.prepared import prepare
from support.proxy import Bad, BadProxy


def columns() -> dict[str, Any]:
    return {"x": np.arange(40, dtype="f4").reshape(20, 2), "y": np.arange(20)}


@pytest.fixture(params=["local", "memory"])
def dataset(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    url = {"local": str(tmp_path / "data"), "memory": "memory://data"}[request.param]
    yield url, prepare(columns, url, partitions=3, seed=0, valid=0.2)
    fsspec.filesystem("memory").store.clear()


def files(root: Path) -> list[Path]:
    return sorted(path for path in root.rglob("*.npy"))


def damage(url: str, path: str) -> None:
    """Flip a bit of a file, which is replaced, as `prepare` and object stores do."""
    fs, full = fsspec.core.url_to_fs(f"{url}/{path}")
    data = bytearray(fs.cat_file(full))
    data[-1] ^= 1
    fs.rm_file(full)
    fs.pipe_file(full, bytes(data))


def test_a_fetched_partition_is_mapped_read_only_and_whole(dataset: Any, tmp_path: Path) -> None:
    url, manifest = dataset
    cache = PartitionCache(tmp_path / "cache")
    parts = [cache.fetch(url, manifest, "train", index) for index in range(3)]
    held_out = cache.fetch(url, manifest, "valid", 0)
    assert [part.rows for part in parts] == list(manifest.rows)
    assert list(parts[0].columns) == ["x", "y"]
    assert all(isinstance(column, np.memmap) for column in parts[0].columns.values())
    assert not parts[0].columns["x"].flags.writeable
    assert sorted(np.concatenate([part.columns["y"] for part in [*parts, held_out]])) == list(range(20))


def test_the_second_fetch_needs_a_dataset_elsewhere_no_more(dataset: Any, tmp_path: Path) -> None:
    url, manifest = dataset
    cache = PartitionCache(tmp_path / "cache")
    first = np.array(cache.fetch(url, manifest, "train", 1).columns["y"])
    fs, path = fsspec.core.url_to_fs(url)
    fs.rm(path, recursive=True)
    if url.startswith("memory://"):
        np.testing.assert_array_equal(cache.fetch(url, manifest, "train", 1).columns["y"], first)
    for index in (0,) if url.startswith("memory://") else (0, 1):
        with pytest.raises(DataError, match=f"there is no dataset at {url}"):
            cache.fetch(url, manifest, "train", index)


def test_a_local_dataset_takes_no_space_twice(tmp_path: Path) -> None:
    manifest = prepare(columns, str(tmp_path / "data"), partitions=1, seed=0)
    PartitionCache(tmp_path / "cache").fetch(str(tmp_path / "data"), manifest, "train", 0)
    (cached, *_), (source, *_) = files(tmp_path / "cache"), files(tmp_path / "data")
    assert cached.readlink() == source
    assert source.stat().st_nlink == 1


def test_a_file_is_cloned_where_the_file_system_can(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def clone(ours: Any, request: int, theirs: int) -> None:
        assert request == 0x40049409, "FICLONE, of linux/fs.h"
        os.sendfile(ours.fileno(), theirs, 0, os.fstat(theirs).st_size)

    monkeypatch.setattr(column_module, "fcntl", SimpleNamespace(ioctl=clone))
    url = str(tmp_path / "data")
    part = PartitionCache(tmp_path / "cache").fetch(
        url, prepare(columns, url, partitions=1, seed=0), "train", 0
    )
    damage(url, "train/00000/y.npy")
    assert not any(path.is_symlink() for path in files(tmp_path / "cache"))
    assert sorted(part.columns["y"]) == list(range(20))


def test_a_damaged_file_is_refused_and_never_enters_the_cache(dataset: Any, tmp_path: Path) -> None:
    url, manifest = dataset
    file = manifest.train[0].files[1]
    damage(url, file.path)
    cache = PartitionCache(tmp_path / "cache")
    for _ in range(2):
        with pytest.raises(DataError) as caught:
            cache.fetch(url, manifest, "train", 0)
        assert file.path in str(caught.value)
        assert f"expected {file.content}, found" in str(caught.value)
    assert cache.cached(manifest) == ()
    assert len(files(tmp_path / "cache")) == 1  # the other column, which is whole
    assert len(list(tmp_path.rglob("*.sums"))) == 1
    assert list((tmp_path / "cache").rglob("*.tmp")) == []


KILLED = """
import os, signal, sys
from pathlib import Path
from cerebro_elastic.system import cache_space, files
from cerebro_elastic.data.reading import cache, cached_column
from cerebro_elastic.data.manifest import read_manifest

def halfway(source):
    for chunk in files.chunks(source):
        yield chunk[: len(chunk) // 2]
        os.kill(os.getpid(), signal.SIGKILL)

cache_space.chunks = halfway
cached_column._cloned = cached_column._referred = lambda *_: False
url, root = sys.argv[1:]
cache.PartitionCache(Path(root)).fetch(url, read_manifest(url), "train", 0)
"""


def test_a_kill_in_the_middle_of_a_fetch_does_no_harm(tmp_path: Path) -> None:
    url, root = str(tmp_path / "data"), tmp_path / "cache"
    manifest = prepare(columns, url, partitions=1, seed=0)
    killed = subprocess.run([sys.executable, "-c", KILLED, url, str(root)])
    assert killed.returncode == -signal.SIGKILL
    assert len(list(root.rglob("*.tmp"))) == 1
    cache = PartitionCache(root)
    assert cache.cached(manifest) == ()
    assert sorted(cache.fetch(url, manifest, "train", 0).columns["y"]) == list(range(20))
    assert list(root.rglob("*.tmp")) == []


FETCH = """
import sys
import tempfile
from pathlib import Path
from cerebro_elastic.data.reading import cache as cache_module
from cerebro_elastic.data.reading.cache import PartitionCache
from cerebro_elastic.data.manifest import read_manifest
url, root = sys.argv[1:]
print(int(PartitionCache(Path(root)).fetch(url, read_manifest(url), "train", 0).columns["y"].sum()))
"""


def test_a_long_fetch_gives_signs_of_life(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url, root = str(tmp_path / "data"), tmp_path / "cache"
    manifest = prepare(columns, url, partitions=1, seed=0)
    monkeypatch.setattr(column_module, "_referred", lambda *_: False)
    cache, beats = PartitionCache(root), list[str]()

    def enough() -> None:
        beats.append("beat")
        raise TimeoutError("enough")

    with pytest.raises(DataError, match="enough"):
        cache.fetch(url, manifest, "train", 0, enough)
    assert beats == ["beat"]
    assert list(root.rglob("*.tmp")) == []
    cache.fetch(url, manifest, "train", 0, lambda: beats.append("copied"))
    assert beats.count("copied") == len(manifest.columns)
    for path in root.rglob("*.sums"):
        path.unlink()
    PartitionCache(root).fetch(url, manifest, "train", 0, lambda: beats.append("checked"))
    assert beats.count("checked") == len(manifest.columns)


@pytest.fixture
def bucket(s3: BadProxy) -> tuple[str, Manifest, BadProxy]:
    manifest = prepare(columns, "s3://bucket/data", partitions=1, seed=0)
    s3.reset()
    return "s3://bucket/data", manifest, s3


def fetched(proxy: BadProxy) -> list[str]:
    """The files that were read whole, in one request each: they are small."""
    return sorted(r.path for r in proxy.requests if r.method == "GET" and r.path.endswith(".npy"))


def test_processes_that_share_a_cache_fetch_a_partition_once(bucket: Any, tmp_path: Path) -> None:
    url, manifest, s3 = bucket
    command = [sys.executable, "-c", FETCH, url, str(tmp_path)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert [process.communicate()[0].strip() for process in running] == ["190"] * 2
    assert fetched(s3) == [f"/bucket/data/{file.path}" for file in manifest.train[0].files]


@pytest.mark.parametrize("bad", [Bad.SLOW_DOWN, Bad.DROP, Bad.CUT], ids=lambda bad: bad.name)
def test_a_partition_comes_through_a_storage_with_bad_days(bucket: Any, tmp_path: Path, bad: Bad) -> None:
    url, manifest, s3 = bucket
    chance = random.Random(0)
    s3.plan = lambda _request: bad if chance.random() < 1 / 3 else None
    part = PartitionCache(tmp_path).fetch(url, manifest, "train", 0)
    assert sorted(part.columns["y"]) == list(range(20))


def test_a_storage_out_of_reach_is_not_damage_and_leaves_nothing(
    bucket: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, manifest, s3 = bucket
    s3.first(99, Bad.SLOW_DOWN)
    with monkeypatch.context() as context:
        context.setattr(place_module, "PATIENCE", 0.0)
        with pytest.raises(StorageError, match=r"s3://bucket/data/train/.*: the storage cannot be reached"):
            PartitionCache(tmp_path).fetch(url, manifest, "train", 0)
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == ["lock", "use"]


@pytest.mark.parametrize("damage", ["flipped", "cut short", "removed"])
def test_damage_in_the_cache_is_found_at_first_use_and_fetched_again(
    bucket: Any, tmp_path: Path, damage: str
) -> None:
    url, manifest, s3 = bucket
    PartitionCache(tmp_path).fetch(url, manifest, "train", 0)
    path = files(tmp_path)[1]
    data = path.read_bytes()
    path.unlink()  # readers may still have the old one mapped
    if damage != "removed":
        path.write_bytes({"flipped": data[:-1] + bytes([data[-1] ^ 1]), "cut short": data[:-1]}[damage])
    s3.requests.clear()
    if damage == "flipped":  # at rest: who reads it removes its sums
        path.with_suffix(".sums").unlink()
    cache = PartitionCache(tmp_path)
    for _ in range(2):
        assert sorted(cache.fetch(url, manifest, "train", 0).columns["y"]) == list(range(20))
    assert fetched(s3) == [f"/bucket/data/{manifest.train[0].files[1].path}"], "that file, once"
    assert path.read_bytes() == data


def ragged_columns() -> dict[str, Any]:
    return {**columns(), "tokens": [np.arange(1 + row % 3) for row in range(20)]}


def damage_in_place(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        last = file.read(1)[0]
        file.seek(-1, os.SEEK_END)
        file.write(bytes([last ^ 1]))


def test_all_damage_of_a_partition_is_mended_by_one_fetch(tmp_path: Path) -> None:
    url = f"memory://{tmp_path.name}"
    cache, manifest = PartitionCache(tmp_path), prepare(ragged_columns, url, partitions=1, seed=0)
    part = cache.fetch(url, manifest, "train", 0)
    whole = [path.read_bytes() for path in files(tmp_path)]
    for path in files(tmp_path):
        damage_in_place(path)
    with pytest.raises(DamagedData, match="column 'x' has changed in 1 row"):
        part.check_rows("x", np.arange(20), np.array(part.columns["x"]))
    cache.fetch(url, manifest, "train", 0)
    assert [path.read_bytes() for path in files(tmp_path)] == whole


@pytest.mark.parametrize("how", ["by name", "by content", "a column only"])
def test_partitions_exchanged_in_the_cache_with_their_sums_are_fetched_again(
    tmp_path: Path, how: str
) -> None:
    url = f"memory://{tmp_path.name}"
    cache, manifest = PartitionCache(tmp_path), prepare(ragged_columns, url, partitions=2, seed=0)
    rows = [np.array(cache.fetch(url, manifest, "train", index).columns["y"]) for index in (0, 1)]
    first, second = (tmp_path / manifest.digest / f"train-{index:05d}" for index in (0, 1))
    if how == "by name":
        first.rename(tmp_path / "aside")
        second.rename(first)
        (tmp_path / "aside").rename(second)
    else:
        for one in first.glob("001.*" if how == "a column only" else "0*.*"):
            other = second / one.name
            mine, others = one.read_bytes(), other.read_bytes()
            one.write_bytes(others)
            other.write_bytes(mine)
    for index in (0, 1):
        assert list(cache.fetch(url, manifest, "train", index).columns["y"]) == list(rows[index])


def test_a_partition_is_pickled_by_path(tmp_path: Path) -> None:
    big = {"x": np.zeros((1 << 20,), "u1")}
    manifest = prepare(lambda: big, str(tmp_path / "data"), partitions=1, seed=0)
    part = PartitionCache(tmp_path / "cache").fetch(str(tmp_path / "data"), manifest, "train", 0)
    sent = pickle.dumps(part)
    assert len(sent) < 1000
    back = pickle.loads(sent)
    assert isinstance(back.columns["x"], np.memmap)
    assert isinstance(back.sums["x"], np.memmap)


def test_a_manifest_comes_back_as_written_and_any_change_is_found(tmp_path: Path) -> None:
    url = str(tmp_path / "data")
    manifest = prepare(columns, url, partitions=2, seed=0)
    path = tmp_path / "data" / "manifest.json"
    document = json.loads(path.read_text())
    assert isinstance(read_manifest(url), Manifest)
    assert read_manifest(url) == manifest
    changes: dict[str, Any] = {
        "changed after it was written": {**document, "seed": 1},
        "version 9, this program reads version 1": {**document, "version": 9},
        "is damaged": {**document, "train": "many"},
        "is not a manifest": [1],
    }
    for message, changed in changes.items():
        path.write_text(json.dumps(changed))
        with pytest.raises(DataError, match=message):
            read_manifest(url)
    path.write_text('{"version": 1')
    with pytest.raises(DataError, match="is not a manifest"):
        read_manifest(url)
    path.unlink()
    with pytest.raises(DataError, match=r"no dataset at .*manifest.json is missing.*cerebro prepare"):
        read_manifest(url)
