"""The etcd of hosts that a launcher starts: the one that is named, else one of the launcher's own."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from ipaddress import ip_address
from itertools import groupby
from pathlib import Path

from cerebro_elastic.config import StoreSettings
from cerebro_elastic.errors import Compacted, FolderInUse
from cerebro_elastic.recipes import Recipe
from cerebro_elastic.reporting.results import write_curves
from cerebro_elastic.runs.attach import known_spec, store_at
from cerebro_elastic.runs.folder import RunFolder, etcd_folder
from cerebro_elastic.runs.results.report import write_report
from cerebro_elastic.runs.results.result import RunResult
from cerebro_elastic.runs.start.host import check_same
from cerebro_elastic.runs.start.prepare_run import write_spec
from cerebro_elastic.store.client.embedded import EmbeddedEtcd
from cerebro_elastic.store.client.etcd import EtcdStore
from cerebro_elastic.store.client.listen import Listen
from cerebro_elastic.store.client.retrying import PATIENCE, RetryingStore
from cerebro_elastic.store.ledger.journal import Journal
from cerebro_elastic.store.ledger.record import Record
from cerebro_elastic.system.files import private_folder, write_text
from cerebro_elastic.system.logs import EventLog
from cerebro_elastic.system.run_key import RunKey


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
    port = _port(folder)
    with EmbeddedEtcd(folder / "data", _key(folder), Listen(listen, port)) as server:
        yield replace(server.settings, endpoints=(str(Listen(here, port)),))


@contextmanager
def end_of(run: str, settings: StoreSettings) -> Iterator[Callable[[], bool]]:
    """A function that says whether the run has ended, by its record in the store. It waits for a store that
    is away."""
    with closing(RetryingStore(EtcdStore(settings), PATIENCE, EventLog(run=run))) as store:
        yield Record(store, run, settings.run_key).ended


def keep_record(folder: RunFolder, settings: StoreSettings, recipe: Recipe) -> RunResult:
    """The run of ``recipe`` as the store has it. Its record is brought up to date in ``folder``, unless a
    host keeps it there: this machine may have had none."""
    try:
        with folder.locked(), closing(EtcdStore(settings)) as store:
            record = Record(store, folder.run, settings.run_key)
            spec = known_spec(record, settings)
            record.check_signed(settings.trusted)
            check_same(spec, recipe)
            write_spec(folder, spec)
            if settings.run_key is not None:
                settings.run_key.kept_in(folder.key)
            _catch_up(Journal(folder.history), record)
    except FolderInUse:
        return RunResult(folder, settings)
    result = RunResult(folder)
    write_curves(result.leaderboard, folder.curves)
    write_report(result)
    return result


def _catch_up(journal: Journal, record: Record) -> None:
    try:
        events = record.history()
    except Compacted:
        journal.resume(record.read(), afresh=True)
        return
    if journal:
        journal.resume(record.read())
    for _, of_one_revision in groupby(events, lambda event: event.revision):
        journal.append(list(of_one_revision))


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
