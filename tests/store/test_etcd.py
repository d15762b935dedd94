"""EtcdStore keeps the contract over a real etcd."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import requests

from cerebro_elastic.store.base import Store
from cerebro_elastic.store.embedded import EmbeddedEtcd
from cerebro_elastic.store.etcd import EtcdStore
from cerebro_elastic.testing.store_contract import StoreContract


class TestEtcdStore(StoreContract):
    @pytest.fixture
    def store(self, etcd: EmbeddedEtcd) -> Iterator[Store]:
        self.url = f"http://{etcd.settings.endpoints[0]}/v3/kv/compaction"
        store = EtcdStore(etcd.settings)
        yield store
        store.close()

    def compact(self, store: Store, revision: int) -> None:
        assert isinstance(store, EtcdStore)
        requests.post(self.url, json={"revision": str(revision)}, timeout=10).raise_for_status()
