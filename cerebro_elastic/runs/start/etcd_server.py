"""``cerebro etcd``: an etcd for the machines of one run, which ends when they have."""

from __future__ import annotations

import os
import socket
import time
from contextlib import closing
from pathlib import Path

from cerebro_elastic.errors import RunError
from cerebro_elastic.files import private_folder
from cerebro_elastic.run_key import VARIABLE, RunKey
from cerebro_elastic.runs.folder import check_id, etcd_folder, refuse_recipe
from cerebro_elastic.runs.live import Watcher
from cerebro_elastic.store.client.embedded import EmbeddedEtcd
from cerebro_elastic.store.client.etcd import EtcdStore
from cerebro_elastic.store.ledger.record import Record

_LINGER = 15.0
"""Seconds without any host after which a run that has not ended is given up, and one that had ended before is
waited for no longer."""
_POLL = 0.5


def serve(
    run: str,
    *,
    port: int,
    listen: str = "127.0.0.1",
    home: str | Path | None = None,
    watcher: Watcher | None = None,
) -> None:
    """Serve an etcd on ``listen:port`` until all who take part in ``run`` have ended. Its data lie
    in ``<home>/<run>.etcd``, where the same command finds them again.

    Who has the run's key, which lies beside the data, may read and write. Nothing is encrypted on the way: it
    is for one machine, or a network where nobody listens who should not. Raises ``RunError`` if ``run`` is no
    id, or if they are gone and the run has not ended, ``StoreError`` if etcd cannot be started.
    """
    watcher = watcher or Watcher()
    refuse_recipe(run)
    check_id(run)
    folder = etcd_folder(run, home)
    private_folder(folder)
    key = RunKey.from_env(os.environ) or RunKey.kept(folder / "key")
    with (
        EmbeddedEtcd(folder / "data", port, listen, key) as etcd,
        closing(EtcdStore(etcd.settings)) as store,
    ):
        watcher.say(f"etcd {store.version()} for run {run!r} serves on {listen}:{port}")
        if key.file is not None:
            watcher.say(
                f"hosts that do not see {key.file} need the key: "
                f"export {VARIABLE}=$(ssh {socket.gethostname()} cat {key.file})"
            )
        record = Record(store, run)
        if not _until_alone(record):
            raise RunError(
                f"all who took part in run {run!r} are gone, and it has not ended: see what they said"
            )
    watcher.say(f"run {run!r} has ended")


def _until_alone(record: Record) -> bool:
    """Wait until there was somebody and is nobody, for some seconds if the run has not ended; whether it has.
    Of a run that had ended before nobody need come, or is left: they may have come and gone before the first
    look. Hosts may have the record of a run that was another etcd's, and say that it has ended."""
    begun = record.now()
    alone, told = 0.0, False
    while True:
        told = told or _is_told(record)
        # They may come and go between two looks.
        been, ended = record.now() > begun, record.ended() or (told and record.spec() is None)
        if alone >= (_POLL if been and ended else _LINGER):
            return ended
        time.sleep(_POLL)
        alone = alone + _POLL if (been or ended) and not in_use(record) else 0.0


def _is_told(record: Record) -> bool:
    """Whether a host says that the run has ended, of which this etcd knows nothing."""
    return any(b'"ended": true' in item.value for item in record.store.range(record.keys.hosts).items)


def in_use(record: Record) -> bool:
    """Whether anybody takes part in the run: a host, or who leads or trains for `cerebro run` or `join`."""
    keys = record.keys
    return any(record.store.range(there).items for there in (keys.hosts, keys.leader, keys.node("")))
