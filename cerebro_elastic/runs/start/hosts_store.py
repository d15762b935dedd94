"""The etcd of hosts that a launcher starts: the one that is named, else one of the launcher's own."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path

from cerebro_elastic.config import StoreSettings
from cerebro_elastic.files import private_folder, write_text
from cerebro_elastic.logs import EventLog
from cerebro_elastic.run_key import RunKey
from cerebro_elastic.runs.attach import store_at
from cerebro_elastic.runs.folder import etcd_folder
from cerebro_elastic.store.client.embedded import EmbeddedEtcd
from cerebro_elastic.store.client.etcd import EtcdStore
from cerebro_elastic.store.client.retrying import PATIENCE, RetryingStore
from cerebro_elastic.store.ledger.record import Record


@contextmanager
def store_for_hosts(
    run: str, *, here: str, etcd: str | None, home: str | Path | None
) -> Iterator[StoreSettings]:
    """The store of a run's hosts, with the run's key: the ``etcd`` if one is named, else one that this
    process serves on its machine's address ``here`` for the block.

    Key, data and port are in ``<home>/<run>.etcd``. The next launcher there goes on with them, and hosts that
    the last one has left behind find it.
    """
    folder = etcd_folder(run, home)
    private_folder(folder)
    if etcd is not None:
        settings = store_at(etcd)
        if settings.run_key is None and not settings.trusted:
            settings = replace(settings, run_key=_key(folder))
        yield settings
        return
    listen = here if ip_address(here).is_loopback else "0.0.0.0"
    with EmbeddedEtcd(folder / "data", _port(folder), listen, _key(folder)) as server:
        yield replace(server.settings, endpoints=(f"{here}:{server.port}",))


@contextmanager
def end_of(run: str, settings: StoreSettings) -> Iterator[Callable[[], bool]]:
    """A function that says whether the run has ended, by its record in the store. It waits for a store that
    is away."""
    with closing(RetryingStore(EtcdStore(settings), PATIENCE, EventLog(run=run))) as store:
        yield Record(store, run, settings.run_key).ended


def _key(folder: Path) -> RunKey:
    return RunKey.from_env(os.environ) or RunKey.kept(folder / "key")


def _port(folder: Path) -> int:
    """The port of the last launcher, if it is free, else another that is."""
    file = folder / "port"
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", int(file.read_text())))
        except (OSError, ValueError):
            probe.bind(("", 0))
        port = int(probe.getsockname()[1])
    write_text(file, str(port))
    return port
