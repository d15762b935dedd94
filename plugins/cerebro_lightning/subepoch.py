"""Sub-epochs of a LightningModule, bit-identical to one ordinary ``Trainer.fit``.

Every unit has a fresh ``Trainer`` with the ``max_epochs`` of the whole config, and a loader that is as
long as the whole epoch but yields one partition. It begins like any fit; after ``on_train_start``
everything is restored to the state that the last unit saved. When the partition is used up, or the unit is to
stop, the unit leaves the fit without further hooks: after any batch of the epoch, or before the next one. The
last epoch ends normally.

Hooks that fire exactly as in an ordinary fit: all from ``on_train_epoch_start`` to
``on_train_epoch_end`` with validation, ``on_train_end``, ``on_fit_end``. Again in every unit, because its
process may be a fresh one: ``configure_*``, ``setup``, ``on_fit_start``, ``on_train_start``, ``teardown``; in
all units but a config's first, their changes to the state are overwritten and their logged values dropped.
``on_save_checkpoint`` and ``on_load_checkpoint`` fire at every hop. The sanity check of the validation is
left out: it would run in every unit. Compare with ``Trainer(num_sanity_val_steps=0)``.

Private names of Lightning are in ``_lightning_internals.py``, hence the pinned minor version. The identity
tests guard their behaviour.
"""

from __future__ import annotations

import copy
import traceback
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, NoReturn

import lightning
import lightning.pytorch as pl
from lightning.pytorch.trainer import call
from lightning.pytorch.utilities.model_helpers import is_overridden
from torch import Tensor

from cerebro_elastic.extending.errors import MissingExtra, TaskError, install_extra
from cerebro_elastic.extending.parallelism import collectives, ranks
from cerebro_elastic.extending.state import (
    Decoder,
    Encoder,
    ObjectGraph,
    ObjectIndex,
    OptimizerOptions,
    cloned,
    constructor_options,
    not_finite,
    rng,
)
from cerebro_elastic.extending.tasks import Still, Stopped, TaskState, process_settings
from cerebro_lightning._lightning_internals import (
    CONNECTOR_STATE,
    DataFetcher,
    FitLoop,
    SignalConnector,
    SignalFreeEpochLoop,
    TunerExit,
    accumulates,
    callbacks_of,
    continue_loops,
    dump_checkpoint,
    logger_connector_of,
    look_once_for_external_callbacks,
    masks_kept,
    may_stop_early,
    put_results,
    put_rewound,
    restore_stock_checkpoint,
    results_tree,
    rewound_parameters,
    seen_validation_batches,
    set_logger_connector,
    set_results,
    set_signal_connector,
    set_up_validation,
    training_results_of,
)
from cerebro_lightning.distributed import DistributedStrategy
from cerebro_lightning.made_anew import leave_out, put_back
from cerebro_lightning.optimizers import BESIDE_AVERAGE, OURS, NamedStateStrategy
from cerebro_lightning.state import (
    LeftOut,
    graph,
    names_of,
    plain_tensors,
    put_left_out,
    scheduler_state,
    scheduler_tree,
    set_own_options,
)
from cerebro_lightning.synced_logging import (
    SyncedConnector,
    SyncedResults,
    keep_metrics_to_first,
    metrics_of_all_ranks,
)
from cerebro_lightning.trainer_settings import RowLogger

if not lightning.__version__.startswith(("2.5.", "2.6.")):
    raise MissingExtra(
        f"lightning {lightning.__version__} is installed, but sub-epochs rely on internals of 2.5 and 2.6: "
        f"{install_extra('lightning')}"
    )

look_once_for_external_callbacks()

_HYPER_PARAMETERS = (
    "CHECKPOINT_HYPER_PARAMS_KEY",
    "CHECKPOINT_HYPER_PARAMS_NAME",
    "CHECKPOINT_HYPER_PARAMS_TYPE",
)
_REBUILT = (
    "loops",
    *(
        getattr(made, name)
        for made in (pl.LightningModule, pl.LightningDataModule)
        for name in _HYPER_PARAMETERS
    ),
)
"""Keys of a stock checkpoint that a unit does not load, as it gets their values from elsewhere."""

_ELSEWHERE = {"attributes", "left out", "made anew", "objects", "others", "rng", "structure"}
"""Keys below ``OURS`` that are restored separately."""


_COPIED = ("state_dict", "optimizer_states")
"""Keys whose values are copied while they are loaded. A unit copies all others first: it must not change its
input."""

_TRAINER = ("should_stop", "accumulate_grad_batches", "gradient_clip_val", "check_val_every_n_epoch")
"""Attributes of a trainer that callbacks may change while it trains."""


@dataclass(eq=False)
class SubEpoch:
    """One unit: the next batches of an epoch from ``state`` on, which ``fit`` replaces by that at its end."""

    module: pl.LightningModule
    trainer: pl.Trainer
    """A fresh one of ``make_trainer``."""
    _: KW_ONLY
    state: TaskState | None
    batches_left: int
    """How many batches it has yet to train."""
    first: bool
    """Whether it opens its epoch."""
    last: bool
    """Whether it closes its epoch."""
    resumes: bool = False
    """Whether it continues a unit that was stopped."""
    inherits: bool = False
    """Whether the state is another config's."""
    seed: int = 0
    """For the generators of ranks other than the first, unless it ``resumes``."""
    metrics: dict[str, float] = field(init=False, default_factory=dict)
    """The metrics at the unit's end."""
    ended: bool = field(init=False, default=False)
    """Whether the whole config's fit has ended."""
    stopped_after: int | None = field(init=False, default=None)
    """How many of the partition's batches are trained, if the unit was stopped."""
    not_finite: str | None = field(init=False, default=None)
    """The name of a value that is NaN or infinite, if any."""
    untrained: Mapping[str, Still] = field(init=False, default_factory=dict)
    """The tensors of the module that get no gradient, as the unit finds them."""
    taking: Callable[[], AbstractContextManager[None]] = field(init=False, default=nullcontext)
    """A context: inside it the loops take the iterators of the training batches."""

    def __post_init__(self) -> None:
        assert isinstance(self.trainer.strategy, NamedStateStrategy)
        self._strategy = self.trainer.strategy
        self._device = self._strategy.root_device
        self._stock = frozenset(vars(self.trainer))
        self._graph: ObjectGraph
        self._settings: process_settings.AsSetUp
        self._left_out: LeftOut
        self._options: list[OptimizerOptions] = []

    @property
    def stopped_early(self) -> bool:
        """Whether the module or a callback has ended the config's training."""
        return self.ended and self.trainer.should_stop

    @property
    def closes_epoch(self) -> bool:
        """Whether the epoch's last batch has been taken."""
        return self.last and self.batches_left == 0

    def fit(
        self, loaders: Mapping[str, Any], taking: Callable[[], AbstractContextManager[None]] = nullcontext
    ) -> None:
        """Train on the ``loaders``, as ``Trainer.fit`` takes them. The loop takes its iterators inside
        ``taking``. Raises ``TaskError`` for a module that cannot be trained exactly."""
        self.taking = taking
        self._mute(self.state is not None)
        self.trainer.fit_loop = _UnitFitLoop(self)
        set_signal_connector(self.trainer, _NoSignals(self.trainer))
        if isinstance(self._strategy, DistributedStrategy):
            self._synchronize_logging(self._strategy)
        self.ended = True
        self.trainer.fit(self.module, **loaders)
        if self.ended:
            self._capture()

    def enter(self) -> None:
        """Called when all set-up hooks are over, before the first batch."""
        trainer = self.trainer
        callbacks = callbacks_of(trainer)
        self._options = [constructor_options(optimizer) for optimizer in trainer.optimizers]
        self._strategy.build(self.state)
        self._left_out = LeftOut(self.module, callbacks)
        self._graph = graph(self.module, trainer, self._strategy, self._stock)
        self._settings = process_settings.AsSetUp()
        if self.state is not None:
            self._restore(self.state)
        self.untrained = self._strategy.untrained()
        connector = logger_connector_of(trainer)
        if isinstance(connector, SyncedConnector):
            connector.stopping = trainer.should_stop
        self._mute(False)
        self._place_generators()

    def leave(self) -> NoReturn:
        """Called between batches when the config's fit continues in another unit."""
        self.ended = False
        self._capture()
        raise _LeaveUnit

    def _synchronize_logging(self, strategy: DistributedStrategy) -> None:
        trainer, present = self.trainer, strategy.present
        set_results(trainer, SyncedResults(True, present), SyncedResults(False, present))
        set_logger_connector(trainer, SyncedConnector(trainer, present, lambda: self.batches_left == 0))

    def _place_generators(self) -> None:
        """Rank 0 continues with the config's generators; the others seed theirs for each unit, unless it
        resumes one that was stopped."""
        (rank, _), ours = ranks(), self.state[OURS] if self.state is not None else {}
        generators = [ours.get("rng"), *(ours.get("others", ()) if self.resumes else ())]
        if rank and rank >= len(generators):
            rng.seed_all(self.seed)
        elif generators[rank] is not None:
            rng.restore(generators[rank], self._device)

    def _mute(self, muted: bool) -> None:
        for logger in self.trainer.loggers:
            if isinstance(logger, RowLogger):
                logger.muted = muted

    def _capture(self) -> None:
        generators = [rng.capture(self._device)]  # first: the hooks called below may draw
        results = training_results_of(self.trainer)
        if isinstance(results, SyncedResults):
            results.agree()
            generators = collectives.gathered(generators[0]) or generators
        with metrics_of_all_ranks(self.module):
            self._take_state(*generators)

    def _take_state(self, generators: TaskState, *ranks: TaskState) -> None:
        trainer, callbacks = self.trainer, callbacks_of(self.trainer)
        with masks_kept(callbacks):
            state = dump_checkpoint(trainer)
        for key in _REBUILT:
            state.pop(key, None)
        schedulers = [config.scheduler for config in trainer.lr_scheduler_configs]
        state["lr_schedulers"] = [scheduler_tree(scheduler) for scheduler in schedulers]
        connector = logger_connector_of(trainer)
        ours = {
            "loops": trainer.fit_loop.state_dict(),
            "validation": seen_validation_batches(trainer),
            "trainer": {name: getattr(trainer, name) for name in _TRAINER},
            "connector": plain_tensors({name: getattr(connector, name) for name in CONNECTOR_STATE}),
            "results": plain_tensors(results_tree(training_results_of(trainer))),
            "grads": self._grads(),
            "options": self._options,
            "pruning": rewound_parameters(callbacks),
        }
        if ranks and self.stopped_after is not None:
            ours["others"] = ranks
        structure = self._strategy.changes(allowed=self.ended)
        objects = self._graph.carry(changes_allowed=self.ended)
        self._settings.check()
        attributes = [objects.pop(name, {}) for name in names_of(callbacks)]
        if not self._strategy.whole and self.state is not None:  # state of other ranks is passed on unchanged
            objects = {**self.state[OURS]["objects"], **objects}
        state[OURS] = {
            **Encoder().tree(ours),
            "structure": structure,
            "attributes": attributes,
            "objects": objects,
            "rng": generators,
        }
        weights = state.get(BESIDE_AVERAGE, state["state_dict"])  # of averaged ones, the trained
        if self._strategy.whole and (found := self._left_out.of(self.module, weights)):
            state[OURS]["left out"] = found
        if anew := leave_out(state, self.module):
            state[OURS]["made anew"] = list(anew)
        self.state = state
        self.metrics = {name: float(value) for name, value in trainer.callback_metrics.items()}
        if self.stopped_after is None:
            story = not_finite(self.metrics, self._strategy.parameters_in(state["state_dict"]))
            self.not_finite = next((reason for reason in collectives.gathered(story) if reason), None)

    def _restore(self, state: TaskState) -> None:
        trainer = self.trainer
        saved = {key: cloned(value) for key, value in state.items() if key not in _COPIED}
        ours = saved.pop(OURS)
        saved |= {key: copy.copy(state[key]) for key in _COPIED}
        configs = trainer.lr_scheduler_configs
        saved["lr_schedulers"] = [
            scheduler_state(config.scheduler, tree, self._device)
            for config, tree in zip(configs, saved["lr_schedulers"], strict=True)
        ]
        put_back(saved, self.module, ours.get("made anew", ()))
        restore_stock_checkpoint(trainer, saved)
        for tensors in ours.get("left out", {}).values():
            put_left_out(self.module, tensors)
        if self.inherits:
            set_own_options(trainer, ours["options"], self._options)
        self._restore_ours(ours)

    def _restore_ours(self, ours: Mapping[str, Any]) -> None:
        trainer = self.trainer
        callbacks = callbacks_of(trainer)
        trees = dict(zip(names_of(callbacks), ours["attributes"], strict=True))
        self._graph.restore({**trees, **ours["objects"]}, self._device)
        keep_metrics_to_first(self.module)
        decoder = Decoder(ObjectIndex(), self._device)
        carried = {k: decoder.value(tree, f"/{k}") for k, tree in ours.items() if k not in _ELSEWHERE}
        trainer.fit_loop.load_state_dict(carried["loops"])
        continue_loops(trainer)
        seen = carried["validation"]
        if seen is not None and trainer.enable_validation:  # now, not at the epoch's end: it resets the count
            set_up_validation(trainer, seen)
        for name, value in carried["trainer"].items():
            setattr(trainer, name, value)
        for name, value in carried["connector"].items():
            setattr(logger_connector_of(trainer), name, value)
        put_results(training_results_of(trainer), carried["results"], self.module, trainer)
        self._strategy.put_gradients(carried["grads"])
        put_rewound(callbacks, carried["pruning"])

    def _grads(self) -> dict[str, Tensor]:
        """Gradients that the next batch adds to. Automatic optimization zeroes the others."""
        manual = not self.module.automatic_optimization
        own_zero = is_overridden("optimizer_zero_grad", self.module)
        if not (manual or own_zero or accumulates(self.trainer)):
            return {}
        return self._strategy.gradients()


class _LeaveUnit(TunerExit):
    """Ends a fit without ending its training: no ``on_train_end``, no ``on_exception``."""


class _UnitFitLoop(FitLoop):
    """Runs one epoch at most; it opens the epoch only if this is the epoch's first unit."""

    def __init__(self, unit: SubEpoch) -> None:
        trainer = unit.trainer
        super().__init__(trainer, trainer.min_epochs, trainer.max_epochs)
        self.epoch_loop = _UnitEpochLoop(unit)
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


class _UnitEpochLoop(SignalFreeEpochLoop):
    """Continues in the middle of an epoch as if it had never stopped."""

    def __init__(self, unit: SubEpoch) -> None:
        super().__init__(unit.trainer)
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
        except StopIteration as stop:
            if any(frame.filename == call.__file__ for frame in traceback.extract_tb(stop.__traceback__)):
                raise RuntimeError("a hook of the module or of a callback let a StopIteration out") from stop
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


class _NoSignals(SignalConnector):
    """Signals are the rank's business."""

    def register_signal_handlers(self) -> None:
        """Installs none."""
