"""A user's ``LightningDataModule`` in a unit: attached to the trainer for its hooks, with loaders of ours.

It is set up once in a process, so a unit gets a shallow copy that is not set up again.
"""

from __future__ import annotations

import copy
import inspect
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.utilities.model_helpers import is_overridden

from cerebro_elastic.extending.errors import DataError, TaskError
from cerebro_elastic.extending.state import fingerprint, is_generator, values_equal
from cerebro_elastic.extending.tasks import UnitJob


def data_module(job: UnitJob) -> Any:
    """The data module whose rows the job trains on; ``None`` if they come from elsewhere."""
    return job.loader.dataset.make().module if job.loader.dataset is not None else None


_PLAIN = (bool, int, float, str, bytes, type(None))
_MOST_ITEMS = 5000
"""Containers with more items are taken for rows, and not searched."""


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
    inside = {name: _inside(value) for name, value in before.items()}
    yield {"datamodule": present}
    own = {
        name: value for name, value in vars(present).items() if not name.startswith("_") and name != "trainer"
    }
    changed = [
        name
        for name, value in own.items()
        if not values_equal(before.get(name, _nothing), value) or _inside(value) != inside.get(name)
    ]
    if changed and not is_overridden("state_dict", module):
        raise TaskError(
            f"{type(module).__name__} changed its {', '.join(changed)} while it trained, and the next unit "
            "may run on another node: carry it in its state_dict and load_state_dict, or do not change it"
        )


def _nothing(stage: str | None = None) -> None:
    """Replaces a hook that has already run, when the data module was set up."""


def _inside(value: Any) -> Any:
    """The contents of a container, or the state of a random generator. Other objects, such as datasets, are
    not searched: what they cache changes no row."""
    if is_generator(value):
        return fingerprint(value, {})
    return _copied(value, iter(range(_MOST_ITEMS)))


def _copied(value: Any, left: Iterator[int]) -> Any:
    if isinstance(value, Mapping):
        return [
            (_copied(key, left), _copied(item, left))
            for (key, item), _ in zip(value.items(), left, strict=False)
        ]
    if isinstance(value, list | tuple | deque | set | frozenset):
        return [_copied(item, left) for item, _ in zip(value, left, strict=False)]
    return value if isinstance(value, _PLAIN) else id(value)


def has_loader(module: type[pl.LightningModule]) -> bool:
    """Whether a LightningModule brings training data itself."""
    return module.train_dataloader is not pl.LightningModule.train_dataloader


def arguments_of(module: pl.LightningDataModule) -> dict[str, Any]:
    """The arguments that a data module was made with, as it has saved them by ``save_hyperparameters``.

    Raises ``DataError`` if its constructor takes arguments that it has not saved.
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
