"""EtcdStore keeps the contract over a real etcd, by each of its drivers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from cerebro_elastic.config import StoreSettings
from cerebro_elastic.store.client.base import Store
from cerebro_elastic.store.client.embedded import EmbeddedEtcd
from cerebro_elastic.store.client.etcd import EtcdStore
from support.etcd_cluster import compact
from support.store_contract import StoreContract


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedEtcd]:
    """One whose history no other test has compacted."""
    with EmbeddedEtcd(tmp_path_factory.mktemp("etcd") / "data") as server:
        yield server


class TestEtcdStore(StoreContract):
    @pytest.fixture
    def store(  # type: ignore[override]
        self, connect: Callable[[StoreSettings], EtcdStore], etcd: EmbeddedEtcd
    ) -> Iterator[Store]:
        (self.endpoint,) = etcd.settings.endpoints
        with closing(connect(etcd.settings)) as store:
            yield store

    def compact(self, store: Store, revision: int) -> None:
        assert isinstance(store, EtcdStore)
        compact(self.endpoint, revision)
