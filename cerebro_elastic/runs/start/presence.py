"""The presence of a machine in a run: an etcd that serves one run ends when it has none."""

from __future__ import annotations

import json
import socket
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from cerebro_elastic.errors import StoreError
from cerebro_elastic.store.client.base import Put
from cerebro_elastic.store.client.lease import LeaseKeeper
from cerebro_elastic.store.client.retrying import PATIENCE
from cerebro_elastic.store.ledger.record import Record

PRESENT_SECONDS = 1.5 * PATIENCE
"""How long a machine counts as present that has fallen silent. One that leaves says so. Presence is renewed
each third of this: so it outlasts any outage for which machines wait for etcd."""
_LOOK_SECONDS, _LEAVE_SECONDS = 1.0, 2.0


@contextmanager
def present(record: Record, seconds: float = PRESENT_SECONDS) -> Iterator[None]:
    """Register this machine for the block as one that takes part in the run; again, if that is lost."""
    key, host = record.keys.hosts + uuid.uuid4().hex, json.dumps({"host": socket.gethostname()}).encode()
    left = threading.Event()

    def register() -> LeaseKeeper:
        keeper = LeaseKeeper(record.store, seconds)
        record.store.txn([], [Put(key, host, keeper.lease)])
        return keeper

    def stay(keeper: LeaseKeeper) -> None:
        while not left.wait(_LOOK_SECONDS):
            if keeper.lost.is_set():
                with suppress(StoreError):
                    keeper = register()
        with suppress(StoreError):
            keeper.revoke()

    thread = threading.Thread(target=stay, args=(register(),), name="presence", daemon=True)
    thread.start()
    try:
        yield
    finally:
        left.set()
        thread.join(_LEAVE_SECONDS)  # without etcd it takes longer, and is of no use
