"""A module that is measured outside of a fit: its logged values for each batch, and refusals."""

from __future__ import annotations

import copy
from typing import Any, Literal, TypeAlias

import lightning.pytorch as pl
from lightning.pytorch.utilities.model_helpers import is_overridden
from torch import Tensor
from torchmetrics import Metric

from cerebro_elastic.extending.errors import TaskError
from cerebro_elastic.extending.state import is_users, values_equal
from cerebro_lightning._lightning_internals import value_of_batch
from cerebro_lightning.state import own_attributes

Stage: TypeAlias = Literal["validate", "test"]
"""The step that measures the module."""
_VALUES = (bool, int, float, str, bytes, type(None), list, tuple, dict, set, Tensor)


def watches_validation(callback: pl.Callback) -> str | None:
    """The name of a callback that acts, or may act, by results of validation, if any: validation may log its
    monitored value under any name."""
    hooks = [name for name in dir(pl.Callback) if name.startswith("on_validation")]
    acts = is_users(type(callback)) and any(is_overridden(name, callback) for name in hooks)
    monitor = getattr(callback, "monitor", None)
    monitors = monitor is not None and not str(monitor).startswith("train")
    return type(callback).__name__ if acts or monitors else None


class Unchanged(pl.Callback):
    """Sees that a validation outside of the fit leaves nothing on the module that training might use."""

    def __init__(self) -> None:
        self._before: dict[str, Any] = {}

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        del trainer
        self._before = copy.deepcopy(_values_of(pl_module))  # with the changes by the module's own `setup`

    def teardown(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        del trainer, stage
        after = _values_of(pl_module)
        changed = [name for name, value in after.items() if not values_equal(self._before.get(name), value)]
        if changed:
            raise TaskError(
                f"{type(pl_module).__name__} changes its {', '.join(changed)} in validation, and outside of "
                "the fit that is lost: use `validation: epoch` (with folds, `when: epoch`), or reset it at "
                "the end of the validation"
            )


def _values_of(module: pl.LightningModule) -> dict[str, Any]:
    own = own_attributes(module).items()
    return {name: value for name, value in own if name != "training" and isinstance(value, _VALUES)}


class RowNotes(pl.Callback):
    """Records the module's logged values in each batch. Values logged at other times are not values of a
    row."""

    def __init__(self) -> None:
        self.rows: dict[str, list[float]] = {}
        """The values by name, in the order of the batches."""
        self._in_batch = False

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        del trainer, stage
        log = pl_module.log

        def noting(name: str, value: Any, *args: Any, **kwargs: Any) -> None:
            log(name, value, *args, **kwargs)
            found = value_of_batch(value) if isinstance(value, Metric) else value
            if self._in_batch and found is not None:
                self.rows.setdefault(name, []).append(float(found))

        pl_module.log = noting  # type: ignore[method-assign]

    def on_test_batch_start(self, *_: Any) -> None:
        self._in_batch = True

    def on_test_batch_end(self, *_: Any) -> None:
        self._in_batch = False

    def on_validation_batch_start(self, *_: Any) -> None:
        self._in_batch = True

    def on_validation_batch_end(self, *_: Any) -> None:
        self._in_batch = False
