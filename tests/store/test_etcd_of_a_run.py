"""An etcd of a run's own refuses clients without the run's key, also for requests that need no login."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from cerebro_elastic.config import StoreSettings
from cerebro_elastic.core.history.keys import Keys
from cerebro_elastic.errors import CerebroError, StoreRefused
from cerebro_elastic.runs.start.prepare_run import check_store
from cerebro_elastic.store.client.cluster import open_endpoints
from cerebro_elastic.store.client.embedded import EmbeddedEtcd, Listen
from cerebro_elastic.store.client.etcd import EtcdStore
from cerebro_elastic.system.run_key import RunKey
from support.store_contract import expect, put

KEY, ANOTHER = RunKey(b"k" * 32), RunKey(b"a" * 32)
ALARM = json.dumps({"action": "ACTIVATE", "alarm": "NOSPACE"})
Connect = Callable[[StoreSettings], EtcdStore]


def free_port(host: str = "127.0.0.1") -> int:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def _answer(stranger: http.client.HTTPConnection, path: str) -> http.client.HTTPResponse:
    stranger.request("POST", path, ALARM)
    return stranger.getresponse()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreSettings]:
    """An etcd with the key that listens on a port, and how those with the key reach it there."""
    where = Listen("127.0.0.1", free_port())
    with EmbeddedEtcd(tmp_path_factory.mktemp("served") / "data", KEY, where):
        yield StoreSettings(endpoints=(str(where),), run_key=KEY)


def test_every_kind_of_request_with_the_key_alone(connect: Connect, served: StoreSettings) -> None:
    with closing(connect(served)) as store:
        lease = store.grant(30)
        revision = put(store, "/x", b"1", lease)
        with store.watch("/x", revision) as watch:
            assert expect(watch).revision == revision
        assert store.keep(lease) == 30
        assert store.range("/x").items[0].value == b"1"
        store.revoke(lease)


@pytest.mark.parametrize("encrypted", [False, True])
@pytest.mark.parametrize(
    "path", ["/v3/maintenance/alarm", "/v3/cluster/member/list", "/v3/kv/range", "/metrics"]
)
def test_a_stranger_gets_no_answer(served: StoreSettings, path: str, encrypted: bool) -> None:
    """The alarm is the request by which a stranger can switch off an etcd's login."""
    host, _, port = served.endpoints[0].partition(":")
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    stranger = (
        http.client.HTTPSConnection(host, int(port), context=context, timeout=60)
        if encrypted
        else http.client.HTTPConnection(host, int(port), timeout=60)
    )
    with closing(stranger), pytest.raises((OSError, http.client.HTTPException)):
        _answer(stranger, path)
    (etcd,) = open_endpoints(served)
    with closing(etcd):
        assert etcd.call("maintenance/alarm", {"action": "GET"}, 10.0, None).get("alarms", []) == []


def test_a_run_of_the_same_id_is_looked_for_with_the_key(served: StoreSettings) -> None:
    check_store(served, "fresh", known=False)
    with closing(EtcdStore(served)) as store:
        put(store, Keys("taken").spec, b"signed by whomever")
    with pytest.raises(CerebroError, match="taken"):
        check_store(served, "taken", known=False)


def test_another_key_and_none_are_refused_at_once(connect: Connect, served: StoreSettings) -> None:
    with (
        closing(connect(replace(served, run_key=ANOTHER))) as store,
        pytest.raises(
            StoreRefused, match=r"certificate that the run's key did not make.*take the file `key`"
        ),
    ):
        store.get("/x")
    with (
        closing(connect(replace(served, run_key=None))) as store,
        pytest.raises(
            StoreRefused, match="without TLS: for the run's own etcd, name by CEREBRO_RUN_KEY_FILE"
        ),
    ):
        store.get("/x")


def test_a_server_without_the_key_is_not_believed(served: StoreSettings, tmp_path: Path) -> None:
    """Nor is one that shows a certificate of another run."""
    where = Listen("127.0.0.1", free_port())
    with (
        EmbeddedEtcd(tmp_path / "data", ANOTHER, where),
        closing(EtcdStore(replace(served, endpoints=(str(where),)))) as store,
        pytest.raises(StoreRefused, match="certificate that the run's key did not make"),
    ):
        store.get("/x")
