"""What a module logs for each batch of a test set."""

from __future__ import annotations

from typing import Any

import lightning.pytorch as pl
from torchmetrics import Metric

from cerebro_lightning._lightning_internals import value_of_batch


class RowNotes(pl.Callback):
    """Notes what the module logs in each batch. What it logs at other times is no value of a row."""

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
