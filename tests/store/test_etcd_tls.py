"""TLS to etcd: certificates that match, and those that do not."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import trustme

from cerebro_elastic.config import StoreSettings
from cerebro_elastic.errors import StoreError, StoreRefused
from cerebro_elastic.store.client.embedded import EmbeddedEtcd
from cerebro_elastic.store.client.etcd import EtcdStore
from support.store_contract import expect, put

MakeProxy = Callable[..., Any]
Connect = Callable[[StoreSettings], EtcdStore]


@dataclass(frozen=True)
class Files:
    ca: Path
    other_ca: Path
    cert: Path
    key: Path
    server: ssl.SSLContext


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """Two authorities, a client's certificate, and a server that requires it."""
    folder = tmp_path_factory.mktemp("tls")
    ca, other = trustme.CA(), trustme.CA()
    ca.cert_pem.write_to_path(folder / "ca.pem")
    other.cert_pem.write_to_path(folder / "other.pem")
    client = ca.issue_cert("client@example.org")
    client.cert_chain_pems[0].write_to_path(folder / "cert.pem")
    client.private_key_pem.write_to_path(folder / "key.pem")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.set_alpn_protocols(["h2", "http/1.1"])  # gRPC insists on it
    context.verify_mode = ssl.CERT_REQUIRED
    ca.configure_trust(context)
    ca.issue_cert("localhost").configure_cert(context)
    return Files(folder / "ca.pem", folder / "other.pem", folder / "cert.pem", folder / "key.pem", context)


def test_every_kind_of_request_over_tls(
    connect: Connect, etcd: EmbeddedEtcd, proxy: MakeProxy, files: Files, store_prefix: str
) -> None:
    way = proxy(etcd.settings.endpoints[0], files.server)
    settings = StoreSettings(endpoints=(way.endpoint,), ca=files.ca, cert=files.cert, key=files.key)
    with closing(connect(settings)) as store:
        revision = put(store, store_prefix + "x", b"1")
        with store.watch(store_prefix, revision) as watch:
            assert expect(watch).revision == revision
            # A lost connection inside TLS is no matter of certificates.
            way.cut = True
            later = put(connect(etcd.settings), store_prefix + "x", b"2")
            way.cut = False
            assert expect(watch).revision == later
        item = store.get(store_prefix + "x")
        assert item is not None
        assert item.value == b"2"


def test_an_untrusted_server_is_refused(
    connect: Connect, etcd: EmbeddedEtcd, proxy: MakeProxy, files: Files
) -> None:
    way = proxy(etcd.settings.endpoints[0], files.server)
    settings = StoreSettings(endpoints=(way.endpoint,), ca=files.other_ca, cert=files.cert, key=files.key)
    with closing(connect(settings)) as store, pytest.raises(StoreRefused, match="CEREBRO_ETCD_CA"):
        store.get("/x")


# These two servers cut the connection, and whether their reason arrives before is a matter of chance.


def test_a_missing_client_certificate_is_reported(
    connect: Connect, etcd: EmbeddedEtcd, proxy: MakeProxy, files: Files
) -> None:
    way = proxy(etcd.settings.endpoints[0], files.server)
    settings = StoreSettings(endpoints=(way.endpoint,), ca=files.ca, patience=0.2)
    with (
        closing(connect(settings)) as store,
        pytest.raises(StoreError, match=r"TLS.*without a certificate"),
    ):
        store.get("/x")
