"""User and password: logins that are refused, that end, and that are renewed."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cerebro_elastic.config import StoreSettings
from cerebro_elastic.errors import StoreRefused
from cerebro_elastic.store.client.base import Put
from cerebro_elastic.store.client.cluster import open_endpoints
from cerebro_elastic.store.client.embedded import EmbeddedEtcd
from cerebro_elastic.store.client.endpoint import Json, range_json
from cerebro_elastic.store.client.etcd import EtcdStore
from support.etcd_cluster import EtcdCluster
from support.store_contract import expect, put
from support.waiting import SOON

PASSWORD = "s3cret-pw"
Connect = Callable[[StoreSettings], EtcdStore]


def ask(settings: StoreSettings, path: str, body: Json, token: str | None = None) -> dict[str, Any]:
    """What etcd answers to one who manages users."""
    (etcd,) = open_endpoints(settings)
    with closing(etcd):
        return etcd.call(f"auth/{path}", body, 10.0, token)


def demand_login(settings: StoreSettings) -> None:
    """From now on only ann may read and write, and only under /ours/."""
    for path, body in (
        ("user/add", {"name": "root", "password": PASSWORD}),
        ("user/grant", {"user": "root", "role": "root"}),
        ("user/add", {"name": "ann", "password": PASSWORD}),
        ("role/add", {"name": "ours"}),
        ("role/grant", {"name": "ours", "perm": {"permType": "READWRITE", **range_json("/ours/")}}),
        ("user/grant", {"user": "ann", "role": "ours"}),
        ("enable", {}),
    ):
        ask(settings, path, body)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedEtcd]:
    with EmbeddedEtcd(tmp_path_factory.mktemp("login") / "data") as server:
        demand_login(server.settings)
        yield server


@pytest.fixture
def ann(server: EmbeddedEtcd) -> StoreSettings:
    return replace(server.settings, user="ann", password=PASSWORD)


def test_a_wrong_password_is_refused_and_not_shown(connect: Connect, ann: StoreSettings) -> None:
    with closing(connect(replace(ann, password="wrong-pw"))) as store:
        for verb in (lambda: store.get("/ours/x"), lambda: put(store, "/ours/x")):
            with pytest.raises(
                StoreRefused, match=r"authentication failed.*check CEREBRO_ETCD_USER"
            ) as caught:
                verb()
            assert "wrong-pw" not in str(caught.value)
        assert "wrong-pw" not in repr(store)


def test_other_keys_are_denied(connect: Connect, ann: StoreSettings) -> None:
    with closing(connect(ann)) as store:
        for verb in (lambda: store.range("/theirs/"), lambda: store.txn([], [Put("/theirs/x", b"")])):
            with pytest.raises(StoreRefused, match="permission denied; let the user"):
                verb()
        # One that reaches beyond what is allowed is not allowed.
        for prefix in ("/theirs/", "/our", "/", ""):
            with store.watch(prefix, 1) as watch, pytest.raises(StoreRefused, match="denied; let the user"):
                watch.next(timeout=SOON)


@pytest.mark.parametrize(
    ("path", "pattern"),
    [
        ("role/revoke", "permission denied; let the user"),
        ("user/delete", "authentication failed.*check CEREBRO_ETCD_USER"),
    ],
)
def test_a_watch_that_is_no_longer_allowed_ends(
    connect: Connect, server: EmbeddedEtcd, path: str, pattern: str
) -> None:
    """etcd looks when a watch begins: ours begins anew after half of the patience in which all was quiet."""
    name = f"{path.replace('/', '-')}-{uuid.uuid4().hex}"
    keys = range_json(f"/{name}/")
    root = ask(server.settings, "authenticate", {"name": "root", "password": PASSWORD})["token"]
    for step, body in (
        ("role/add", {"name": name}),
        ("role/grant", {"name": name, "perm": {"permType": "READWRITE", **keys}}),
        ("user/add", {"name": name, "password": PASSWORD}),
        ("user/grant", {"user": name, "role": name}),
    ):
        ask(server.settings, step, body, root)
    settings = replace(server.settings, user=name, password=PASSWORD, patience=6.0)
    with closing(connect(settings)) as store, store.watch(f"/{name}/", put(store, f"/{name}/x")) as watch:
        expect(watch)
        ask(server.settings, path, {"name": name, "role": name, "password": "another", **keys}, root)
        with pytest.raises(StoreRefused, match=pattern):
            watch.next(timeout=SOON)


def test_a_login_that_ended_is_renewed(connect: Connect, tmp_path: Path) -> None:
    """A server's restart ends all logins, as their time does."""
    with ExitStack() as stack:
        server = stack.enter_context(EtcdCluster(tmp_path, size=1))
        demand_login(server.settings)
        settings = replace(server.settings, user="ann", password=PASSWORD)
        readers = [stack.enter_context(closing(connect(settings))) for _ in range(3)]
        start = put(readers[0], "/ours/x", b"1")
        watch = readers[1].watch("/ours/", start)
        assert expect(watch).revision == start
        assert readers[2].get("/ours/x") is not None
        server.kill(0)
        server.start(0)
        # The first thing that each does after the end of its login: a txn, a watch, a read.
        revision = put(readers[0], "/ours/x", b"2")
        assert expect(watch).revision == revision
        item = readers[2].get("/ours/x")
        assert item is not None
        assert item.value == b"2"
