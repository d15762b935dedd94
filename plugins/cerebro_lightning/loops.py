"""Lightning's loops for one unit: they may begin, continue and end in the middle of an epoch."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import NoReturn, Protocol

import lightning.pytorch as pl

from cerebro_elastic.extending.errors import TaskError
from cerebro_elastic.extending.tasks import Stopped
from cerebro_lightning._lightning_internals import (
    DataFetcher,
    FitLoop,
    SignalConnector,
    SignalFreeEpochLoop,
    TunerExit,
    may_stop_early,
)


class LoopedUnit(Protocol):
    """A unit as its loops see it."""

    batches_left: int
    """How many batches it has yet to train."""
    taking: Callable[[], AbstractContextManager[None]]
    """A context: inside it the loops take the iterators of the training batches."""
    stopped_after: int | None
    """How many of the partition's batches are trained, if the unit was stopped."""

    @property
    def first(self) -> bool:
        """Whether it opens its epoch."""

    @property
    def closes_epoch(self) -> bool:
        """Whether the epoch's last batch has been taken."""

    def enter(self) -> None:
        """Called after all set-up hooks, before the first batch."""

    def leave(self) -> NoReturn:
        """Called when the config's fit continues in another unit."""


class LeaveUnit(TunerExit):
    """Ends a fit without ending its training: no ``on_train_end``, no ``on_exception``."""


class UnitFitLoop(FitLoop):
    """Runs one epoch at most; it opens the epoch only if this is the epoch's first unit."""

    def __init__(self, unit: LoopedUnit, trainer: pl.Trainer) -> None:
        super().__init__(trainer, trainer.min_epochs, trainer.max_epochs)
        self.epoch_loop = UnitEpochLoop(unit, trainer)
        self._unit = unit

    def setup_data(self) -> None:
        with self._unit.taking():
            super().setup_data()

    def on_run_start(self) -> None:
        super().on_run_start()
        self._unit.enter()

    def on_advance_end(self) -> None:
        super().on_advance_end()
        # All ranks continue, or none.
        trainer = self.trainer
        trainer.should_stop = trainer.strategy.reduce_boolean_decision(trainer.should_stop, all=False)

    def on_advance_start(self) -> None:
        if self._unit.batches_left == 0:
            self._unit.leave()
        if self._unit.first:
            super().on_advance_start()


class UnitEpochLoop(SignalFreeEpochLoop):
    """Continues in the middle of an epoch as if it had never stopped."""

    def __init__(self, unit: LoopedUnit, trainer: pl.Trainer) -> None:
        super().__init__(trainer)
        self._unit = unit

    def reset(self) -> None:
        if self._unit.first:
            super().reset()

    def on_run_start(self, data_fetcher: DataFetcher) -> None:
        with self._unit.taking():
            super().on_run_start(data_fetcher)

    def advance(self, data_fetcher: DataFetcher) -> None:
        if self._unit.batches_left == 0:
            self._unit.leave()
        self._unit.batches_left -= 1
        try:
            super().advance(data_fetcher)
        except Stopped as stopped:
            self._unit.stopped_after = stopped.batches
            self._unit.leave()
        except StopIteration:
            if self._unit.closes_epoch:
                raise
            self._refuse("the rest of the epoch was skipped (on_train_batch_start returned -1)")

    def on_advance_end(self, data_fetcher: DataFetcher) -> None:
        stops = self.trainer.should_stop and may_stop_early(self.trainer)
        if stops and not self._unit.closes_epoch:
            self._refuse("trainer.should_stop was set")
        super().on_advance_end(data_fetcher)

    def _refuse(self, what: str) -> NoReturn:
        raise TaskError(
            f"{what} at batch {self.batch_idx} of {self.trainer.num_training_batches}, but an epoch visits "
            "all partitions and ends after its last batch: decide in on_train_epoch_end or in validation"
        ) from None


class NoSignals(SignalConnector):
    """Signals are the rank's business."""

    def register_signal_handlers(self) -> None:
        """Installs none."""
