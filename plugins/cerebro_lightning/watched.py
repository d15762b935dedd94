"""Fits that ``cerebro check`` watches: their parts after each batch and at the ends of epochs, and the
ordinary fit with which units are compared.

Lightning calls all hooks by two functions of its module ``trainer.call``. They are wrapped during a watched
fit, so that module and trainer look unchanged from within; with one more callback they would not.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from itertools import chain, count
from typing import Any

import lightning.pytorch as pl
import torch
from torch import nn
from torch.utils.data import DataLoader

from cerebro_elastic.extending.data import ForeignGenerators, seed_of_batch
from cerebro_elastic.extending.state import rng, to_names
from cerebro_elastic.extending.tasks import Observe, OrdinaryFit, UnitJob, job_batches
from cerebro_lightning._lightning_internals import callbacks_of, hooks_wrapped
from cerebro_lightning.loaders import EpochLoader, UnitLoaders, attached, data_module, validation_loader
from cerebro_lightning.optimizers import NamedStateStrategy
from cerebro_lightning.state import own_attributes
from cerebro_lightning.trainer_settings import RowLogger, make_trainer

BEGINS = "at the epoch's beginning, before"
ENDS = "at the training's end, after"
_MOMENTS = {
    "on_train_batch_end": "after",
    "on_train_epoch_end": "at the epoch's end, after",
    "on_train_end": ENDS,
}
"""The moment that follows each hook of the module."""

_ANEW = (
    "configure_",
    "on_exception",
    "on_fit_start",
    "on_load_checkpoint",
    "on_sanity_check",
    "on_save_checkpoint",
    "on_train_start",
    "prepare_data",
    "setup",
    "teardown",
)
"""The hooks that every unit calls (docs/design/exactness.md)."""


@contextmanager
def observed(observe: Observe) -> Iterator[None]:
    """Pass the contents of all fits inside the block to ``observe``."""
    hooks: list[str] = []

    def module_hook(of_module: Any, trainer: pl.Trainer, name: str, *args: Any, **kwargs: Any) -> Any:
        module = kwargs.get("pl_module") or trainer.lightning_module
        if name == "on_validation_batch_start":
            observe("in validation after", {"batch": args[0]})
        if _is_own(module, pl.LightningModule, name):
            hooks.append(name)
        answer = of_module(trainer, name, *args, **kwargs)
        if (moment := _MOMENTS.get(name)) is not None:
            observe(moment, {**_consists_of(trainer, module), "hooks": ", ".join(hooks)})
            hooks.clear()
        return answer

    def callback_hooks(of_callbacks: Any, trainer: pl.Trainer, name: str, *args: Any, **kwargs: Any) -> None:
        callbacks = callbacks_of(trainer)
        if name == "on_train_epoch_start":
            observe(BEGINS, _consists_of(trainer, trainer.lightning_module))
            hooks.clear()  # the hooks after the last epoch's end ran in another process
        hooks.extend(f"{type(c).__name__}.{name}" for c in callbacks if _is_own(c, pl.Callback, name))
        of_callbacks(trainer, name, *args, **kwargs)

    with hooks_wrapped(partial(partial, module_hook), partial(partial, callback_hooks)):
        yield


def _is_own(owner: object, base: type, hook: str) -> bool:
    """Whether the user has written the hook, and it fires as in one ordinary fit."""
    written = getattr(type(owner), hook, None) is not getattr(base, hook, None)
    return written and not hook.startswith(_ANEW)


def _consists_of(trainer: pl.Trainer, module: pl.LightningModule) -> dict[str, Any]:
    callbacks = callbacks_of(trainer)
    return {
        "counter": {
            "current_epoch": trainer.current_epoch,
            "global_step": trainer.global_step,
            "batch_idx": trainer.fit_loop.epoch_loop.batch_idx,
        },
        "attribute": _attributes(module),
        "callback": {f"{type(c).__name__}[{at}]": own_attributes(c) for at, c in enumerate(callbacks)},
        "optimizer": {str(at): _optimizer(module, own) for at, own in enumerate(trainer.optimizers)},
        "scheduler": {
            str(at): config.scheduler.state_dict() for at, config in enumerate(trainer.lr_scheduler_configs)
        },
        "generator": rng.capture(trainer.strategy.root_device),
        "buffer": dict(module.named_buffers()),
        "weight": dict(module.named_parameters()),
    }


def _attributes(module: nn.Module) -> dict[str, Any]:
    trained = {f"{name}.requires_grad": p.requires_grad for name, p in module.named_parameters()}
    return trained | {
        f"{path}.{name}".lstrip("."): value
        for path, part in module.named_modules()
        for name, value in own_attributes(part).items()
    }


def _optimizer(module: nn.Module, optimizer: Any) -> dict[str, Any]:
    attributes = {
        name: value
        for name, value in vars(optimizer).items()
        if name not in ("state", "param_groups", "defaults") and not name.startswith("_")
    }
    return {**to_names(optimizer, module), **attributes}


def ordinary_fit(
    module: pl.LightningModule,
    settings: Mapping[str, Any],
    callbacks: Iterable[pl.Callback],
    jobs: Sequence[UnitJob],
    observe: Observe,
) -> OrdinaryFit:
    """As a script without us would do it: a stock trainer, a loader of all partitions in their order, and the
    user's own loaders for validation."""
    device = torch.device(jobs[0].device)
    rows, metrics = _Rows(), list[Mapping[str, float]]()
    rows.trainer = trainer = make_trainer(settings, callbacks, rows, jobs[0].epochs, device)

    def look(moment: str, values: Mapping[str, Any]) -> None:
        observe(moment, values)
        if (moment == BEGINS and trainer.current_epoch) or moment == ENDS:  # all of the epoch before is over
            metrics.append({name: float(value) for name, value in trainer.callback_metrics.items()})

    def epoch() -> Iterator[Any]:
        present = trainer.current_epoch
        return chain.from_iterable(
            job_batches.training_batches(job) for job in jobs if job.unit.epoch == present
        )

    ends = {job.unit.epoch: job for job in jobs if job.last}

    def validating() -> UnitJob:
        return ends[trainer.current_epoch]

    last = next(iter(ends.values()))
    validation: Any = UnitLoaders(last, NamedStateStrategy(device)).validation(module)
    if validation is not None and data_module(last) is not None:
        validation = _users_own_validation(last, validating)
    elif validation is not None:
        validation = validation_loader(
            last, last.validation, lambda: job_batches.natural_batches(validating(), last.validation)
        )
    training = EpochLoader(job_batches.epoch_batches(jobs[0]), epoch)
    with observed(look), attached(data_module(jobs[0]), training, validation) as loaders:
        trainer.fit(module, **loaders)
    return OrdinaryFit(rows.rows, metrics)


def _users_own_validation(job: UnitJob, validating: Callable[[], UnitJob]) -> Any:
    """The loaders of the data module's ``val_dataloader``, which make batches in this process. Their seeds
    are those of the ``validating`` unit."""
    with rng.borrowed():
        rng.seed_all(job.seed)
        returned = data_module(job).val_dataloader()
    numbers = count()

    def here(loader: Any) -> Any:
        if not isinstance(loader, DataLoader):
            return loader
        own = copy.copy(loader)
        own.num_workers, own.timeout = 0, 0
        own.__class__ = _Seeded
        number = next(numbers)
        own.seed = lambda: job_batches.validation_seed(validating(), number)
        own.in_workers = bool(job.loader.workers)
        return own

    if isinstance(returned, Mapping):
        return {name: here(loader) for name, loader in returned.items()}
    return [here(loader) for loader in returned] if isinstance(returned, list | tuple) else here(returned)


class _Seeded(DataLoader[Any]):
    """A user's loader that seeds the dataset's generators for each batch, and, if units make batches
    ``in_workers``, also the global ones."""

    seed: Callable[[], int]
    in_workers: bool

    def __iter__(self) -> Any:
        batches = super().__iter__()
        carried = ForeignGenerators({"dataset": self.dataset, "collate_fn": self.collate_fn})
        if self.in_workers:  # the sampler's generators advance
            rows_of_batches = list(self.batch_sampler or ())
            loader = DataLoader(self.dataset, batch_sampler=rows_of_batches, collate_fn=self.collate_fn)
            with rng.borrowed():
                batches = iter(loader)
        of_pass = self.seed()
        for number in count():
            seed = seed_of_batch((of_pass,), number)
            with rng.borrowed() if self.in_workers else nullcontext(), carried.seeded(seed):
                if self.in_workers:
                    rng.seed_all(seed)
                batch = next(batches, None)
            if batch is None:
                return
            yield batch


class _Rows(RowLogger):
    """Keeps the rows of all epochs."""

    trainer: pl.Trainer

    def __init__(self) -> None:
        super().__init__(0)

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        self._epoch = self.trainer.current_epoch
        super().log_metrics(metrics, step)
