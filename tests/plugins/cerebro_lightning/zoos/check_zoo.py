"""Modules with state that does not hop, for ``cerebro check``."""

from __future__ import annotations

import functools
import os
import signal
import time
from typing import Any

from lightning_zoo import Net
from torch import Tensor


class Planted(Net):
    """Its loss depends on something that is no part of the config's state."""

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return super().training_step(batch, batch_idx) * (1 + 0.01 * float(self.something()))

    def something(self) -> float:
        raise NotImplementedError


class InALibrary(Planted):
    def something(self) -> float:
        library: Any = signal
        library.seen = getattr(library, "seen", 0) + 1
        return library.seen


@functools.cache
def first(_: str) -> list[int]:
    """The entries of a cache are no object's attribute."""
    return [0]


class OfTheTrainer(Planted):
    def something(self) -> float:
        return len(type(self.trainer.strategy).__name__)


class OfTheProcess(Planted):
    def something(self) -> float:
        return os.getpid() % 1000


class LogsAClock(Net):
    def on_train_epoch_end(self) -> None:
        self.ended = time.monotonic()
        self.log("seconds", time.monotonic() % 10)


class RaisesInUnits(Net):
    def __init__(self) -> None:
        super().__init__()
        self.made_late: Any = len

    def on_train_batch_end(self, *_: Any) -> None:
        if type(self.trainer.strategy).__name__ == "NamedStateStrategy":
            self.made_late = print


class Raises(Net):
    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return super().training_step((batch[0][:, :3], batch[1]), batch_idx)


class Dies(Net):
    def on_train_batch_end(self, *_: Any) -> None:
        os.kill(os.getpid(), signal.SIGKILL)
