"""An etcd whose database is full: it is reported as full, and the run goes on when somebody has made room."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from cerebro_elastic.config import StoreSettings
from cerebro_elastic.errors import StoreFull, TxnUnknown
from cerebro_elastic.store.client.base import Delete, Put, Store, absent
from cerebro_elastic.store.client.embedded import EmbeddedEtcd
from cerebro_elastic.store.client.etcd import EtcdStore
from support.etcd_cluster import EtcdCluster, exchange, make_room
from support.store_contract import expect, put

Connect = Callable[[StoreSettings], EtcdStore]
QUOTA = 2 << 20
BLOCK = b"x" * 100_000


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EtcdCluster]:
    with EtcdCluster(tmp_path, size=1, arguments=["--quota-backend-bytes", str(QUOTA)]) as server:
        yield server


def fill(store: Store, key: str) -> int:
    """Write ``key`` until there is no space left; the revision of the last write."""
    revision = 0
    for _ in range(10 * QUOTA // len(BLOCK)):
        try:
            with suppress(TxnUnknown):
                revision = put(store, key, BLOCK)
        except StoreFull:
            return revision
    raise AssertionError("the store took more than its quota")


def test_a_full_store_says_what_to_do_and_goes_on_afterwards(connect: Connect, server: EtcdCluster) -> None:
    (endpoint,) = server.settings.endpoints
    with (
        closing(connect(replace(server.settings, patience=1.0))) as store,
        # More patient: etcd 3.5.1 can crash when a watch that begins anew catches up while the file grows.
        closing(connect(server.settings)) as watching,
    ):
        lease = store.grant(60)
        node = put(store, "/node", b"", lease)
        watch = watching.watch("/node", node)
        assert expect(watch).revision == node
        last = fill(store, "/full")

        for write in (lambda: put(store, "/x"), lambda: store.grant(60)):
            with pytest.raises(StoreFull, match=r"compact.*defrag.*alarm disarm.*--quota-backend-bytes"):
                write()
        # Reads, leases and watches go on.
        assert store.get("/x") is None
        assert store.keep(lease) == 60
        store.revoke(lease)
        assert expect(watch).changes[0].item is None

        make_room(endpoint, last)
        assert store.txn([absent("/x")], [Put("/x", b"")]).succeeded
        assert store.keep(store.grant(60)) == 60
        put(store, "/node")
        assert expect(watch).changes[0].item is not None


@contextmanager
def late_alarm(target: str) -> Iterator[StoreSettings]:
    """A way to the etcd at ``target``, whose transactions are performed and answered with NOSPACE, as are
    those that were on their way when etcd found that it is full."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.forward(*exchange(target, self.path, None))

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status, content = exchange(target, self.path, body)
            if self.path.endswith("/txn"):
                status = 429
                content = b'{"code": 8, "message": "etcdserver: mvcc: database space exceeded"}'
            self.forward(status, content)

        def forward(self, status: int, content: bytes) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Keep quiet."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server, ThreadPoolExecutor(1) as pool:
        pool.submit(server.serve_forever, poll_interval=0.01)
        try:
            yield StoreSettings(endpoints=(f"127.0.0.1:{server.server_port}",), patience=1.0)
        finally:
            server.shutdown()


def test_a_txn_that_was_performed_all_the_same_is_unknown(etcd: EmbeddedEtcd, store_prefix: str) -> None:
    key = store_prefix + "x"
    with late_alarm(etcd.settings.endpoints[0]) as settings, closing(EtcdStore(settings)) as store:
        store.get(key)
        for op in (Put(key, b"1"), Put(key, b"2"), Delete(key)):
            with pytest.raises(TxnUnknown, match="space exceeded"):
                store.txn([], [op])
            item = store.get(key)
            assert (item.value if item else None) == getattr(op, "value", None)
