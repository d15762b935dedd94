"""The etcd of a run's hosts: ``cerebro etcd`` serves one for the machines of one run, and ends when they have
ended. Launchers take the named one, else their own."""

from __future__ import annotations

import shutil
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from ipaddress import ip_address
from itertools import groupby
from pathlib import Path

from cerebro_elastic.config import StoreSettings
from cerebro_elastic.core.history.view import RunView
from cerebro_elastic.errors import Compacted, FolderInUse, RunError, StoreError, StoreUnavailable
from cerebro_elastic.recipes import Recipe
from cerebro_elastic.runs.attach import known_record
from cerebro_elastic.runs.folder import RunFolder, check_id, etcd_folder, home_of, known_key, refuse_recipe
from cerebro_elastic.runs.record_copy import fetch_record, has_record, last_revision
from cerebro_elastic.runs.results.report import write_results
from cerebro_elastic.runs.results.result import RunResult
from cerebro_elastic.runs.start.host import check_hosts_recipe
from cerebro_elastic.runs.start.prepare_run import write_spec
from cerebro_elastic.runs.terminal_view import Watcher
from cerebro_elastic.store.client.embedded import EmbeddedEtcd, Listen
from cerebro_elastic.store.client.etcd import EtcdStore
from cerebro_elastic.store.client.retrying import PATIENCE, RetryingStore
from cerebro_elastic.store.ledger import restoring
from cerebro_elastic.store.ledger.journal import Journal
from cerebro_elastic.store.ledger.record import Record
from cerebro_elastic.system.departure import interrupts_at_rest, seconds_to_leave
from cerebro_elastic.system.files import private_folder, write_text
from cerebro_elastic.system.logs import EventLog
from cerebro_elastic.system.run_key import VARIABLE, RunKey
from cerebro_elastic.system.words import counted, option

_LINGER = 15.0
"""Seconds without any host after which the server ends, if the run has not ended or had ended before."""
_SILENT = 60.0
"""Seconds after the run's end for which the server waits for hosts that have fallen silent."""
_POLL = 0.5
FAREWELL = 25.0
"""Seconds for which a server that must end waits for leaving hosts: a scheduler signals all processes of a
job at once, and hosts commit the units that they hand on."""


def serve(
    run: str,
    *,
    port: int,
    listen: str = "127.0.0.1",
    home: str | Path | None = None,
    restore: bool = False,
    storage: str | None = None,
    watcher: Watcher | None = None,
) -> None:
    """Serve an etcd on ``listen:port`` until all machines that take part in ``run`` have ended.

    The data are in ``<home>/<run>.etcd``, where the same command finds them again. Every process with the
    run's key, which is stored beside the data, may read and write. The connections are encrypted.

    Args:
        restore: Begin with the record of a run whose etcd is lost.
        storage: The place of the run's checkpoints, which has a copy of the record. Without a copy, or if it
            is older, the record in ``home`` counts. An etcd without data is restored from the copy, even
            without ``restore``.

    Raises:
        RunError: ``run`` is no id, or all machines are gone and the run has not ended; or no record to
            restore exists, or its etcd is not lost.
        StoreError: etcd cannot be started, or this machine cannot listen there.
    """
    watcher = watcher or Watcher()
    refuse_recipe(run)
    check_id(run)
    folder = etcd_folder(run, home)
    private_folder(folder)
    if restore or (storage is not None and not (folder / "data").exists() and has_record(storage)):
        _restore(run, storage, home, watcher)
    key = RunKey.given_or_kept(folder / "key")
    where = Listen(listen, port)
    with (
        EmbeddedEtcd(folder / "data", key, where) as etcd,
        closing(EtcdStore(etcd.settings)) as store,
    ):
        watcher.say(f"etcd {store.version()} for run {run!r} serves on {where}")
        if key.file is not None:
            watcher.say(
                f"hosts that do not see {key.file} need the key: "
                f"export {VARIABLE}=$(ssh {socket.gethostname()} cat {key.file})"
            )
        record = Record(store, run)
        with interrupts_at_rest(FAREWELL) as look:
            try:
                ended = _until_alone(record, look, watcher.say)
            except KeyboardInterrupt:
                _wait_for_leaving(record, watcher)
                raise
        if not ended:
            raise RunError(
                f"all who took part in run {run!r} are gone, and it has not ended: see what they said"
            )
    watcher.say(f"run {run!r} has ended")


def _restore(run: str, storage: str | None, home: str | Path | None, watcher: Watcher) -> None:
    """Begin the data of the run's etcd with the newest existing record. They get their name once they are
    complete, and no other machine reaches the etcd earlier."""
    folder, own = etcd_folder(run, home), RunFolder(home_of(home).resolve() / run)
    if (data := folder / "data").exists():
        raise RunError(
            f"{data} has the data of the run's etcd, which continues with them without --restore; if they "
            "are damaged, or others have written to them, move them away"
        )
    if (key := known_key(run, home)) is None:
        raise RunError(
            f"the key of run {run!r} is not on this machine, and its hosts take no other: copy the file "
            f"`key` from the run's folder on one of them to {folder}, or set {VARIABLE} to what it holds"
        )
    history, spec = own.events(), own.spec.read_bytes() if own.spec.exists() else b""
    if storage is not None:
        copy = fetch_record(run, storage, key)
        if last_revision(copy.events) > last_revision(history):
            history, spec = list(copy.events), copy.spec
    if not history or not spec:
        raise RunError(
            f"{own.path} has no record of run {run!r}: restore it on a machine that took part, or give the "
            f"place of its checkpoints as {option('storage')} URL"
        )
    key.kept_in(folder / "key")
    watcher.say(f"restoring the record of run {run!r}, up to revision {last_revision(history)}")
    begun = folder / "restoring"
    shutil.rmtree(begun, ignore_errors=True)  # of a killed command
    with EmbeddedEtcd(begun, key) as etcd, closing(EtcdStore(etcd.settings)) as store:
        restoring.restore(store, Record(store, run, key), history, spec)
    begun.rename(data)
    visits = counted(len(RunView(history).log), "visit")
    watcher.say(f"restored {visits}; what was committed after them is trained again")


def _until_alone(record: Record, look: Callable[[], None], say: Callable[[str], None]) -> bool:
    """Wait until machines have taken part and none does any more, for some seconds if the run has not ended.
    ``look`` is called often. Returns whether the run has ended.

    The machines of a formerly ended run may have come and gone before the first look. Hosts may have the
    record of a run of another etcd, and report its end. An etcd that does not answer is being restarted: the
    wait for it is as long as that of hosts."""
    begun = record.now()
    alone, over, end_reported = 0.0, 0.0, False
    silent_since: float | None = None
    while True:
        look()
        try:
            end_reported = end_reported or _end_reported(record)
            # Machines may come and go between two looks.
            been, ended = record.now() > begun, record.ended() or (end_reported and record.spec() is None)
            used = in_use(record)
        except StoreUnavailable as error:
            if silent_since is None:
                say(f"{error}. Waiting for it, as hosts do, for up to {PATIENCE:g} s")
                silent_since = time.monotonic()
            if time.monotonic() - silent_since > PATIENCE:
                raise
            time.sleep(_POLL)
            alone = 0.0
            continue
        silent_since = None
        alone = alone + _POLL if (been or ended) and not used else 0.0
        if alone > (_POLL if been and ended else _LINGER) or over >= _SILENT:
            return ended
        time.sleep(_POLL)
        over = over + _POLL if been and ended else 0.0


def _wait_for_leaving(record: Record, watcher: Watcher) -> None:
    """Continue to serve while machines take part, until this process must end. Another signal ends that."""
    waited = False
    while seconds_to_leave() > 0:
        with suppress(StoreError):  # the same signal ended etcd, which is restarted
            if not in_use(record):
                return
            if not waited:
                watcher.say(f"waiting up to {seconds_to_leave():.0f} s for hosts to leave (Ctrl-C: at once)")
            waited = True
        time.sleep(_POLL)


def _end_reported(record: Record) -> bool:
    """Whether a host reports the end of a run that this etcd does not have."""
    return any(b'"ended": true' in item.value for item in record.store.range(record.keys.hosts).items)


def in_use(record: Record) -> bool:
    """Whether any machine takes part in the run: as a host, or by `cerebro run` or `join`."""
    keys = record.keys
    return any(record.store.range(prefix).items for prefix in (keys.hosts, keys.leader, keys.node("")))


@contextmanager
def store_for_hosts(
    run: str, *, here: str, etcd: str | None, home: str | Path | None
) -> Iterator[StoreSettings]:
    """The store of a run's hosts, with the run's key: the named ``etcd``, else one that this process serves
    on its machine's address ``here`` for the block.

    Key, data and port are in ``<home>/<run>.etcd``. The next launcher there continues with them, and hosts
    left behind by the last one find it.
    """
    folder = etcd_folder(run, home)
    private_folder(folder)
    if etcd is not None:
        settings = StoreSettings.at(etcd)
        if settings.run_key is None and not settings.trusted:
            settings = replace(settings, run_key=RunKey.given_or_kept(folder / "key"))
        yield settings
        return
    everywhere = "::" if ":" in here else "0.0.0.0"
    listen = here if ip_address(here).is_loopback else everywhere
    port = _port(folder)
    with EmbeddedEtcd(folder / "data", RunKey.given_or_kept(folder / "key"), Listen(listen, port)) as server:
        yield replace(server.settings, endpoints=(str(Listen(here, port)),))


@contextmanager
def end_of(run: str, settings: StoreSettings) -> Iterator[Callable[[], bool]]:
    """A function that returns whether the run has ended, by its record in the store. It waits for a store
    that is away."""
    with closing(RetryingStore(EtcdStore(settings), PATIENCE, EventLog(run=run))) as store:
        yield Record(store, run, settings.run_key).ended


def keep_record(folder: RunFolder, settings: StoreSettings, recipe: Recipe) -> RunResult:
    """The run of ``recipe`` according to the store. Its record is brought up to date in ``folder``, unless a
    host keeps it there: this machine may have had none."""
    try:
        with folder.locked(), known_record(settings, folder.run) as (record, spec):
            check_hosts_recipe(spec, recipe)
            write_spec(folder, spec)
            if settings.run_key is not None:
                settings.run_key.kept_in(folder.key)
            _catch_up(Journal(folder.history), record)
    except FolderInUse:
        return RunResult(folder, settings)
    return write_results(folder)


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


def _port(folder: Path) -> int:
    """The port of the last launcher, if it is free, else another free one."""
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
