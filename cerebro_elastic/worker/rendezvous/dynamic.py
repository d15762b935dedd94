"""The rendezvous ``etcd-v3`` for ordinary elastic jobs: torch's own dynamic rendezvous, its state in etcd v3.

``torchrun --nnodes=1:4 --rdzv-backend=etcd-v3 --rdzv-endpoint=HOST:PORT --rdzv-id=JOB script.py``

torch's backends ``etcd`` and ``etcd-v2`` speak etcd's v2 API, which etcd 3.6 no longer has (pytorch issues
158326 and 170707). Runs of units do not use this: here a join or a loss restarts all workers.
"""

from __future__ import annotations

import atexit
import io
import os
import pickle
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta, timezone
from typing import Any

from torch.distributed import DistNetworkError, DistStoreError
from torch.distributed.elastic.rendezvous.api import (
    RendezvousConnectionError,
    RendezvousParameters,
    RendezvousStateError,
)
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import (
    DynamicRendezvousHandler,
    RendezvousBackend,
    create_handler,
)

from cerebro_elastic.config import StoreSettings
from cerebro_elastic.errors import CerebroError, Compacted, LeaseLost, TxnUnknown
from cerebro_elastic.store.client.base import Compare, KeyValue, Put, Store, at_revision
from cerebro_elastic.store.client.etcd import EtcdStore
from cerebro_elastic.worker.rendezvous._torch_internals import NodeDescription, RendezvousState
from cerebro_elastic.worker.rendezvous._torch_internals import Store as TorchStore

NAME = "etcd-v3"
ROOT = "/torch/elastic/"
LIFETIME = 7200.0
"""Seconds that a job's keys outlive the last change by their writer, as in torch's own backends."""


def create(params: RendezvousParameters) -> DynamicRendezvousHandler:
    """The handler for torchrun's options.

    TLS, login, driver and patience come from the environment (``StoreSettings.from_env``). ``--rdzv-conf``
    may hold the options of torch's dynamic rendezvous.
    """
    with _as_torch_error(RendezvousConnectionError):
        store = EtcdStore(StoreSettings.at(params.endpoint))
        store.version()
    atexit.register(store.close)
    # By default torch shares a TCPStore of rank 0's agent with the workers, and gives its address even after
    # that agent is dead. Without sharing, rank 0 makes a new one in each round.
    os.environ.setdefault("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1")
    writes = LeasedWrites(store)
    backend = EtcdBackend(writes, params.run_id)
    return create_handler(EtcdTorchStore(writes), CheckedStateBackend(backend, backend.key), params)


class LeasedWrites:
    """Writes under one lease, which ends ``lifetime`` seconds after the last write."""

    def __init__(self, store: Store, lifetime: float = LIFETIME) -> None:
        self.store = store
        self._lifetime = lifetime
        self._lease = 0

    def put(self, compares: Sequence[Compare], *items: tuple[str, bytes]) -> int:
        """Write ``items`` (key, value) if ``compares`` hold; raises as ``Store.txn``.

        Returns:
            The revision of the change; 0 if ``compares`` do not hold.
        """
        try:
            self.store.keep(self._lease)
        except LeaseLost:
            self._lease = self.store.grant(self._lifetime)
        result = self.store.txn(compares, [Put(key, value, self._lease) for key, value in items])
        return result.revision if result.succeeded else 0


class EtcdBackend(RendezvousBackend):
    """The state of one job's rendezvous; its fencing token is the revision of the last change."""

    def __init__(self, writes: LeasedWrites, run_id: str) -> None:
        self._writes = writes
        self.key = f"{ROOT}rendezvous/{run_id}"

    @property
    def name(self) -> str:
        return NAME

    def get_state(self) -> tuple[bytes, int] | None:
        with _as_torch_error(RendezvousConnectionError):
            item = self._writes.store.get(self.key)
        return (item.value, item.mod_revision) if item else None

    def set_state(self, state: bytes, token: Any = None) -> tuple[bytes, int, bool] | None:
        """Write ``state`` if ``token`` is that of the present state, or ``None`` if none is present.

        Returns:
            The state that is present now, its token, and whether it is the one given.
        """
        revision = 0 if token is None else token
        if isinstance(revision, int):
            with _as_torch_error(RendezvousConnectionError):
                try:
                    written = self._writes.put([at_revision(self.key, revision)], (self.key, state))
                    if written:
                        return state, written, True
                except TxnUnknown:
                    item = self._writes.store.get(self.key)
                    if item is not None and item.value == state:
                        return state, item.mod_revision, True
        present = self.get_state()
        return (*present, False) if present else None


class EtcdTorchStore(TorchStore):
    """torch's key-value store: a job's agents agree by it on ranks, addresses and barriers.

    It raises ``DistStoreError`` if a key does not appear in time, ``DistNetworkError`` if etcd is out of
    reach.
    """

    def __init__(self, writes: LeasedWrites, prefix: str = f"{ROOT}store/") -> None:
        super().__init__()  # pybind11 wants it
        self._writes = writes
        self._store = writes.store
        self._prefix = prefix

    def set(self, key: str, value: str | bytes) -> None:
        data = value.encode() if isinstance(value, str) else bytes(value)
        with _as_torch_error(DistNetworkError):
            while True:
                try:
                    self._writes.put([], (self._prefix + key, data))
                    return
                except TxnUnknown:
                    continue  # to write it twice does no harm

    def get(self, key: str) -> bytes:
        (item,) = self._await([key], self._timeout)
        return item.value

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        return [item.value for item in self._await(keys, self._timeout)]

    def multi_set(self, keys: Sequence[str], values: Sequence[str | bytes]) -> None:
        for key, value in zip(keys, values, strict=True):
            self.set(key, value)

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        self._await(keys, timeout or self._timeout)

    def check(self, keys: Sequence[str]) -> bool:
        with _as_torch_error(DistNetworkError):
            return all(self._store.get(self._prefix + key) is not None for key in keys)

    def add(self, key: str, number: int) -> int:
        """Add ``number`` to ``key``, which is 0 if it is absent; returns the sum."""
        name = self._prefix + key
        # Holds the sum, and so shows whether this very addition was done, if its answer was lost.
        receipt = f"{name}/{uuid.uuid4().hex}"
        with _as_torch_error(DistNetworkError):
            while True:
                item = self._store.get(name)
                total = b"%d" % ((int(item.value) if item else 0) + number)
                guard = [at_revision(name, item.mod_revision if item else 0), at_revision(receipt, 0)]
                try:
                    if self._writes.put(guard, (name, total), (receipt, total)):
                        return int(total)
                except TxnUnknown:
                    pass
                written = self._store.get(receipt)
                if written is not None:
                    return int(written.value)

    @property
    def _timeout(self) -> timedelta:
        timeout: timedelta = self.timeout  # type: ignore[attr-defined]  # torch's stubs leave it out
        return timeout

    def _await(self, keys: Sequence[str], timeout: timedelta) -> list[KeyValue]:
        deadline = time.monotonic() + timeout.total_seconds()
        with _as_torch_error(DistNetworkError):
            return [self._await_one(self._prefix + key, deadline) for key in keys]

    def _await_one(self, name: str, deadline: float) -> KeyValue:
        while True:
            snapshot = self._store.range(name)
            present = next((item for item in snapshot.items if item.key == name), None)
            if present is not None:
                return present
            left = deadline - time.monotonic()
            if left <= 0:
                raise DistStoreError(f"{name} did not appear in time: see the logs of the other agents")
            with self._store.watch(name, snapshot.revision + 1) as watch, suppress(Compacted):
                watch.next(left)


@contextmanager
def _as_torch_error(kind: type[Exception]) -> Iterator[None]:
    """Raise our errors as torch's ``kind``."""
    try:
        yield
    except CerebroError as exc:
        raise kind(str(exc)) from exc


_TIMES: dict[tuple[str, str], type] = {
    ("datetime", kind.__name__): kind for kind in (datetime, timedelta, timezone)
}


# torch pickles its state into a backend and unpickles it from there. Anybody who writes to the backend could
# run code in every agent. Here only the parts of such a state get through.


class CheckedStateBackend(RendezvousBackend):
    """A backend whose states are checked. ``location`` names the backend's key in errors.

    Raises:
        RendezvousStateError: The backend holds anything else than a state.
    """

    def __init__(self, backend: RendezvousBackend, location: str) -> None:
        self._backend = backend
        self._location = location

    @property
    def name(self) -> str:
        return self._backend.name

    def get_state(self) -> tuple[bytes, Any] | None:
        present = self._backend.get_state()
        return present and (self._plain(present[0]), present[1])

    def set_state(self, state: bytes, token: Any | None = None) -> tuple[bytes, Any, bool] | None:
        present = self._backend.set_state(state, token)
        return present and (self._plain(present[0]), *present[1:])

    def _plain(self, state: bytes) -> bytes:
        try:
            return checked_state(state)
        except Exception as exc:  # a forged pickle may raise anything in the unpickler
            raise RendezvousStateError(
                f"the value in etcd under {self._location} is no state of a rendezvous: {exc}. Somebody else "
                f"writes there: give etcd a login, and the job another --rdzv-id"
            ) from exc


def checked_state(state: bytes) -> bytes:
    """Check each part of a pickled state, and pickle it again from its parts.

    Raises:
        Exception: It is no state: ``ValueError``, or an exception of the unpickler.
    """
    return pickle.dumps(_state(_Unpickler(io.BytesIO(state)).load()))


class _Unpickler(pickle.Unpickler):
    """Makes only times and stand-ins for torch's classes. The stand-ins are new for each pickle, because a
    pickle can change a class."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)

        private = [(kind.__module__, kind.__name__) for kind in (RendezvousState, NodeDescription)]
        self._allowed = {**_TIMES, **{(module, name): type(name, (), {}) for module, name in private}}

    def find_class(self, module: str, name: str) -> Any:
        try:
            return self._allowed[module, name]
        except KeyError:
            raise ValueError(f"it names {module}.{name}") from None


def _state(read: Any) -> RendezvousState:
    """torch's own state, from the stand-in that was read."""
    state = RendezvousState()
    values = vars(read)
    if type(read).__name__ != RendezvousState.__name__ or set(values) != set(vars(state)):
        raise ValueError(f"a {type(read).__name__} with {', '.join(sorted(values))}")
    state.round = _exactly(int, values["round"])
    state.complete = _exactly(bool, values["complete"])
    state.closed = _exactly(bool, values["closed"])
    state.deadline = None if values["deadline"] is None else _exactly(datetime, values["deadline"])
    state.participants = {
        _node(n): _exactly(int, rank) for n, rank in _exactly(dict, values["participants"]).items()
    }
    state.wait_list = {_node(n) for n in _exactly(set, values["wait_list"])}
    state.redundancy_list = {_node(n) for n in _exactly(set, values["redundancy_list"])}
    beats = _exactly(dict, values["last_heartbeats"])
    state.last_heartbeats = {_node(n): _exactly(datetime, beat) for n, beat in beats.items()}
    return state


def _node(read: Any) -> NodeDescription:
    values = vars(read)
    return NodeDescription(
        _exactly(str, values["addr"]), _exactly(int, values["pid"]), _exactly(int, values["local_id"])
    )


def _exactly(kind: type, value: Any) -> Any:
    """``value``, which must be of this very type."""
    if type(value) is not kind:
        raise ValueError(f"expected a {kind.__name__}, got a {type(value).__name__}")
    return value
