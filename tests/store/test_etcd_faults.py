"""What EtcdStore does when servers die, hang and come back, and when the network drops answers."""

from __future__ import annotations

import socket
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from cerebro_elastic.config import StoreSettings
from cerebro_elastic.errors import StoreRefused, StoreUnavailable, TxnUnknown
from cerebro_elastic.store.client.base import Put, absent
from cerebro_elastic.store.client.embedded import EmbeddedEtcd
from cerebro_elastic.store.client.etcd import EtcdStore
from support.etcd_cluster import EtcdCluster
from support.store_contract import expect, put
from support.waiting import SOON

MakeProxy = Callable[..., Any]
Connect = Callable[[StoreSettings], EtcdStore]


@pytest.fixture
def direct(connect: Connect, etcd: EmbeddedEtcd) -> Iterator[EtcdStore]:
    """A client with an undisturbed way to the server."""
    with closing(connect(etcd.settings)) as store:
        yield store


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def put_once(store: EtcdStore, key: str) -> int:
    """Write ``key``, which is absent, also where the connection's end comes to light by the writing."""
    while True:
        with suppress(TxnUnknown):
            put(store, key, b"1")
        if item := store.get(key):
            return item.mod_revision


def test_kill_and_restart_under_a_watch(connect: Connect, tmp_path: Path, store_prefix: str) -> None:
    with ExitStack() as stack:
        server = stack.enter_context(EtcdCluster(tmp_path, size=1))
        store = stack.enter_context(closing(connect(server.settings)))
        lease = store.grant(30)
        start = put(store, store_prefix + "node", b"", lease)
        watch = stack.enter_context(store.watch(store_prefix, start))
        assert expect(watch).revision == start

        server.kill(0)
        # Written before the watch may have seen that its stream is gone.
        with ThreadPoolExecutor(1) as pool:
            writing = pool.submit(put_once, store, store_prefix + "x")
            server.start(0)
            written = writing.result()
        last = put(store, store_prefix + "x", b"2")

        assert [expect(watch).revision for _ in range(2)] == [written, last]
        assert store.keep(lease) == 30
        assert store.range(store_prefix).items[0].lease == lease


def test_a_watch_outlives_cut_connections(
    connect: Connect, etcd: EmbeddedEtcd, direct: EtcdStore, proxy: MakeProxy, store_prefix: str
) -> None:
    way = proxy(etcd.settings.endpoints[0])
    start = put(direct, store_prefix + "x", b"0")
    with closing(connect(way.settings())) as store, store.watch(store_prefix, start) as watch:
        assert expect(watch).revision == start
        for count in range(5):
            way.cut = True
            revisions = [put(direct, store_prefix + "x", b"%d" % count) for _ in range(2)]
            way.cut = False
            assert [expect(watch).revision for _ in revisions] == revisions
        assert watch.next(timeout=0) is None


@pytest.mark.parametrize("others", [500])
def test_a_watch_finds_out_that_its_stream_is_deaf(
    connect: Connect, etcd: EmbeddedEtcd, direct: EtcdStore, proxy: MakeProxy, store_prefix: str, others: int
) -> None:
    """However much others have written meanwhile, of which the watch sees nothing."""
    way = proxy(etcd.settings.endpoints[0])
    start = put(direct, store_prefix + "x", b"0")
    with closing(connect(way.settings(patience=1.0))) as store, store.watch(store_prefix, start) as watch:
        assert expect(watch).revision == start
        for _ in range(others):
            put(direct, f"{store_prefix.rstrip('/')}-other")
        way.drop()
        assert store.get(store_prefix + "x") is not None
        assert watch.next(timeout=0.2) is None  # it has a new stream
        way.swallow = True
        written = put(direct, store_prefix + "x", b"1")
        assert watch.next(timeout=0.1) is None
        way.swallow = False
        batch = watch.next(timeout=10.0)
        assert batch is not None
        assert batch.revision == written


@pytest.mark.parametrize("most", [0, 2000], ids=["silence", "larger answers are lost"])
def test_a_watch_gives_up_after_patience(
    connect: Connect, etcd: EmbeddedEtcd, direct: EtcdStore, proxy: MakeProxy, store_prefix: str, most: int
) -> None:
    """Over a network that loses larger packets leases are kept, and a leader would stay the leader."""
    way = proxy(etcd.settings.endpoints[0])
    start = put(direct, store_prefix + "x", b"0")
    with closing(connect(way.settings(patience=0.4))) as store, store.watch(store_prefix, start) as watch:
        assert expect(watch).revision == start
        way.most = most
        put(direct, store_prefix + "x", bytes(5000))
        for _ in range(2):
            with pytest.raises(StoreUnavailable, match=way.endpoint):
                watch.next(timeout=SOON)
    assert watch.next() is None


def test_a_read_is_repeated(
    connect: Connect, etcd: EmbeddedEtcd, direct: EtcdStore, proxy: MakeProxy, store_prefix: str
) -> None:
    way = proxy(etcd.settings.endpoints[0])
    revision = put(direct, store_prefix + "x")
    with closing(connect(way.settings())) as store, ThreadPoolExecutor(1) as pool:
        store.version()
        way.cut = True
        reading = pool.submit(store.range, store_prefix)
        with pytest.raises(TimeoutError):
            reading.result(timeout=0.2)
        way.cut = False
        assert reading.result(timeout=SOON).items[0].mod_revision == revision


@pytest.mark.parametrize("dropped", [False, True], ids=["silence", "a lost connection"])
def test_an_unanswered_txn_is_unknown_and_sent_once(
    connect: Connect,
    etcd: EmbeddedEtcd,
    direct: EtcdStore,
    proxy: MakeProxy,
    store_prefix: str,
    dropped: bool,
) -> None:
    way = proxy(etcd.settings.endpoints[0])
    with ExitStack() as stack:
        store = stack.enter_context(closing(connect(way.settings(patience=1.0))))
        store.version()
        watch = stack.enter_context(direct.watch(store_prefix, put(direct, store_prefix + "other") + 1))
        way.swallow = True
        pool = stack.enter_context(ThreadPoolExecutor(1))
        sending = pool.submit(store.txn, [absent(store_prefix + "x")], [Put(store_prefix + "x", b"")])
        # Here it does happen, and only once.
        happened = expect(watch)
        if dropped:
            way.drop()
        with pytest.raises(TxnUnknown, match="may have happened"):
            sending.result(timeout=SOON)
        put(direct, store_prefix + "last")
        assert [change.key for change in happened.changes] == [store_prefix + "x"]
        assert [change.key for change in expect(watch).changes] == [store_prefix + "last"]


def test_a_dead_server_is_unavailable_to_every_verb(connect: Connect, store_prefix: str) -> None:
    port = free_port()
    with closing(connect(StoreSettings(endpoints=(f"127.0.0.1:{port}",), patience=0.1))) as store:
        for verb in (
            lambda: store.get(store_prefix),
            lambda: store.txn([], [Put(store_prefix, b"")]),
            lambda: store.grant(1),
            lambda: store.keep(1),
            lambda: store.watch(store_prefix, 1),
        ):
            with pytest.raises(
                StoreUnavailable, match=rf"127\.0\.0\.1:{port} did not answer for 0\.1 s.*check"
            ):
                verb()


def test_dead_endpoints_are_passed_over(connect: Connect, etcd: EmbeddedEtcd, store_prefix: str) -> None:
    dead = [f"127.0.0.1:{free_port()}" for _ in range(2)]
    settings = StoreSettings(endpoints=(*dead, *etcd.settings.endpoints))
    with closing(connect(settings)) as store:
        revision = put(store, store_prefix + "x", b"", store.grant(5))
        with store.watch(store_prefix, revision) as watch:
            assert expect(watch).revision == revision


@contextmanager
def answering(body: str) -> Iterator[int]:
    """A server that answers every request with ``body``; its port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body.encode())

        do_POST = do_GET

        def log_message(self, *_: object) -> None:
            """Keep quiet."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("body", "pattern"),
    [
        ('{"etcdserver": "3.3.27"}', r"version 3\.3\.27: at least 3\.4\.23 is needed; upgrade"),
        ('{"etcdserver": "new"}', "'new': check that it is an etcd"),
        ('{"version": 7}', "names no etcd version"),
        ("<html>welcome</html>", "not in JSON"),
    ],
)
def test_a_server_that_will_not_do_is_refused(body: str, pattern: str) -> None:
    with (
        answering(body) as port,
        closing(EtcdStore(StoreSettings(endpoints=(f"127.0.0.1:{port}",)))) as store,
        pytest.raises(StoreRefused, match=pattern),
    ):
        store.get("/x")


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("3.5.1+b4", ["can disable its login", "make the members of a cluster differ"]),
        ("3.6.8", ["can disable its login"]),
        ("3.5.28", []),
    ],
)
def test_versions_with_known_faults_are_warned_of(version: str, expected: list[str]) -> None:
    with (
        answering(f'{{"etcdserver": "{version}", "token": "x"}}') as port,
        warnings.catch_warnings(record=True) as caught,
    ):
        warnings.simplefilter("always")
        # Any other address than loopback may be a cluster, and is reached by strangers.
        for host in ("0.0.0.0", "127.0.0.1"):
            settings = StoreSettings(endpoints=(f"{host}:{port}",), user="ann", password="s3cret")
            with closing(EtcdStore(settings)) as store:
                assert store.version() == version
    texts = sorted(str(each.message) for each in caught)
    assert len(texts) == len(expected)
    assert all(any(words in text for text in texts) for words in expected)
