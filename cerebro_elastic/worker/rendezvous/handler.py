"""The rendezvous that makes a torchrun agent a node of a run.

``torchrun --rdzv-backend=cerebro --rdzv-endpoint=HOST:PORT --rdzv-id=RUN -m cerebro_elastic.worker``

Every node has its own worker group (group rank 0 of 1), so that a join or a loss restarts nothing elsewhere.
The rendezvous registers the node under a lease, and passes run, node and store to its ranks by the
environment.
"""

from __future__ import annotations

import atexit
import os
import signal
import socket
import uuid
from dataclasses import replace

from torch.distributed.elastic.rendezvous.api import (
    RendezvousClosedError,
    RendezvousConnectionError,
    RendezvousHandler,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStoreInfo,
)

from cerebro_elastic.config import StoreSettings, price_from, seconds_from
from cerebro_elastic.core.model.nodes import Node
from cerebro_elastic.errors import CerebroError
from cerebro_elastic.store.client.base import Store
from cerebro_elastic.store.client.etcd import EtcdStore
from cerebro_elastic.store.client.retrying import PATIENCE, RetryingStore
from cerebro_elastic.store.ledger.foreign import report_once
from cerebro_elastic.store.ledger.record import Record
from cerebro_elastic.system import logs
from cerebro_elastic.system.addresses import LOOPBACK
from cerebro_elastic.system.clock import SystemClock
from cerebro_elastic.system.departure import leave_within
from cerebro_elastic.system.devices import CPU, count_here, hardware_here, kind_here
from cerebro_elastic.system.listening import listening_address, node_address
from cerebro_elastic.system.process import OF_TRAINING, SAFE_PATH, Scratch, end_marked, watch_parent
from cerebro_elastic.system.version import __version__
from cerebro_elastic.worker.rendezvous._torch_internals import HashStore
from cerebro_elastic.worker.rendezvous._torch_internals import Store as TorchStore
from cerebro_elastic.worker.rendezvous.compatibility import check_compatible
from cerebro_elastic.worker.rendezvous.heartbeats import RankMonitor
from cerebro_elastic.worker.rendezvous.registration import Registration

LEASE_SECONDS = 5.0
_BOOT = "CEREBRO_BOOT"
"""Marks all processes that descend from this agent's ranks."""


class NodeRendezvous(RendezvousHandler):
    """The rendezvous of one node.

    ``--rdzv-conf`` may give ``node`` (its name, by default the host's with a random suffix), ``ranks`` (as
    ``--nproc-per-node``, by default 1) and ``lease`` (seconds).
    """

    def __init__(
        self,
        settings: StoreSettings,
        run: str,
        name: str,
        address: str,
        *,
        ranks: int = 1,
        lease: float = LEASE_SECONDS,
        patience: float = PATIENCE,
        price: float | None = None,
    ) -> None:
        self._run = run
        self._lease = lease
        self._patience = patience
        self._node = Node(
            name,
            host=socket.gethostname(),
            ranks=ranks,
            address=address,
            boot=uuid.uuid4().hex,
            version=__version__,
            price=price,
        )
        self._settings = settings
        self._registration: Registration | None = None
        self._dumps = Scratch("dumps")
        self._ranks = RankMonitor(self._dumps.path, ranks, SystemClock())
        self._torch_store: TorchStore | None = None
        self._log = logs.EventLog(run=run, node=name)

    @classmethod
    def from_parameters(cls, params: RendezvousParameters) -> NodeRendezvous:
        """From torchrun's own options; TLS and login come from the environment (``StoreSettings``)."""
        logs.start()
        name = params.get("node") or f"{socket.gethostname()}-{uuid.uuid4().hex[:6]}"
        try:
            settings = StoreSettings.at(params.endpoint)
            patience = seconds_from(os.environ, "CEREBRO_PATIENCE")
            price = price_from(os.environ)
            seconds_from(os.environ, "CEREBRO_GRACE")  # for the ranks, whose errors are harder to see
        except CerebroError as exc:
            raise RendezvousConnectionError(str(exc)) from exc
        address = _address(params.local_addr, settings)
        return cls(
            settings,
            params.run_id,
            name,
            address,
            ranks=int(params.get("ranks", 1)),
            lease=float(params.get("lease", LEASE_SECONDS)),
            patience=PATIENCE if patience is None else patience,
            price=price,
        )

    def get_backend(self) -> str:
        return "cerebro"

    def get_run_id(self) -> str:
        return self._run

    def next_rendezvous(self) -> RendezvousInfo:
        """Register. torchrun calls it once, and whenever it restarts dead ranks."""
        try:
            self._register()
        except CerebroError as exc:
            raise RendezvousConnectionError(str(exc)) from exc
        self._prepare_ranks()
        # torch wants a fresh store for each round. Nobody but this agent needs it, so it has no port. The
        # ranks use the address alone.
        self._torch_store = HashStore()
        where = RendezvousStoreInfo(master_addr=self._node.address, master_port=0)
        return RendezvousInfo(self._torch_store, 0, 1, where)

    def is_closed(self) -> bool:
        return False

    def set_closed(self) -> None:
        """No effect: a run ends for all nodes by its outcome in the store."""

    def num_nodes_waiting(self) -> int:
        """Always 0: joins and losses of other nodes restart nothing here."""
        return 0

    def shutdown(self) -> bool:
        if self._registration is not None:
            self._registration.close()
        self._dumps.close()
        return True

    def _register(self) -> None:
        if self._registration is not None:
            end_marked(_BOOT, self._node.boot)  # processes of the dead ranks
            self._registration.renew(self._ranks.take_rank_failure(), self._patience)
            self._ranks.begin()
            return
        store = EtcdStore(self._settings)
        # Registration has its own patience: closing it must remain possible.
        self._check_run(self._record(RetryingStore(store, self._patience, self._log)))
        kind = kind_here()
        devices = tuple(f"{kind}:{i}" for i in range(count_here())) or (CPU,)
        node = replace(self._node, devices=devices, hardware=hardware_here())
        self._ranks.begin()
        self._registration = Registration(
            self._record(store),
            node,
            self._lease,
            self._log,
            patience=self._patience,
            ranks=self._ranks,
            # When it registered is compared with the times of visits, of other hosts, too.
            clock=SystemClock(ahead=lambda: store.clock_ahead),
            unable=self._end,
        )
        # After a signal torchrun does not call ``shutdown``. The lease may end by its own time.
        atexit.register(self._registration.close)
        atexit.register(leave_within, 0.0)
        atexit.register(end_marked, _BOOT, self._node.boot)

    def _record(self, store: Store) -> Record:
        return Record(store, self._run, self._settings.run_key, unreadable=report_once(self._log))

    def _check_run(self, record: Record) -> None:
        """Check that a node of this machine may join the run, if it is open yet."""
        record.check_signed(self._settings.trusted)
        if record.ended():
            raise RendezvousClosedError(
                f"run {self._run!r} has ended: a node cannot join it; see `cerebro status {self._run}`"
            )
        spec = record.spec()
        if spec is not None:
            # `cerebro host` and its like have looked at the package.
            check_compatible(spec, package="CEREBRO_PARENT" not in os.environ)

    def _end(self, error: CerebroError) -> None:
        self._log.error("this machine can no longer be a node of the run", error=str(error))
        os.kill(os.getpid(), signal.SIGTERM)

    def _prepare_ranks(self) -> None:
        """Set the variables that ranks inherit, and end with the parent process, if one is named."""
        for name, value in (OF_TRAINING | SAFE_PATH).items():
            os.environ.setdefault(name, value)
        os.environ.update(self._settings.to_env())
        os.environ.update(
            CEREBRO_RUN=self._run,
            CEREBRO_NODE=self._node.name,
            **{_BOOT: self._node.boot},
            CEREBRO_AGENT=str(os.getpid()),
            CEREBRO_DUMPS=str(self._dumps.path),
        )
        parent = os.environ.pop("CEREBRO_PARENT", None)
        if parent is not None:
            watch_parent(int(parent), lambda: os.kill(os.getpid(), signal.SIGTERM))


def _address(given: str | None, settings: StoreSettings) -> str:
    """The address at which other nodes find this one: torchrun's ``--local-addr`` if that is ``given``, else
    the one from which it reaches etcd. Raises ``RendezvousConnectionError`` for a name that does not resolve
    here."""
    try:
        if given:
            listening_address(given)
            return given
        if settings.loopback:
            return LOOPBACK
        return node_address(socket.gethostname(), settings.servers)
    except (OSError, UnicodeError) as exc:
        name = given or socket.gethostname()
        raise RendezvousConnectionError(
            f"other nodes would look for this one at {name!r}, which is no address of this machine ({exc}): "
            "give torchrun's --local-addr (PET_LOCAL_ADDR) an address of this machine, or put the name into "
            "/etc/hosts"
        ) from exc
