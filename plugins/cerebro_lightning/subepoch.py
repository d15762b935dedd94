"""Sub-epochs of a LightningModule, bit-identical to one ordinary ``Trainer.fit``.

Every unit has a fresh ``Trainer`` with the ``max_epochs`` of the whole config, and a loader that is as
long as the whole epoch but yields one partition. It begins like any fit; after ``on_train_start``
everything is restored to the state that the last unit saved. When the partition is used up, or the unit is to
stop, the unit leaves the fit without further hooks: after any batch of the epoch, or before the next one. The
last epoch ends normally.

Hooks that fire exactly as in an ordinary fit: all from ``on_train_epoch_start`` to
``on_train_epoch_end`` with validation, ``on_train_end``, ``on_fit_end``. Anew in every unit, because its
process may be a fresh one: ``configure_*``, ``setup``, ``on_fit_start``, ``on_train_start``, ``teardown``;
in all units but a config's first, their changes to the state are overwritten and their logged values dropped.
``on_save_checkpoint`` and ``on_load_checkpoint`` fire at every hop. There is no sanity check of the
validation: it would run in every unit. Compare with ``Trainer(num_sanity_val_steps=0)``.

Private names of Lightning are in ``_lightning_internals.py``, hence the pinned minor version. The identity
tests guard what they do.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NoReturn

import lightning
import lightning.pytorch as pl
import torch
from lightning.fabric.plugins.environments.lightning import LightningEnvironment
from lightning.pytorch.utilities.model_helpers import is_overridden
from torch import Tensor

from cerebro_elastic.extending.errors import MissingExtra, TaskError
from cerebro_elastic.extending.parallelism import collectives, ranks
from cerebro_elastic.extending.state import (
    Decoder,
    Encoder,
    ModelStructure,
    NotSerializable,
    ObjectGraph,
    ObjectIndex,
    Tree,
    UserFiles,
    cloned,
    finalize_lazy_modules,
    known_of_model,
    load_values,
    rebuild,
)
from cerebro_elastic.extending.tasks import TaskState, process_settings
from cerebro_elastic.extending.torch_tasks import OptimizerOptions, constructor_options, not_finite, rng
from cerebro_lightning import left_out, metrics, pruning
from cerebro_lightning._lightning_internals import (
    CONNECTOR_STATE,
    accumulates,
    continue_loops,
    dump_checkpoint,
    logger_connector_of,
    look_once_for_external_callbacks,
    restore_stock_checkpoint,
    seen_validation_batches,
    set_logger_connector,
    set_results,
    set_signal_connector,
    set_up_validation,
    training_results_of,
)
from cerebro_lightning.attributes import MODULE, graph, names_of, own_attributes
from cerebro_lightning.distributed import DistributedStrategy
from cerebro_lightning.inherit import set_own_options
from cerebro_lightning.loops import LeaveUnit, NoSignals, UnitFitLoop
from cerebro_lightning.optimizers import NamedStateStrategy
from cerebro_lightning.results import put_results, results_tree
from cerebro_lightning.rows import RowLogger
from cerebro_lightning.synced_logging import SyncedConnector, SyncedResults
from cerebro_lightning.trainer_settings import refuse_callbacks

if not lightning.__version__.startswith(("2.5.", "2.6.")):
    raise MissingExtra(
        f"lightning {lightning.__version__} is installed, but sub-epochs rely on internals of 2.5 and 2.6: "
        "pip install 'lightning>=2.5.6,<2.7'"
    )

look_once_for_external_callbacks()

OURS = "cerebro"
"""In a checkpoint laid out as Lightning's: the key of the state that a stock checkpoint does not keep."""

_REBUILT = (
    "loops",
    pl.LightningModule.CHECKPOINT_HYPER_PARAMS_KEY,
    pl.LightningModule.CHECKPOINT_HYPER_PARAMS_NAME,
    pl.LightningModule.CHECKPOINT_HYPER_PARAMS_TYPE,
)
"""Keys of a stock checkpoint that a unit does not load, as it gets their values from elsewhere."""

_ELSEWHERE = {"attributes", "files", "left out", "objects", "others", "rng", "structure"}
"""Keys below ``OURS`` that are restored separately."""


_COPIED = ("state_dict", "optimizer_states")
"""Keys whose values are copied while they are loaded. A unit copies all others first: it must not change its
input."""

_TRAINER = ("should_stop", "accumulate_grad_batches", "gradient_clip_val", "check_val_every_n_epoch")
"""Attributes of a trainer that callbacks may change while it trains."""


def make_trainer(
    settings: Mapping[str, Any],
    callbacks: Iterable[pl.Callback],
    logger: RowLogger,
    strategy: NamedStateStrategy,
    epochs: int,
) -> pl.Trainer:
    """A trainer for one unit; ``settings`` are the user's own arguments."""
    device, plugins = strategy.root_device, list[Any]([LightningEnvironment()])
    if isinstance(strategy, DistributedStrategy):
        settings, precision = strategy.precision_for(settings)
        plugins.append(precision)
    return pl.Trainer(
        **settings,
        max_epochs=epochs,
        callbacks=list(callbacks),
        logger=logger,
        accelerator=device.type,
        devices=1 if device.type == "cpu" else [device.index or 0],
        strategy=strategy,
        plugins=plugins,
        num_sanity_val_steps=0,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )


class SubEpoch:
    """One unit: the next ``batches`` batches of an epoch from ``state`` on. ``first`` and ``last`` say
    whether they open and close the epoch; ``seed`` is for the generators of ranks other than the first,
    unless the unit ``resumes`` one that was stopped. It ``inherits`` if the state is another config's. The
    user's ``files`` are borrowed for it.

    After ``fit``: ``state`` and ``metrics`` are those at the unit's end, ``ended`` says whether the whole
    config's fit has ended, ``stopped_after`` how many of the partition's batches are trained if the unit was
    stopped, and ``not_finite`` names a value that is NaN or infinite.
    """

    def __init__(
        self,
        module: pl.LightningModule,
        trainer: pl.Trainer,
        *,
        files: UserFiles,
        state: TaskState | None,
        batches: int,
        first: bool,
        last: bool,
        resumes: bool = False,
        inherits: bool = False,
        seed: int = 0,
    ) -> None:
        self.state = state
        self.metrics: dict[str, float] = {}
        self.ended = False
        self.stopped_after: int | None = None
        self.not_finite: str | None = None
        self.first, self.last = first, last
        self.batches_left = batches
        self._resumes, self._seed = resumes, seed
        self._inherits = inherits
        self._module = module
        self._trainer = trainer
        assert isinstance(trainer.strategy, NamedStateStrategy)
        self._strategy = trainer.strategy
        self._device = trainer.strategy.root_device
        self._files = files
        self._stock = frozenset(vars(trainer))
        self._graph: ObjectGraph
        self._moved: process_settings.Moved
        self.taking: Callable[[], AbstractContextManager[None]] = nullcontext
        self._left_out: left_out.LeftOut
        self._options: list[OptimizerOptions] = []

    @property
    def stopped_early(self) -> bool:
        """Whether the module or a callback has ended the config's training."""
        return self.ended and self._trainer.should_stop

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
        self._trainer.fit_loop = UnitFitLoop(self, self._trainer)
        set_signal_connector(self._trainer, NoSignals(self._trainer))
        if isinstance(self._strategy, DistributedStrategy):
            self._synchronize_logging(self._strategy)
        self.ended = True
        self._trainer.fit(self._module, **loaders)
        if self.ended:
            self._capture()

    def enter(self) -> None:
        """Called when all set-up hooks are over, before the first batch."""
        trainer = self._trainer
        callbacks: list[pl.Callback] = vars(trainer)["callbacks"]
        refuse_callbacks(callbacks)  # those of the module's configure_callbacks, too
        self._options = [constructor_options(optimizer) for optimizer in trainer.optimizers]
        self._strategy.build(self.state)
        self._left_out = left_out.LeftOut(self._module, callbacks)
        self._graph = graph(self._module, trainer, self._strategy, self._files, self._stock)
        self._moved = process_settings.Moved()
        if self.state is not None:
            self._restore(self.state)
        connector = logger_connector_of(trainer)
        if isinstance(connector, SyncedConnector):
            connector.stopping = trainer.should_stop
        self._mute(False)
        self._place_generators()

    def leave(self) -> NoReturn:
        """Called between batches when the config's fit continues in another unit."""
        self.ended = False
        self._capture()
        raise LeaveUnit

    def _synchronize_logging(self, strategy: DistributedStrategy) -> None:
        trainer, present = self._trainer, strategy.present
        set_results(trainer, SyncedResults(True, present), SyncedResults(False, present))
        set_logger_connector(trainer, SyncedConnector(trainer, present, lambda: self.batches_left == 0))

    def _place_generators(self) -> None:
        """Rank 0 continues with the config's generators; the others seed theirs for each unit, unless it
        resumes one that was stopped."""
        (rank, _), ours = ranks(), self.state[OURS] if self.state is not None else {}
        generators = [ours.get("rng"), *(ours.get("others", ()) if self._resumes else ())]
        if rank and rank >= len(generators):
            rng.seed_all(self._seed)
        elif generators[rank] is not None:
            rng.restore(generators[rank], self._device)

    def _mute(self, muted: bool) -> None:
        for logger in self._trainer.loggers:
            if isinstance(logger, RowLogger):
                logger.muted = muted

    def _capture(self) -> None:
        generators = [rng.capture(self._device)]  # first: the hooks called below may draw
        results = training_results_of(self._trainer)
        if isinstance(results, SyncedResults):
            results.agree()
            generators = collectives.gathered(generators[0]) or generators
        with metrics.of_all_ranks(self._module):
            self._take_state(*generators)

    def _take_state(self, generators: TaskState, *ranks: TaskState) -> None:
        trainer = self._trainer
        with pruning.masks_kept(vars(trainer)["callbacks"]):
            state = dump_checkpoint(trainer)
        for key in _REBUILT:
            state.pop(key, None)
        schedulers = [config.scheduler for config in trainer.lr_scheduler_configs]
        state["lr_schedulers"] = [_scheduler_tree(scheduler) for scheduler in schedulers]
        connector = logger_connector_of(trainer)
        ours = {
            "loops": trainer.fit_loop.state_dict(),
            "validation": seen_validation_batches(trainer),
            "trainer": {name: getattr(trainer, name) for name in _TRAINER},
            "connector": {name: getattr(connector, name) for name in CONNECTOR_STATE},
            "results": results_tree(training_results_of(trainer)),
            "grads": self._grads(),
            "options": self._options,
            "pruning": pruning.gone_on(vars(trainer)["callbacks"]),
            **self._moved.state(),
        }
        if ranks and self.stopped_after is not None:
            ours["others"] = ranks
        structure = self._strategy.changes(allowed=self.ended)
        new = {path for path, change in structure.get("parts", {}).items() if "created" in change}
        objects, files = self._graph.carry(changes_allowed=self.ended, new=new)
        attributes = [objects.pop(name, {}) for name in names_of(vars(trainer)["callbacks"])]
        if not self._strategy.whole and self.state is not None:  # state of other ranks is passed on unchanged
            objects = {**self.state[OURS].get("objects", {}), **objects}
        state[OURS] = {
            **Encoder().tree(ours),
            "structure": structure,
            "attributes": attributes,
            "objects": objects,
            "files": files,
            "rng": generators,
        }
        weights = state.get("current_model_state", state["state_dict"])  # of averaged ones, the trained
        if self._strategy.whole and (found := self._left_out.of(self._module, weights)):
            state[OURS]["left out"] = found
        self.state = state
        self.metrics = {name: float(value) for name, value in trainer.callback_metrics.items()}
        if self.stopped_after is None:
            story = not_finite(self.metrics, self._strategy.parameters_in(state["state_dict"]))
            self.not_finite = next((reason for reason in collectives.gathered(story) if reason), None)

    def _restore(self, state: TaskState) -> None:
        trainer = self._trainer
        saved = {key: cloned(value) for key, value in state.items() if key not in _COPIED}
        ours = saved.pop(OURS)
        saved |= {key: copy.copy(state[key]) for key in _COPIED}
        configs = trainer.lr_scheduler_configs
        saved["lr_schedulers"] = [
            _scheduler_state(config.scheduler, tree, self._device)
            for config, tree in zip(configs, saved["lr_schedulers"], strict=True)
        ]
        restore_stock_checkpoint(trainer, saved)
        for tensors in ours.get("left out", {}).values():
            left_out.put(self._module, tensors)
        if self._inherits:
            set_own_options(trainer, ours["options"], self._options)
        self._restore_ours(ours)

    def _restore_ours(self, ours: Mapping[str, Any]) -> None:
        trainer = self._trainer
        trees = dict(zip(names_of(vars(trainer)["callbacks"]), ours["attributes"], strict=True))
        self._graph.restore({**trees, **ours.get("objects", {})}, ours.get("files", {}), self._device)
        metrics.keep_to_first(self._module)
        decoder = Decoder(ObjectIndex(), self._device)
        carried = {k: decoder.value(tree, f"/{k}") for k, tree in ours.items() if k not in _ELSEWHERE}
        trainer.fit_loop.load_state_dict(carried["loops"])
        continue_loops(trainer)
        seen = carried.get("validation")
        if seen is not None and trainer.enable_validation:  # now, not at the epoch's end: it resets the count
            set_up_validation(trainer, seen)
        for name, value in carried["trainer"].items():
            setattr(trainer, name, value)
        for name, value in carried["connector"].items():
            setattr(logger_connector_of(trainer), name, value)
        put_results(training_results_of(trainer), carried["results"], self._module, trainer)
        self._strategy.put_gradients(carried["grads"])
        self._moved.put(carried)
        pruning.go_on(vars(trainer)["callbacks"], carried.get("pruning", ()))

    def _grads(self) -> dict[str, Tensor]:
        """Gradients that the next batch adds to. Automatic optimization zeroes the others."""
        manual = not self._module.automatic_optimization
        own_zero = is_overridden("optimizer_zero_grad", self._module)
        if not (manual or own_zero or accumulates(self._trainer)):
            return {}
        return self._strategy.gradients()


def _scheduler_tree(scheduler: Any) -> Tree:
    try:
        return Encoder().tree(dict(scheduler.state_dict()))
    except NotSerializable as exc:
        raise TaskError(
            f"the state of {type(scheduler).__name__} holds a {exc}, which cannot hop to another node: keep "
            "plain values in its state_dict"
        ) from None


def _scheduler_state(scheduler: Any, tree: Tree, device: torch.device) -> Any:
    present = Encoder(strict=False)
    present.tree(dict(scheduler.state_dict()))
    return Decoder(present.index, device).value(tree)


def load_state(module: pl.LightningModule, state: TaskState) -> pl.LightningModule:
    """Give a freshly built module the weights and attributes of ``state``; the average weights if a
    ``WeightAveraging`` callback keeps them."""
    checkpoint = {key: cloned(value) for key, value in state.items() if key != OURS}
    if is_overridden("configure_model", module):
        module.configure_model()
    if parts := state[OURS].get("structure", {}).get("parts"):
        rebuild(module, (), ModelStructure(module, ()), {"parts": parts}, ())
    module.on_load_checkpoint(checkpoint)
    load_values(module, checkpoint["state_dict"], strict=module.strict_loading)
    left_out.put(module, state[OURS].get("left out", {}).get(left_out.MISSING, {}))
    finalize_lazy_modules(module)
    built = Encoder(known_of_model(module, ()), strict=False)
    built.module(module, own_attributes, MODULE)
    decoder = Decoder(built.index, torch.device("cpu"), known_of_model(module, ()))
    decoder.module(module, cloned(state[OURS]["attributes"][0]), own_attributes, MODULE, lenient=True)
    return module
