"""Shards on a storage that misbehaves while hosts fetch them, and hosts that are killed."""

from __future__ import annotations

from pathlib import Path

import pytest
from s3fs import S3FileSystem

from cerebro_elastic.data.manifest import Manifest
from cerebro_elastic.data.reading.cache import PartitionCache
from cerebro_elastic.data.shards.making import make_columns
from cerebro_elastic.errors import DataError, StorageError
from support.proxy import Bad, BadProxy, Request
from support.sharded import cache_files, killed_while_it_fetches, opened, write_parquet


@pytest.fixture
def dataset(s3: BadProxy, tmp_path: Path) -> tuple[str, Manifest]:  # noqa: ARG001
    return opened(write_parquet("s3://bucket/shards"), str(tmp_path / "data"), partitions=2)


def fetched(dataset: tuple[str, Manifest], root: Path) -> dict[str, bytes]:
    for index in range(2):
        PartitionCache(root, make=make_columns).fetch(*dataset, "train", index)
    return cache_files(root)


@pytest.mark.parametrize("bad", [Bad.SLOW_DOWN, Bad.CUT, Bad.DROP])
def test_a_bucket_that_fails_now_and_then_gives_the_same_rows(
    s3: BadProxy, dataset: tuple[str, Manifest], tmp_path: Path, bad: Bad
) -> None:
    well = fetched(dataset, tmp_path / "well")
    seen = set[str]()

    def first_of_each(request: Request) -> Bad | None:
        if request.method != "GET" or ".parquet" not in request.path or request.path in seen:
            return None
        seen.add(request.path)
        return bad

    s3.plan = first_of_each
    assert fetched(dataset, tmp_path / "badly") == well
    assert len(seen) == len(dataset[1].shards)


def test_credentials_that_end_are_read_again_or_named(
    s3: BadProxy, dataset: tuple[str, Manifest], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    well = fetched(dataset, tmp_path / "well")
    keys = tmp_path / "credentials"
    keys.write_text("[default]\naws_access_key_id = old\naws_secret_access_key = the-secret\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(keys))
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    S3FileSystem.clear_instance_cache()
    s3.plan = lambda request: Bad.EXPIRED if request.key == "old" else None
    with pytest.raises(StorageError, match=r"shards/00\d.parquet.*renew the credentials"):
        fetched(dataset, tmp_path / "late")
    keys.write_text(keys.read_text().replace("old", "new"))
    assert fetched(dataset, tmp_path / "late") == well
    S3FileSystem.clear_instance_cache()


def test_a_shard_that_changes_while_it_is_read_is_named(tmp_path: Path) -> None:
    shards = write_parquet(str(tmp_path / "shards"))
    url, manifest = opened(shards, str(tmp_path / "data"), partitions=2)
    first = manifest.train[0].shards[0].url
    cache = PartitionCache(tmp_path / "cache", make=make_columns)
    with pytest.raises(DataError, match=f"the shard {first} has changed to"):
        cache.fetch(url, manifest, "train", 0, Path(first.removeprefix("file://")).touch)
    assert cache_files(tmp_path / "cache") == {}


def test_a_host_that_is_killed_while_it_fetches_leaves_nothing_that_is_used(
    dataset: tuple[str, Manifest], tmp_path: Path
) -> None:
    well = fetched(dataset, tmp_path / "well")
    killed_while_it_fetches(dataset[0], tmp_path / "killed")
    assert list((tmp_path / "killed").rglob("*.tmp"))
    assert PartitionCache(tmp_path / "killed", make=make_columns).cached(dataset[1]) == ()
    assert fetched(dataset, tmp_path / "killed") == well
    assert not list((tmp_path / "killed").rglob("*.tmp"))


def test_a_cache_of_one_partition_holds_no_more_of_shards(
    dataset: tuple[str, Manifest], tmp_path: Path
) -> None:
    largest = max(part.bytes for part in dataset[1].train)
    cache = PartitionCache(tmp_path / "cache", largest, make=make_columns)
    for index in (0, 1, 0):
        cache.fetch(*dataset, "train", index)
        assert cache.cached(dataset[1]) == (index,)
