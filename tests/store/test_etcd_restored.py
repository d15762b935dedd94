"""An etcd that was restored from a backup knows another history than its clients: no watch goes on in it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from cerebro_elastic.config import StoreSettings
from cerebro_elastic.errors import Rewound
from cerebro_elastic.store.client.base import Watch
from cerebro_elastic.store.client.etcd import EtcdStore
from support.etcd_cluster import EtcdCluster, compact
from support.store_contract import expect, put
from support.waiting import SOON

Connect = Callable[[StoreSettings], EtcdStore]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EtcdCluster]:
    with EtcdCluster(tmp_path, size=1) as server:
        yield server


def restore(server: EtcdCluster, backup: Path, beyond: int = 0) -> None:
    """As an administrator does it: stop, put the data back, start; with ``beyond`` as `etcdutl snapshot
    restore --bump-revision --mark-compacted`: revisions go on from there, and all before is compacted."""
    (member,) = server.members
    server.kill(0)
    shutil.rmtree(member.data)
    shutil.copytree(backup, member.data)
    if beyond:
        with EtcdCluster(backup.parent, size=1) as elsewhere, closing(EtcdStore(elsewhere.settings)) as store:
            while (revision := put(store, "/bump")) < beyond:
                pass
            compact(elsewhere.members[0].endpoint, revision)
    server.start(0)


def expect_put(store: EtcdStore, watch: Watch) -> int:
    """Write, and see the write; its revision."""
    revision = put(store, "/x", b"again")
    assert expect(watch).revision == revision
    return revision


@pytest.fixture
def backup(server: EtcdCluster, tmp_path: Path, connect: Connect) -> Path:
    """The data of a server that has seen one write."""
    with closing(connect(server.settings)) as store:
        put(store, "/x", b"0")
    server.kill(0)
    shutil.copytree(server.members[0].data, tmp_path / "backup")
    server.start(0)
    return tmp_path / "backup"


def test_a_store_that_went_back_is_reported(server: EtcdCluster, backup: Path, connect: Connect) -> None:
    with closing(connect(server.settings)) as store:
        begin = store.range("/").revision + 1
        watch = store.watch("/", begin)
        for _ in range(2):
            expect_put(store, watch)
        restore(server, backup)
        with pytest.raises(Rewound, match=rf"at revision {begin - 1}, was at {begin + 1}\).*range afresh"):
            watch.next(timeout=SOON)

        # Read afresh, as the message says, all goes on.
        snapshot = store.range("/")
        assert snapshot.items[0].value == b"0"
        with store.watch("/", snapshot.revision + 1) as again:
            expect_put(store, again)


def test_another_cluster_at_the_same_address_is_reported(server: EtcdCluster, connect: Connect) -> None:
    with closing(connect(server.settings)) as store:
        watch = store.watch("/", store.range("/").revision + 1)
        expect_put(store, watch)
        server.kill(0)
        shutil.rmtree(server.members[0].data)
        other = EtcdCluster(
            server.members[0].data.parent, size=1, arguments=["--initial-cluster-token", "other"]
        )
        other.members[0].client = server.members[0].client
        with other:
            for _ in range(5):
                put(store, "/x")
            with pytest.raises(Rewound, match="it is the cluster"):
                watch.next(timeout=SOON)
