"""Modules whose training depends on their state, kept in all the ways that Python offers."""
# ruff: noqa: ARG001, ARG002 - hooks have the parameters that Lightning and torch give them

from __future__ import annotations

import argparse
import collections
import functools
import logging
import multiprocessing as mp
import queue
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import numpy as np
import torch
from lightning_zoo import Net
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset


class Keeping(Net):
    """Its loss is weighed by the value of ``remember``."""

    def __init__(self, lr: float = 0.05) -> None:
        super().__init__(lr=lr, width=5)
        self.keep()

    def keep(self) -> None:
        """Make the state that is kept."""

    def remember(self, batch: Any) -> float:
        """Change the kept state, and return a value of it."""
        raise NotImplementedError

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        loss = super().training_step(batch, batch_idx)
        weight = float(self.remember(batch))
        self.log("remembered", weight)
        return loss * (1 + weight % 7 / 10)


class WritesThroughViews(Keeping):
    """Training uses the values that it writes to a view."""

    def keep(self) -> None:
        self.row = self.net[0].weight.detach()[1]
        self.buffer = torch.zeros(8)
        self.numbers = np.zeros(6)
        self.same = torch.from_numpy(self.numbers)

    def remember(self, batch: Any) -> float:
        if not hasattr(self, "upper"):
            self.upper = self.buffer[4:]
            self.tail = self.numbers[2:4]
            self.bias = self.net[2].bias.detach()
        self.upper += 1
        self.tail += 1
        self.bias *= 0.9
        return float(self.buffer.sum() + self.same.sum() + self.row.sum())


class Decay:
    """What a scheduler's function may be: an object that remembers."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, step: int) -> float:
        self.calls += 1
        return 1 / self.calls


class SchedulerObject(Net):
    def make(self) -> Any:
        return Decay()

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=self.lr)
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, self.make())
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}


class SchedulerClosure(SchedulerObject):
    def make(self) -> Any:
        calls = 0

        def decay(step: int) -> float:
            nonlocal calls
            calls += 1
            return 1 / calls

        return decay


class ClassAttribute(Keeping):
    steps: ClassVar[int] = 0
    table: ClassVar[dict[str, int]] = {}

    def remember(self, batch: Any) -> float:
        type(self).steps += 1
        self.table["n"] = self.table.get("n", 0) + 2
        return self.steps + self.table["n"]


STEPS = 0
TABLE: dict[str, Any] = {"n": 0, "total": torch.zeros(2)}
ARRAY = np.zeros(3)


class Globals(Keeping):
    def remember(self, batch: Any) -> float:
        global STEPS
        STEPS += 1
        TABLE["n"] += 1
        TABLE["total"] += batch[0].mean()
        ARRAY[1] += 2
        return STEPS + TABLE["n"] + float(TABLE["total"].sum()) + ARRAY.sum()


class References(Keeping):
    """To layers, parameters and what belongs to the trainer."""

    def keep(self) -> None:
        self.layers = [self.net[0], self.net[2]]
        self.averages = {parameter: parameter.detach().clone() for parameter in self.parameters()}

    def remember(self, batch: Any) -> float:
        self.current = self.layers[self.global_step % 2]
        self.layers.reverse()
        self.optimizer = self.optimizers()
        self.steps = getattr(self, "steps", 0) + (self.current is self.layers[1])
        for parameter, average in self.averages.items():
            average.lerp_(parameter.detach(), 0.1)
        return (
            self.steps + float(sum(map(torch.sum, self.averages.values()))) + float(self.current.bias.sum())
        )


class OnTrainer(Keeping):
    def remember(self, batch: Any) -> float:
        trainer: Any = self.trainer
        trainer.noted = getattr(trainer, "noted", 0) + 1
        return trainer.noted


class NewFunction(Keeping):
    """Left out at a hop, and made again."""

    def remember(self, batch: Any) -> float:
        if not hasattr(self, "function"):
            self.function = lambda: 3.0
        return self.function()


class SetsDtype(Keeping):
    def remember(self, batch: Any) -> float:
        torch.set_default_dtype(torch.float64)
        return 0.0


class Table(Keeping):
    """An object of a library that changes in place."""

    def keep(self) -> None:
        import pandas as pd

        self.table = pd.DataFrame({"n": [0.0, 1.0]})

    def remember(self, batch: Any) -> float:
        self.table.loc[0, "n"] += 1
        return float(self.table["n"].sum())


class ForeignObject(Keeping):
    """An object of C that changes inside."""

    def keep(self) -> None:
        self.shared = mp.Value("d", 0.0)

    def remember(self, batch: Any) -> float:
        self.shared.value += 1
        return float(self.shared.value)


class Forgetful:
    """Its state dict leaves most of it out."""

    def __init__(self) -> None:
        self.steps, self.more = 0, 0

    def state_dict(self) -> dict[str, Any]:
        return {"steps": self.steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.steps = state["steps"]


class LeavesOut(Keeping):
    def keep(self) -> None:
        self.kept = Forgetful()

    def remember(self, batch: Any) -> float:
        self.kept.steps += 1
        self.kept.more += 2
        return self.kept.steps + self.kept.more


class Harmless(Keeping):
    """What many modules keep, and what does not change training."""

    def keep(self) -> None:
        self.lock, self.condition, self.shared_lock = threading.Lock(), threading.Condition(), mp.Lock()
        self.pool, self.says = ThreadPoolExecutor(1), logging.getLogger("zoo")
        self.loader = DataLoader(TensorDataset(torch.arange(10.0)), batch_size=5, shuffle=True)
        self.names, self.days = np.array(["a", "b"]), np.array(["2020-01-01"], "M8[D]")
        self.queue = queue.Queue(maxsize=3)
        self.parser, self.cached = argparse.ArgumentParser(), functools.lru_cache(len)
        self.remembered = collections.defaultdict(lambda: 3.0)

    def remember(self, batch: Any) -> float:
        with self.lock, self.condition, self.shared_lock:
            self.remembered[len(self.remembered)] += 1
            drawn = float(next(iter(self.loader))[0].sum())
            return drawn + self.cached("ab") + sum(self.remembered.values())


class DropsWeights(Keeping):
    """Its checkpoint has one layer, in half the precision."""

    strict_loading = False

    def keep(self) -> None:
        self.norm = nn.BatchNorm1d(6, affine=False)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        state = checkpoint["state_dict"]
        checkpoint["state_dict"] = {name: v.half() for name, v in state.items() if name.startswith("net.2")}

    def remember(self, batch: Any) -> float:
        return float(self.norm(batch[0]).mean() + self.norm.running_mean.sum())


class LoaderIterator(Keeping):
    def keep(self) -> None:
        self.batches = iter(DataLoader(TensorDataset(torch.arange(100.0))))

    def remember(self, batch: Any) -> float:
        return float(next(self.batches)[0])


class WalksThrough(Keeping):
    def on_train_epoch_end(self) -> None:
        self.total = float(sum(x.sum() for x, _ in self.trainer.train_dataloader))

    def remember(self, batch: Any) -> float:
        return 1.0
