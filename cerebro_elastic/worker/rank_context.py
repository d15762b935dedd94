"""The values of a rank's life that serve all of its attempts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from cerebro_elastic.core.model.origin import basis_of
from cerebro_elastic.core.model.run import Spec
from cerebro_elastic.core.model.units import Phase
from cerebro_elastic.data.reading.partition import Partition
from cerebro_elastic.errors import CerebroError
from cerebro_elastic.store.ledger.worker import WorkerLedger
from cerebro_elastic.system.addresses import LOOPBACK
from cerebro_elastic.system.cache_space import NoRoom, Room
from cerebro_elastic.system.clock import Clock
from cerebro_elastic.system.logs import EventLog
from cerebro_elastic.training.unit_runner import UnitRunner
from cerebro_elastic.worker.checkpoint_collector import CheckpointCollector
from cerebro_elastic.worker.group_rendezvous import GroupRendezvous, RankIdentity
from cerebro_elastic.worker.leaving import Leaving
from cerebro_elastic.worker.offline.repair import CheckpointRepair
from cerebro_elastic.worker.saving import QUICK_SECONDS, BackgroundCleaner, BackgroundWriter
from cerebro_elastic.worker.state_fetcher import StateFetcher
from cerebro_elastic.worker.watchdog import Watchdog


@dataclass(kw_only=True)
class RankContext:
    """The process's objects for its attempts, made once for all of them."""

    ledger: WorkerLedger
    spec: Spec
    unit_runner: UnitRunner
    """The run's task and data on this rank's device."""
    clock: Clock
    log: EventLog
    identity: RankIdentity
    leaving: Leaving
    watchdog: Watchdog
    alarm: Callable[[BaseException], None]
    """Takes the exception that ends the background saving."""
    address: Callable[[], str] = lambda: LOOPBACK
    """Returns the host's address, as other nodes reach it."""
    shares_device: bool = False
    """Whether other nodes use the rank's accelerator, too."""
    memory_limit_bytes: int | None = None
    """How many bytes a unit may take on this rank; ``None``: all free memory."""
    quick_save_seconds: float = QUICK_SECONDS
    """A save that takes longer overlaps the node's next unit."""
    next_waits: Callable[[], bool] = lambda: False
    """Whether the node's next unit waits to be begun."""

    def __post_init__(self) -> None:
        record, spec, runner = self.ledger.record, self.spec, self.unit_runner
        repair = CheckpointRepair(record, spec, runner, self.log, self.watchdog.beat).repair
        self.basis = basis_of(spec)
        """The digests of the run, for the origins of its checkpoints."""
        self.state_fetcher = StateFetcher(self._fetch_ahead, repair)
        self.rendezvous = GroupRendezvous(self.ledger, self.identity.node, self.address, runner.device)
        self.writer = BackgroundWriter(self.alarm)
        self.collector = CheckpointCollector(record, spec.storage, spec.plan, runner.recipe, self.log)
        self.cleaner = BackgroundCleaner(self.alarm)
        """Collects behind the next unit."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Wait for the last save and its commit, and break off fetches."""
        self.writer.close()
        self.cleaner.close()
        self.state_fetcher.close()

    def _fetch_ahead(self, partition: int, beat: Callable[[], None], room: Room) -> Partition:
        """Fetch a partition before it is needed. A failure counts only if it happens again when it is
        needed."""
        try:
            return self.unit_runner.fetch(Phase.TRAIN, partition, beat, room)
        except NoRoom as error:
            self.log.info("not fetched ahead", partition=partition, why=str(error))
            raise
        except CerebroError as error:
            self.log.warning("not fetched ahead", partition=partition, why=str(error))
            raise
