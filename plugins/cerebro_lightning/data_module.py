"""A user's ``LightningDataModule`` in a unit: attached to the trainer for its hooks, with loaders of ours.

It is set up once in a process, so a unit gets a shallow copy that is not set up again.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import lightning.pytorch as pl
import torch
from lightning.pytorch.utilities.model_helpers import is_overridden
from torch.utils.data import DataLoader

from cerebro_elastic.extending.data import DatasetFactory, SeededTask, in_workers, worker_settings
from cerebro_elastic.extending.errors import DataError, TaskError
from cerebro_elastic.extending.tasks import UnitJob, rng

_loaders: WeakKeyDictionary[Any, Sequence[Any]] = WeakKeyDictionary()
"""The validation loaders of each data module of this process."""


def data_module(job: UnitJob) -> Any:
    """The data module whose rows the job trains on; ``None`` if they come from elsewhere."""
    return job.loader.dataset.make().module if job.loader.dataset is not None else None


class ValidationLoader:
    """One of a data module's validation loaders, as it is. Each batch is a sign of progress."""

    def __init__(self, job: UnitJob, number: int, loader: Any) -> None:
        self.dataset = getattr(loader, "dataset", None)
        self.batch_size = getattr(loader, "batch_size", None)
        self._job = job
        self._number = number
        self._loader = loader

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[Any]:
        loader, workers = self._loader, self._job.loader.workers
        in_workers = workers and isinstance(loader, DataLoader) and loader.batch_sampler is not None
        for batch in self._in_workers() if in_workers else loader:
            self._job.beat()
            yield batch

    def _in_workers(self) -> Iterator[Any]:
        """Its batches, from the processes that also make those for training."""
        factory, settings = self._job.loader.dataset, worker_settings(self._job.loader)
        assert factory is not None
        torch.empty((), dtype=torch.int64).random_()  # as a DataLoader does for each of its iterators
        make = partial(_validation_batch, factory, self._job.seed, self._number)
        seed = (self._job.seed, self._number)
        tasks = [
            SeededTask(partial(make, rows), (*seed, batch))
            for batch, rows in enumerate(self._loader.batch_sampler)
        ]
        return in_workers(tasks, len(tasks), settings) if tasks else iter(())


def _validation_batch(factory: DatasetFactory, seed: int, number: int, rows: Sequence[Any]) -> Any:
    """In a worker process, which has a data module of its own."""
    loader = _validation_loaders(factory.make().module, seed)[number]
    return loader.collate_fn([loader.dataset[row] for row in rows])


def validation_loaders(module: Any, job: UnitJob) -> list[ValidationLoader] | None:
    """The data module's validation loaders for a unit; ``None`` if it has none."""
    loaders = _validation_loaders(module, job.seed)
    return [ValidationLoader(job, number, loader) for number, loader in enumerate(loaders)] or None


def _validation_loaders(module: Any, seed: int) -> Sequence[Any]:
    """What ``val_dataloader`` returns, which is asked once in a process."""
    if module not in _loaders:
        with rng.borrowed():
            rng.seed_all(seed)
            returned = module.val_dataloader() if is_overridden("val_dataloader", module) else []
        loaders = list(returned) if isinstance(returned, list | tuple) else [returned]
        for loader in loaders:
            if isinstance(
                loader, DataLoader
            ):  # its own processes would be forks of this one, with its threads
                loader.num_workers, loader.timeout = 0, 0
        _loaders[module] = loaders
    return _loaders[module]


@contextmanager
def attached(module: Any, training: Any, validation: Any) -> Iterator[dict[str, Any]]:
    """The arguments of ``Trainer.fit`` for the loaders of a unit, and for the data ``module`` behind them.

    Raises ``TaskError`` if the unit has changed the data module, where the next unit would not see it.
    """
    if module is None or isinstance(module, pl.LightningModule):
        yield {"train_dataloaders": training, "val_dataloaders": validation}
        return
    present = copy.copy(module)
    vars(present).update(
        dict.fromkeys(("prepare_data", "setup", "teardown"), _nothing), train_dataloader=lambda: training
    )
    if validation is not None:
        vars(present)["val_dataloader"] = lambda: validation
    before = dict(vars(present))
    yield {"datamodule": present}
    before["trainer"] = present.trainer
    own = {name: value for name, value in vars(present).items() if not name.startswith("_")}
    changed = [name for name, value in own.items() if not _same(before.get(name, _nothing), value)]
    if changed and not is_overridden("state_dict", module):
        raise TaskError(
            f"{type(module).__name__} changed its {', '.join(changed)} while it trained, and the next unit "
            "may run on another node: carry it in its state_dict and load_state_dict, or do not change it"
        )


def _nothing(stage: str | None = None) -> None:
    """In place of a hook that has run when the data module was set up."""


def _same(before: Any, after: Any) -> bool:
    plain = (bool, int, float, str, bytes, type(None))
    return before is after or (isinstance(before, plain) and type(before) is type(after) and before == after)


def has_loader(module: type[pl.LightningModule]) -> bool:
    """Whether a LightningModule brings training data itself."""
    return module.train_dataloader is not pl.LightningModule.train_dataloader


def arguments_of(module: pl.LightningDataModule) -> dict[str, Any]:
    """The arguments that a data module was made with, as it has saved them by ``save_hyperparameters``.

    Raises ``DataError`` if it takes some and has not.
    """
    taken = inspect.signature(type(module)).parameters
    saved = {name: value for name, value in module.hparams.items() if name in taken}
    if taken and not module.hparams:
        name = type(module).__name__
        raise DataError(
            f"with which arguments was this {name} made? Every node makes its own: call "
            f"save_hyperparameters() in {name}.__init__, or give the class, {name}, if the defaults will do"
        )
    return saved
