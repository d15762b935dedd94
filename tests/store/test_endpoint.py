"""The driver is loaded when a store is opened; an error names a package that it lacks."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from importlib.util import find_spec
from types import SimpleNamespace

import pytest

from cerebro_elastic.config import StoreSettings
from cerebro_elastic.store.client import gateway
from cerebro_elastic.store.client.cluster import open_endpoints
from cerebro_elastic.store.client.embedded import EmbeddedEtcd
from cerebro_elastic.store.client.endpoint import range_json
from cerebro_elastic.store.client.etcd import EtcdStore
from cerebro_elastic.store.client.etcd_errors import NoAnswer
from cerebro_elastic.system import clock as clock_module
from cerebro_elastic.system.clock import SystemClock

Connect = Callable[[StoreSettings], EtcdStore]


def test_a_stream_that_has_ended_may_be_cut(driver: str, etcd: EmbeddedEtcd) -> None:
    """Who closes a watch does not know that its reader has just come to the end."""
    (endpoint,) = open_endpoints(replace(etcd.settings, driver=driver))
    with closing(endpoint):
        request = {"create_request": range_json("/no-such-key")}
        with closing(endpoint.stream("watch", request, seconds=0.2, token=None)) as stream:
            with pytest.raises(NoAnswer):  # silent for too long
                list(stream.messages())
            stream.cut()


@pytest.mark.parametrize("ahead", [0.0, 3600.0, -3600.0])
def test_wall_clock_times_are_those_of_etcd(
    connect: Connect, etcd: EmbeddedEtcd, monkeypatch: pytest.MonkeyPatch, ahead: float
) -> None:
    """Also on a machine whose clock is an hour off: the times of visits of several hosts are compared."""
    now = time.time
    off = SimpleNamespace(time=lambda: now() + ahead, monotonic=time.monotonic)
    for module in (gateway, clock_module):  # gRPC's own limits go by the true time
        monkeypatch.setattr(module, "time", off)
    with closing(connect(etcd.settings)) as store:
        clock = SystemClock(ahead=lambda: store.clock_ahead)
        store.get("/no-such-key")
        assert abs(clock.wall() - now()) < 3
        assert ahead or store.clock_ahead == 0.0, "nothing is corrected without need"


@pytest.mark.skipif(find_spec("etcd3") is None, reason="needs etcd3: `make test` runs it with that")
def test_grpc_is_loaded_for_its_driver_only() -> None:
    code = (
        "import sys; from cerebro_elastic.config import StoreSettings as S\n"
        "from cerebro_elastic.store.client.etcd import EtcdStore\n"
        "loaded = lambda: 'grpc' in sys.modules\n"
        "EtcdStore(S(endpoints=('127.0.0.1:1',))); assert not loaded()\n"
        "EtcdStore(S(endpoints=('127.0.0.1:1',), driver='grpc')); assert loaded()\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
