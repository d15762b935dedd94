"""LightningModules and callbacks as users write them, one trait each."""
# ruff: noqa: ARG002 - hooks have the parameters that Lightning gives them

from __future__ import annotations

import random
import signal
from collections import defaultdict, deque, namedtuple
from enum import Enum
from typing import Any, ClassVar
from weakref import WeakSet

import lightning as L
import numpy as np
import torch
import torchmetrics
from lightning.pytorch import callbacks as stock
from lightning.pytorch.callbacks import Callback, ModelSummary
from lightning.pytorch.utilities import rank_zero_only
from torch import Tensor, nn
from torch.nn import functional as F


class Net(L.LightningModule):
    """SGD with momentum, logging in all the common ways."""

    alive: ClassVar[WeakSet[Net]] = WeakSet()

    def __init__(self, lr: float = 0.1, width: int = 8) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.alive.add(self)
        self.lr = lr
        self.net = self.body(width)

    def body(self, width: int) -> nn.Module:
        return nn.Sequential(nn.Linear(6, width), nn.ReLU(), nn.Linear(width, 3))

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x, y = batch
        loss = F.cross_entropy(self.net(x), y)
        self.log("loss", loss, on_step=True, on_epoch=True, prog_bar=True)
        self.log("size", float(len(y)), on_step=False, on_epoch=True, reduce_fx="sum")
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        self.log("val_loss", F.cross_entropy(self.net(x), y), prog_bar=True)

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=self.lr, momentum=0.9)


class OneCycle(Net):
    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.lr)
        steps = int(self.trainer.estimated_stepping_batches)
        scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}


class StepLR(Net):
    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.lr)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)]


class Plateau(Net):
    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=self.lr)
        scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.1, patience=0)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "monitor": "val_loss"}}


class Dropout(Net):
    """Draws from all three generators, in the model and in hooks."""

    def body(self, width: int) -> nn.Module:
        return nn.Sequential(nn.Linear(6, width), nn.Dropout(0.3), nn.ReLU(), nn.Linear(width, 3))

    def on_train_epoch_start(self) -> None:
        self.log("drawn", random.random() + float(np.random.rand()))

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        noise = random.random() + float(np.random.rand())
        return super().training_step(batch, batch_idx) * (1 + 0.1 * noise)


class BatchNorm(Net):
    def body(self, width: int) -> nn.Module:
        return nn.Sequential(nn.Linear(6, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, 3))


class Gan(L.LightningModule):
    """Manual optimization with two optimizers, one of which accumulates, and schedulers stepped by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.generator = nn.Linear(6, 6)
        self.critic = nn.Linear(6, 3)

    def training_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        first, second = self.optimizers()
        loss = F.cross_entropy(self.critic(self.generator(x)), y)
        first.zero_grad()
        self.manual_backward(loss, retain_graph=True)
        first.step()
        other = F.cross_entropy(self.critic(x), y) / 2
        self.toggle_optimizer(second)
        self.manual_backward(other)
        self.untoggle_optimizer(second)
        if (batch_idx + 1) % 2 == 0:
            second.step()
            second.zero_grad()
            self.lr_schedulers().step()
        self.log_dict({"loss": loss, "other": other}, on_step=True, on_epoch=True)
        self.logger.log_metrics({"by_hand": float(loss)}, step=self.global_step)

    def configure_optimizers(self) -> Any:
        first = torch.optim.Adam(self.generator.parameters(), lr=0.01)
        second = torch.optim.SGD(self.critic.parameters(), lr=0.1, momentum=0.9)
        return [first, second], [torch.optim.lr_scheduler.ExponentialLR(second, 0.9)]


class Metrics(Net):
    """torchmetrics over an epoch, computed by Lightning and by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.accuracy = torchmetrics.Accuracy("multiclass", num_classes=3)
        self.mean = torchmetrics.MeanMetric()
        self.several = torchmetrics.MetricCollection(
            [
                torchmetrics.Precision("multiclass", num_classes=3, average="macro"),
                torchmetrics.Recall("multiclass", num_classes=3, average="macro"),
            ]
        )
        self.curve = torchmetrics.AUROC("multiclass", num_classes=3)
        self.twice = self.mean + torchmetrics.MaxMetric()
        self.again = torchmetrics.MetricCollection({"mean": self.mean})

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        loss = super().training_step(batch, batch_idx)
        x, y = batch
        logits = self.net(x)
        self.accuracy(logits, y)
        self.log("accuracy", self.accuracy, on_step=True, on_epoch=True)
        self.several.update(logits, y)
        self.curve.update(logits.softmax(1), y)
        self.mean.update(loss.detach())
        return loss

    def on_train_epoch_end(self) -> None:
        self.log_dict(self.several.compute())
        self.log_dict({"mean": self.mean.compute(), "auroc": self.curve.compute()})
        for metric in (self.mean, self.several, self.curve):
            metric.reset()


class Phase(Enum):
    WARM_UP = 1
    TRAIN = 2


class Meter:
    def __init__(self) -> None:
        self.total, self.count = 0.0, 0

    def add(self, value: float) -> None:
        self.total += value
        self.count += 1


class Attributes(Net):
    """State in plain attributes, of the kinds that users have."""

    def __init__(self) -> None:
        super().__init__()
        self.outputs: list[Tensor] = []
        self.seen: dict[int, int] = {}
        self.recent: deque[float] = deque(maxlen=3)
        self.by_class: defaultdict[int, list[float]] = defaultdict(list)
        self.phase = Phase.WARM_UP
        self.meter = Meter()
        self.generator = torch.Generator().manual_seed(1)
        self.numpy_generator = np.random.default_rng(1)
        self.register_buffer("memory", torch.zeros(3), persistent=False)
        self.activation = F.relu
        self.best: Tensor | None = None
        self.scale = 1.0
        self.rates = np.zeros(2)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        loss = super().training_step(batch, batch_idx)
        loss = loss * self.scale + 0.01 * torch.rand((), generator=self.generator)
        loss = loss * (1 + 0.1 * self.numpy_generator.random())
        value = float(loss)
        self.outputs.append(loss.detach())
        self.seen[batch_idx] = self.seen.get(batch_idx, 0) + 1
        self.recent.append(value)
        self.by_class[int(batch[1][0])].append(value)
        self.meter.add(value)
        self.memory += value
        self.rates[batch_idx % 2] += value
        self.phase = Phase.TRAIN
        self.best = loss.detach() if self.best is None else torch.minimum(self.best, loss.detach())
        self.log("meter", self.meter.total / self.meter.count + sum(self.recent) + float(self.memory[0]))
        self.net[1].extra = value
        return loss

    def on_train_epoch_end(self) -> None:
        self.log("outputs", torch.stack(self.outputs).sum() + float(self.rates.sum()))
        self.outputs.clear()
        self.scale *= 0.9


class Unfreezing(Net):
    """Trains the head first; the body joins the optimizer in the second epoch."""

    def __init__(self) -> None:
        super().__init__()
        self.net[0].requires_grad_(False)

    def on_train_epoch_start(self) -> None:
        if self.current_epoch == 1:
            self.net[0].requires_grad_(True)
            self.trainer.optimizers[0].add_param_group({"params": self.net[0].parameters(), "lr": 0.01})

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.net[2].parameters(), lr=self.lr, momentum=0.9)


class Configured(L.LightningModule):
    """Made in ``configure_model``: blocks that are called through ``self(x)``, a parameter of the module
    itself, a tied weight, a frozen layer, and two groups of parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))

    def configure_model(self) -> None:
        self.inward = nn.Linear(6, 8)
        self.blocks = nn.ModuleList(nn.Linear(8, 8) for _ in range(2))
        self.blocks[1].weight = self.blocks[0].weight
        self.frozen = nn.Linear(8, 8).requires_grad_(False)
        self.outward = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.inward(x)
        for block in self.blocks:
            hidden = torch.tanh(block(hidden))
        return self.outward(self.frozen(hidden)) * self.scale

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        loss = F.cross_entropy(self(batch[0]), batch[1])
        self.log("loss", loss, on_epoch=True)
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", F.cross_entropy(self(batch[0]), batch[1]))

    def configure_optimizers(self) -> Any:
        weights = [p for name, p in self.named_parameters() if "bias" not in name and p.requires_grad]
        biases = [p for name, p in self.named_parameters() if "bias" in name and p.requires_grad]
        return torch.optim.AdamW([{"params": weights}, {"params": biases, "weight_decay": 0.0}], lr=0.05)


class Pearson(Net):
    """A metric whose states of several ranks do not add up."""

    def __init__(self) -> None:
        super().__init__()
        self.pearson = torchmetrics.PearsonCorrCoef()


class OwnBackward(Net):
    def backward(self, loss: Tensor, *args: Any, **kwargs: Any) -> None:
        (2 * loss).backward()


class Untrained(Net):
    def configure_optimizers(self) -> None:
        return None


class Logging(Net):
    """Logs in every hook that allows it, with all reductions."""

    def on_train_start(self) -> None:
        self.log("started", 1.0)
        self.logger.log_metrics({"by_hand": 1.0}, step=0)

    def on_train_epoch_start(self) -> None:
        self.log("epoch_started", float(self.current_epoch))

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        self.log("before", float(batch_idx), on_step=True, on_epoch=True, reduce_fx="max")

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        loss = super().training_step(batch, batch_idx)
        if batch_idx == 0:
            self.log("once", loss, on_step=False, on_epoch=True)
        if batch_idx % 4 == 1:
            self.log("sometimes", loss, on_step=True, on_epoch=False)
        self.log("lowest", loss, on_step=False, on_epoch=True, reduce_fx=min)
        return loss

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.log("after", outputs["loss"] * batch_idx, on_step=True, on_epoch=True, batch_size=1)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        super().validation_step(batch, batch_idx)
        self.log("val_step", float(batch_idx), on_step=True, on_epoch=True)

    def on_validation_epoch_end(self) -> None:
        self.log("val_end", float(self.trainer.callback_metrics.get("val_loss", 0.0)))

    def on_train_epoch_end(self) -> None:
        self.log("ended", float(self.global_step))


class HookOrder(Callback):
    """Every hook, in order, with where it fired: a callback's state in a plain attribute. A call is one
    string, as the state of every unit carries them all: of tuples it would be the largest part by far."""

    def __init__(self) -> None:
        self.calls: list[str] = []


def _recorder(name: str) -> Any:
    def hook(self: HookOrder, trainer: L.Trainer, *_: Any, **__: Any) -> None:
        self.calls.append(f"{name} in epoch {trainer.current_epoch} at step {trainer.global_step}")

    return hook


_HOOKS = """setup on_fit_start on_train_start on_train_epoch_start on_train_batch_start
on_before_zero_grad on_before_backward on_after_backward on_before_optimizer_step on_train_batch_end
on_validation_start on_validation_epoch_start on_validation_batch_start on_validation_batch_end
on_validation_epoch_end on_validation_end on_train_epoch_end on_train_end"""

for _name in _HOOKS.split():
    setattr(HookOrder, _name, _recorder(_name))


class Stateful(Callback):
    """State by Lightning's protocol only: it is hidden from plain attributes in a closure."""

    def __init__(self, start: int = 0) -> None:
        count = start

        def add(amount: int) -> int:
            nonlocal count
            count += amount
            return count

        self.add = add

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        pl_module.log("counted", float(self.add(batch_idx)))

    def state_dict(self) -> dict[str, Any]:
        return {"count": self.add(0)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.add(state["count"] - self.add(0))


class Ema(Callback):
    """A hand-written moving average: a module that nobody else carries."""

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        self.average = nn.Linear(6, 8).requires_grad_(False)
        self.average.load_state_dict(pl_module.net[0].state_dict())

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any) -> None:
        for mine, live in zip(self.average.parameters(), pl_module.net[0].parameters(), strict=True):
            mine.lerp_(live.detach(), 0.1)
        pl_module.log("average", self.average.weight.sum())


class Average(getattr(stock, "WeightAveraging", Callback)):  # Lightning 2.5 has none
    """As Lightning's documentation has it."""

    def should_update(self, step_idx: int | None = None, epoch_idx: int | None = None) -> bool:
        return step_idx is not None and step_idx >= 4


class OnRankZero(Callback):
    """Does its work on one rank only, as users' callbacks do."""

    @rank_zero_only
    def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any) -> None:
        pl_module.log("from_rank_zero", 1.0)


class StopMidEpoch(Callback):
    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        trainer.should_stop = trainer.should_stop or batch_idx == 1


class Skips(Net):
    def on_train_batch_start(self, batch: Any, batch_idx: int) -> int | None:
        return -1 if batch_idx == 1 else None


class Hides(Net):
    """Keeps something that cannot be carried."""

    def __init__(self) -> None:
        super().__init__()
        self.reader = (row for row in range(3))


class Unregistered(Net):
    """Optimizes a parameter that is not the module's."""

    def configure_optimizers(self) -> Any:
        self.hidden = [nn.Linear(3, 3)]
        return torch.optim.SGD([*self.parameters(), *self.hidden[0].parameters()], lr=0.1)


class Breaks(Net):
    def __init__(self, error: str = "ValueError") -> None:
        super().__init__()
        self.error = error

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        raise {"ValueError": ValueError, "KeyboardInterrupt": KeyboardInterrupt}[self.error]("stop")


class Terminated(Net):
    """Its node is asked to leave in the second batch."""

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        if batch_idx == 1:
            signal.raise_signal(signal.SIGTERM)
        return super().training_step(batch, batch_idx)


class Diverges(Net):
    """Its loss, which it does not log, is NaN in every batch."""

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return F.cross_entropy(self.net(batch[0]), batch[1]) * float("nan")


class Sized(Net):
    """Wants to know the size of batches."""

    def __init__(self, batch_size: int, lr: float = 0.1) -> None:
        super().__init__(lr)
        self.batch_size = batch_size


class BringsCallbacks(Net):
    def configure_callbacks(self) -> Any:
        return [ModelSummary(), Stateful()]

    @classmethod
    def wide(cls, lr: float = 0.1) -> BringsCallbacks:
        return cls(lr, width=12)


class Scaler:
    """An object of a class that no file can hold."""

    __slots__ = ("by",)

    def __init__(self) -> None:
        self.by = 2.0


class SavesObjects(Net):
    """As those of pytorch-forecasting and darts: objects go into the checkpoint, and back. A class of named
    tuples is made at the first batch."""

    def __init__(self, lr: float = 0.1) -> None:
        super().__init__(lr)
        self.loss, self.scaler, self.names = nn.CrossEntropyLoss(), Scaler(), ["loss", "scaler"]

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        if not hasattr(self, "output_class"):
            self.output_class = namedtuple("output", ["rows"])
        self.log("rows", float(self.output_class(len(batch[1])).rows))
        return super().training_step(batch, batch_idx)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["specials"] = {"loss": self.loss, "scaler": self.scaler, "names": self.names}

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        for name, value in checkpoint["specials"].items():
            setattr(self, name, value)


def made(lr: float = 0.1):  # type: ignore[no-untyped-def]
    return Net(lr, width=3)


class NotLightning(nn.Module):
    pass


class NoStep(L.LightningModule):
    def configure_optimizers(self) -> None:
        return None


def several_callbacks() -> list[Callback]:
    return [Stateful(), HookOrder()]
