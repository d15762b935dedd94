"""What belongs to a rank's life and serves all of its attempts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from cerebro_elastic.addresses import LOOPBACK
from cerebro_elastic.clock import Clock
from cerebro_elastic.core.model.origin import basis_of
from cerebro_elastic.core.model.run import Basis, Spec
from cerebro_elastic.core.model.units import Phase
from cerebro_elastic.data.cache_space import NoRoom, Room
from cerebro_elastic.data.partition import Partition
from cerebro_elastic.errors import CerebroError
from cerebro_elastic.logs import EventLog
from cerebro_elastic.store.ledger.meetings import Meetings
from cerebro_elastic.store.ledger.worker import WorkerLedger
from cerebro_elastic.training.unit_runner import UnitRunner
from cerebro_elastic.worker.checkpoint_collector import CheckpointCollector
from cerebro_elastic.worker.group_rendezvous import GroupRendezvous
from cerebro_elastic.worker.leaving import Leaving
from cerebro_elastic.worker.rank_assignment import RankIdentity
from cerebro_elastic.worker.repair import CheckpointRepair
from cerebro_elastic.worker.saving import QUICK_SECONDS, BackgroundCleaner, BackgroundWriter
from cerebro_elastic.worker.state_fetcher import StateFetcher
from cerebro_elastic.worker.watchdog import Watchdog


@dataclass(frozen=True)
class RankContext:
    """What the process gives its attempts."""

    ledger: WorkerLedger
    """What a worker may write to the run's record."""
    spec: Spec
    unit_runner: UnitRunner
    """The run's task and data on this rank's device."""
    clock: Clock
    log: EventLog
    identity: RankIdentity
    """Which process of which node this is."""
    leaving: Leaving
    """Whether the rank was asked to leave."""
    watchdog: Watchdog
    """Ends the process if it hangs."""
    alarm: Callable[[BaseException], None]
    """Takes what ends the background saving."""
    address: str = LOOPBACK
    """The host's address, as other nodes reach it."""
    memory_limit_bytes: int | None = None
    """How many bytes a unit may take on this rank; ``None``: what is free."""
    quick_save_seconds: float = QUICK_SECONDS
    """A save that takes longer goes on behind the node's next unit."""
    next_waits: Callable[[], bool] = lambda: False
    """Whether the node's next unit waits to be begun."""


@dataclass(frozen=True)
class RankTools:
    """The context, and the collaborators that are made from it once for all attempts."""

    context: RankContext
    """What the process gives."""
    basis: Basis
    """What the run is made from, for the origins of its checkpoints."""
    state_fetcher: StateFetcher
    """Loads input states."""
    rendezvous: GroupRendezvous
    """Forms process groups."""
    writer: BackgroundWriter
    """Saves output states."""
    collector: CheckpointCollector
    """Deletes superfluous checkpoints."""
    cleaner: BackgroundCleaner
    """Has it do so behind the next unit."""

    @classmethod
    def of(cls, context: RankContext) -> RankTools:
        """The collaborators for ``context``; ``close`` ends their threads."""
        record, spec, runner = context.ledger.record, context.spec, context.unit_runner
        repair = CheckpointRepair(record, spec, runner, context.log, context.watchdog.beat).repair
        return cls(
            context,
            basis_of(spec),
            StateFetcher(partial(_fetch_ahead, context), repair),
            GroupRendezvous(Meetings(record), context.identity.node, context.address, runner.device),
            BackgroundWriter(context.alarm),
            CheckpointCollector(record, spec.storage, spec.plan, runner.recipe, context.log),
            BackgroundCleaner(context.alarm),
        )

    def close(self) -> None:
        """Wait for the last save and what follows it, and break off what is being fetched."""
        self.writer.close()
        self.cleaner.close()
        self.state_fetcher.close()


def _fetch_ahead(context: RankContext, partition: int, beat: Callable[[], None], room: Room) -> Partition:
    """Fetch a partition before it is needed. A failure counts only if it happens again when it is needed."""
    try:
        return context.unit_runner.fetch(Phase.TRAIN, partition, beat, room)
    except NoRoom as error:
        context.log.info("not fetched ahead", partition=partition, why=str(error))
        raise
    except CerebroError as error:
        context.log.warning("not fetched ahead", partition=partition, why=str(error))
        raise
