"""``cerebro etcd``: serves an etcd for the machines of one run, and ends when they have."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from cerebro_elastic.errors import RunError
from cerebro_elastic.runs.folder import check_id, etcd_folder, refuse_recipe
from cerebro_elastic.runs.live import Watcher
from cerebro_elastic.store.client.embedded import EmbeddedEtcd
from cerebro_elastic.store.client.etcd import EtcdStore
from cerebro_elastic.store.client.listen import Listen
from cerebro_elastic.store.ledger.record import Record
from cerebro_elastic.system.departure import interrupts_at_rest
from cerebro_elastic.system.files import private_folder
from cerebro_elastic.system.run_key import VARIABLE, RunKey

_LINGER = 15.0
"""Seconds without any host after which the server ends, if the run has not ended or had ended before."""
_SILENT = 60.0
"""Seconds after the run's end for which the server waits for hosts that have fallen silent."""
_POLL = 0.5


def serve(
    run: str,
    *,
    port: int,
    listen: str = "127.0.0.1",
    home: str | Path | None = None,
    watcher: Watcher | None = None,
) -> None:
    """Serve an etcd on ``listen:port`` until all machines that take part in ``run`` have ended.

    The data are in ``<home>/<run>.etcd``, where the same command finds them again. Whoever has the run's key,
    which lies beside the data, may read and write. The connections are encrypted.

    Raises:
        RunError: ``run`` is no id, or all machines are gone and the run has not ended.
        StoreError: etcd cannot be started, or this machine cannot listen there.
    """
    watcher = watcher or Watcher()
    refuse_recipe(run)
    check_id(run)
    folder = etcd_folder(run, home)
    private_folder(folder)
    key = RunKey.from_env(os.environ) or RunKey.kept(folder / "key")
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
        with interrupts_at_rest(0.0) as look:
            ended = _until_alone(record, look)
        if not ended:
            raise RunError(
                f"all who took part in run {run!r} are gone, and it has not ended: see what they said"
            )
    watcher.say(f"run {run!r} has ended")


def _until_alone(record: Record, look: Callable[[], None]) -> bool:
    """Wait until machines have taken part and none does any more, for some seconds if the run has not ended.
    ``look`` is called about twice a second. Returns whether the run has ended.

    The machines of a run that had ended before may have come and gone before the first look. Hosts may have
    the record of a run of another etcd, and report its end."""
    begun = record.now()
    alone, over, end_reported = 0.0, 0.0, False
    while True:
        look()
        end_reported = end_reported or _end_reported(record)
        # Machines may come and go between two looks.
        been, ended = record.now() > begun, record.ended() or (end_reported and record.spec() is None)
        if alone >= (_POLL if been and ended else _LINGER) or over >= _SILENT:
            return ended
        time.sleep(_POLL)
        alone = alone + _POLL if (been or ended) and not in_use(record) else 0.0
        over = over + _POLL if been and ended else 0.0


def _end_reported(record: Record) -> bool:
    """Whether a host reports the end of a run that this etcd does not know."""
    return any(b'"ended": true' in item.value for item in record.store.range(record.keys.hosts).items)


def in_use(record: Record) -> bool:
    """Whether any machine takes part in the run: as a host, or by `cerebro run` or `join`."""
    keys = record.keys
    return any(record.store.range(prefix).items for prefix in (keys.hosts, keys.leader, keys.node("")))
