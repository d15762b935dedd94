"""One ordinary ``fit``, and the same as units: everything that either leaves, side by side."""
# ruff: noqa: ARG002 - hooks have the parameters that Lightning gives them

from __future__ import annotations

import copy
import json
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import lightning as L
import numpy as np
import torch
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loggers import CSVLogger

from cerebro_elastic.core.model.units import Unit
from cerebro_elastic.data.reading.batches import batch_count, batches
from cerebro_elastic.data.reading.loader_settings import LoaderSettings
from cerebro_elastic.data.reading.partition import Partition, sample_order, unopened
from cerebro_elastic.hop.checkpoint.tree import flatten, unflatten
from cerebro_elastic.hop.generators import rng
from cerebro_elastic.hop.objects.encoder import Encoder
from cerebro_elastic.hop.optimizer_state import to_names
from cerebro_elastic.registry import import_object
from cerebro_elastic.training.task import TaskState, UnitJob, UnitResult
from cerebro_lightning import LightningTask
from cerebro_lightning.section import LightningSection
from cerebro_lightning.trainer_settings import make_callbacks
from support.parts import in_parts

FOLDER = Path(__file__).parent / "zoos"
SEED = 7
LOADER = LoaderSettings(batch_size=4)
ORDERS = ((1, 0, 2), (2, 1, 0), (0, 2, 1))
"""The partitions in the order of visits, per epoch. With batches of 4 they have 4, 3 and 2 batches."""


def _partition(index: int, rows: int) -> Partition:
    generator = np.random.default_rng(100 + index)
    x = generator.normal(size=(rows, 6)).astype(np.float32)
    made = Partition(index, rows, {"x": x, "y": (x.sum(1) > 0).astype(np.int64) + (x[:, 0] > 1)})
    made.check_sizes()  # as it is from the first use on: a unit's state has all of the files that changes
    return made


TRAINING = tuple(_partition(index, rows) for index, rows in enumerate((14, 10, 6)))
VALIDATION = tuple(_partition(10 + index, rows) for index, rows in enumerate((9, 5)))


@dataclass(frozen=True)
class Case:
    """What is trained, as a recipe's section says it."""

    module: str
    trainer: Mapping[str, Any] = field(default_factory=dict)
    callbacks: Sequence[Any] = ()
    hparams: Mapping[str, Any] = field(default_factory=dict)
    orders: tuple[tuple[int, ...], ...] = ORDERS
    validates: bool = True
    sanity_steps: int = 0

    @property
    def section(self) -> LightningSection:
        trainer = {"log_every_n_steps": 2, **self.trainer}
        callbacks = ("lightning_zoo:HookOrder", *self.callbacks)
        module = self.module if ":" in self.module else f"lightning_zoo:{self.module}"
        return LightningSection.model_construct(
            module=module, args={}, trainer=trainer, callbacks=tuple(callbacks)
        )

    @property
    def epochs(self) -> int:
        return len(self.orders)


@dataclass
class Outcome:
    """What a training leaves, in comparable form."""

    weights: dict[str, Any]
    optimizers: list[Any]
    schedulers: list[Any]
    global_step: int
    current_epoch: int
    epoch_metrics: list[dict[str, float]]
    rows: list[dict[str, float]]
    calls: list[Any]
    callbacks: dict[str, Any]
    rng: Any
    epochs: int
    records: list[Any]
    """What modules and callbacks that watch their trainer have seen of it."""


def ordinary_fit(case: Case) -> Outcome:
    """As a script without us would do it."""
    L.seed_everything(SEED, verbose=False)
    module = import_object(case.section.module, FOLDER)(**case.hparams)
    callbacks = make_callbacks(case.section.callbacks, FOLDER)
    logger, watcher = Rows(), EpochMetrics()
    trainer = L.Trainer(
        **case.section.trainer,
        max_epochs=case.epochs,
        callbacks=[*callbacks, watcher],
        logger=logger,
        accelerator="cpu",
        num_sanity_val_steps=case.sanity_steps,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    logger.trainer = trainer
    validation = ValidationLoader() if case.validates else None
    trainer.fit(module, OrdinaryLoader(trainer, case.orders), validation)
    return Outcome(
        weights=copy.deepcopy(dict(module.state_dict())),
        optimizers=[to_names(optimizer, module) for optimizer in trainer.optimizers],
        schedulers=[Encoder().tree(config.scheduler.state_dict()) for config in trainer.lr_scheduler_configs],
        global_step=trainer.global_step,
        current_epoch=trainer.current_epoch,
        epoch_metrics=watcher.seen,
        rows=logger.rows,
        calls=callbacks[0].calls,
        callbacks={type(c).__name__: c.state_dict() for c in vars(trainer)["callbacks"] if c.state_dict()},
        rng=rng.capture(),
        epochs=len(watcher.seen),
        records=[seen for owner in (module, *callbacks) if (seen := vars(owner).get("records"))],
    )


Stops: TypeAlias = Mapping[tuple[int, int], Sequence[int]]
"""Where units are cut: after which numbers of batches, by (epoch, position)."""


def units(case: Case, stops: Stops | None = None) -> Iterator[tuple[UnitJob, UnitResult]]:
    """The same as units, each on a fresh task, the state going through the form of a checkpoint."""
    return units_from(case, 0, None, stops)


def units_from(
    case: Case, start: int, state: TaskState | None, stops: Stops | None = None
) -> Iterator[tuple[UnitJob, UnitResult]]:
    """The units, or their parts, from the ``start``-th on, of those of all epochs in order."""
    places = [(epoch, position) for epoch, order in enumerate(case.orders) for position in range(len(order))]
    for epoch, position in places[start:]:
        unit = job(case, epoch, position, state)
        cuts = (stops or {}).get((epoch, position), ())
        for result in in_parts(lambda part: LightningTask(case.section, FOLDER).train(part), unit, cuts, hop):
            yield unit, result
        if result.done:
            return
        state = hop(result.state)


def job(case: Case, epoch: int, position: int, state: TaskState | None) -> UnitJob:
    order = case.orders[epoch]
    ends_epoch = position + 1 == len(order)
    return UnitJob(
        unit=Unit("c1", epoch, order[position]),
        hparams=case.hparams,
        seed=SEED,
        epochs=case.epochs,
        visited=order[:position],
        rows=tuple(partition.rows for partition in TRAINING),
        partition=TRAINING[order[position]],
        validation=[_read_at_the_end(part, ends_epoch) for part in VALIDATION] if case.validates else (),
        loader=LOADER,
        state=state,
        device="cpu",
    )


def _read_at_the_end(partition: Partition, ends_epoch: bool) -> Partition:
    """As a node has it: read by the unit that validates, and by no other."""

    def fetch() -> Partition:
        raise AssertionError("a unit in the middle of an epoch has read the validation data")

    return partition if ends_epoch else unopened(partition.index, partition.rows, partition.name, fetch)


def hop(state: TaskState) -> TaskState:
    """Through the text and the named tensors of a checkpoint."""
    tree, tensors = flatten(state)
    return unflatten(json.loads(json.dumps(tree)), copy.deepcopy(tensors))


def outcome(done: Sequence[tuple[UnitJob, UnitResult]]) -> Outcome:
    """What the last unit and the rows and metrics of all leave."""
    last = done[-1][1]
    state = last.state
    ends = [result for unit, result in done if unit.last and result.whole]
    module, *callbacks = state["cerebro"]["attributes"]
    attributes = [module["attributes"][""], *callbacks]
    return Outcome(
        weights=dict(state.get("current_model_state", state["state_dict"])),
        optimizers=list(state["optimizer_states"]),
        schedulers=state["lr_schedulers"],
        global_step=state["global_step"],
        current_epoch=state["epoch"],
        epoch_metrics=[dict(result.metrics) for result in ends],
        rows=[dict(row) for _, result in done for row in result.log],
        calls=attributes[1]["calls"],
        callbacks={name.partition("{")[0]: saved for name, saved in state["callbacks"].items()},
        rng=state["cerebro"]["rng"],
        epochs=len(ends),
        records=[seen for tree in attributes if (seen := tree.get("records"))],
    )


class OrdinaryLoader:
    """The partitions of the present epoch in their order, batches not spanning them."""

    def __init__(self, trainer: L.Trainer, orders: tuple[tuple[int, ...], ...]) -> None:
        self._trainer, self._orders = trainer, orders

    def __len__(self) -> int:
        return sum(batch_count(partition.rows, LOADER.batch_size) for partition in TRAINING)

    def __iter__(self) -> Iterator[Any]:
        epoch = self._trainer.current_epoch
        for index in self._orders[epoch]:
            order = sample_order(SEED, epoch, index, TRAINING[index].rows)
            yield from batches(TRAINING[index], order, LOADER)


class ValidationLoader:
    def __len__(self) -> int:
        return sum(batch_count(partition.rows, LOADER.batch_size) for partition in VALIDATION)

    def __iter__(self) -> Iterator[Any]:
        for partition in VALIDATION:
            yield from batches(partition, np.arange(partition.rows), LOADER)


class EpochMetrics(Callback):
    """``callback_metrics`` when everything of an epoch is over."""

    def __init__(self) -> None:
        self.seen: list[dict[str, float]] = []

    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: Any) -> None:
        if trainer.current_epoch:
            self._take(trainer)

    def on_train_end(self, trainer: L.Trainer, pl_module: Any) -> None:
        self._take(trainer)

    def _take(self, trainer: L.Trainer) -> None:
        self.seen.append({name: float(value) for name, value in trainer.callback_metrics.items()})


class Rows(CSVLogger):
    """Lightning's own rows, kept in memory; ``epoch`` is filled in where Lightning leaves it out."""

    def __init__(self) -> None:
        super().__init__("unused")
        self.rows: list[dict[str, float]] = []
        self.trainer: L.Trainer | None = None

    @property
    def experiment(self) -> Any:
        return None

    def log_metrics(self, metrics: dict[str, Any], step: int | None = None) -> None:
        assert self.trainer is not None
        self.rows.append({"epoch": self.trainer.current_epoch, **metrics, "step": step})

    def log_hyperparams(self, *_: Any, **__: Any) -> None: ...

    def save(self) -> None: ...

    def finalize(self, status: str) -> None: ...


def differences(left: Any, right: Any, path: str = "") -> list[str]:
    """Where two trees differ in the least bit; the types of containers do not matter."""
    if isinstance(left, torch.Tensor) and isinstance(right, torch.Tensor):
        if left.layout is not torch.strided and left.layout is right.layout:
            left, right = left.to_dense(), right.to_dense()
        alike = left.dtype == right.dtype and torch.equal(left.nan_to_num(), right.nan_to_num())
        return [] if alike else [f"{path}: {left} != {right}"]
    if isinstance(left, np.ndarray):
        return [] if np.array_equal(left, right) else [f"{path}: arrays differ"]
    if isinstance(left, dict) and isinstance(right, dict):
        if left.keys() != right.keys():
            return [f"{path}: keys {sorted(map(str, left))} != {sorted(map(str, right))}"]
        return [d for key in left for d in differences(left[key], right[key], f"{path}[{key!r}]")]
    if isinstance(left, list | tuple | deque) and isinstance(right, list | tuple | deque):
        if len(left) != len(right):
            return [f"{path}: {len(left)} items {left} != {len(right)} items {right}"]
        return [d for at in range(len(left)) for d in differences(left[at], right[at], f"{path}[{at}]")]
    alike = left == right or (left != left and right != right)
    return [] if alike else [f"{path}: {left!r} != {right!r}"]
