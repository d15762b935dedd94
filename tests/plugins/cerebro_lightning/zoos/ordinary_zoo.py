"""What works in an ordinary fit: modules whose parts, tensors, gradients and optimizers are no fixed set of
dense tensors, and what a module sees of its trainer. One trait each."""
# ruff: noqa: ARG002 - hooks have the parameters that Lightning gives them

from __future__ import annotations

from typing import Any

import lightning as L
import torch
import torchmetrics
from lightning.pytorch.callbacks import (
    BackboneFinetuning,
    Callback,
    EarlyStopping,
    LearningRateMonitor,
    ModelPruning,
    StochasticWeightAveraging,
)
from lightning_zoo import Net
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations, prune
from torchmetrics import wrappers


class Lazy(Net):
    """Made whole by the first batch; one part by the second epoch's first."""

    def body(self, width: int) -> nn.Module:
        self.late = nn.LazyLinear(3)
        return nn.Sequential(nn.LazyLinear(width), nn.LazyBatchNorm1d(), nn.ReLU(), nn.LazyLinear(3))

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        loss = super().training_step(batch, batch_idx)
        return loss + self.late(batch[0]).square().mean() if self.current_epoch else loss


class Buffers(Net):
    """Buffers that are none at first, grow, shrink, change their type, come and go."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", None)
        self.register_buffer("bank", torch.zeros(0, 3))
        self.register_buffer("hidden", torch.zeros(0), persistent=False)
        self.register_buffer("window", torch.zeros(8))
        self.register_buffer("mask", torch.zeros(3))
        self.register_buffer("gone", torch.ones(2))
        self.register_buffer("nothing", None, persistent=False)
        self.register_buffer("adjacency", torch.eye(3).to_sparse())

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        loss = super().training_step(batch, batch_idx)
        logits = self.net(batch[0]).detach()
        self.mean = logits.mean(0) if self.mean is None else self.mean * 0.9 + logits.mean(0)
        self.bank = torch.cat([self.bank, logits])[-20:]
        self.hidden = torch.cat([self.hidden, logits[0]])
        if len(self.window) > 2:
            self.window = self.window[:-1] + 1
        self.mask = self.mask > 0 if self.mask.dtype == torch.float32 else ~self.mask
        self.adjacency = (self.adjacency + torch.eye(3).to_sparse()).coalesce()
        if self.gone is not None and batch_idx == 2:
            self.gone = None
        if self.current_epoch == 1 and batch_idx == 0:
            self.register_buffer("fresh", torch.full((2,), 0.5))
            del self.nothing
        fresh = self.fresh.sum() if hasattr(self, "fresh") else 0.0
        extra = self.bank.mean() + self.hidden.sum() + self.window.sum() + self.mask.sum() + fresh
        return loss * (1 + 0.001 * (extra + torch.sparse.mm(self.adjacency, torch.ones(3, 1)).sum()))


class Swapped(Net):
    """A layer of another class takes a place."""

    def on_train_epoch_start(self) -> None:
        if self.current_epoch == 1:
            self.net[1] = nn.PReLU()
            self.trainer.optimizers[0].add_param_group({"params": self.net[1].parameters()})


class Sparse(L.LightningModule):
    """Sparse gradients: accumulated by hand over the borders of units, and never zeroed in one table."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.table = nn.Embedding(7, 3, sparse=True)
        self.other = nn.EmbeddingBag(7, 3, sparse=True)
        self.head = nn.Linear(6, 3)

    def training_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        sparse, dense = self.optimizers()
        logits = self.head(x) + self.table(y) + self.other((x.abs() * 3).long().clamp(max=6))
        loss = F.cross_entropy(logits, y)
        self.manual_backward(loss)
        if (batch_idx + 1) % 3 == 0:
            sparse.step()
            sparse.zero_grad()
        dense.step()
        dense.zero_grad(set_to_none=False)
        self.log("loss", loss, on_epoch=True)

    def configure_optimizers(self) -> Any:
        tables = [*self.table.parameters(), *self.other.parameters()]
        return [torch.optim.SparseAdam(tables, lr=0.05), torch.optim.SGD(self.head.parameters(), lr=0.1)]


class Lbfgs(Net):
    def configure_optimizers(self) -> Any:
        return torch.optim.LBFGS(self.parameters(), lr=0.1, max_iter=4, line_search_fn="strong_wolfe")


class Counting(torch.optim.SGD):
    """Keeps something beside the state, in a state dict of its own."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._beside = {"factor": torch.ones(1)}

    def step(self, closure: Any = None) -> Any:
        loss = super().step(closure)
        self._beside["factor"] *= 0.9
        for group in self.param_groups:
            group["lr"] = 0.1 * float(self._beside["factor"])
        return loss

    def state_dict(self) -> Any:
        return {**super().state_dict(), "beside": self._beside}

    def load_state_dict(self, state: Any) -> None:
        state = dict(state)
        self._beside = {key: value.clone() for key, value in state.pop("beside").items()}
        super().load_state_dict(state)


class CountsBeside(Net):
    def configure_optimizers(self) -> Any:
        return Counting(self.parameters(), lr=0.1, momentum=0.9)


class Wrapped(Net):
    """torchmetrics' wrappers."""

    def __init__(self) -> None:
        super().__init__()
        classes = {"task": "multiclass", "num_classes": 3}
        self.tracker = wrappers.MetricTracker(torchmetrics.Accuracy(**classes))
        self.several = wrappers.MetricTracker(
            torchmetrics.MetricCollection(
                [torchmetrics.Precision(**classes, average="macro"), torchmetrics.Recall(**classes)]
            ),
            maximize=[True, True],
        )
        self.groups = torchmetrics.MetricCollection(
            {
                "f1": torchmetrics.F1Score(**classes, average="macro"),
                "precision": torchmetrics.Precision(**classes, average="macro"),
                "auroc": torchmetrics.AUROC(**classes),
                "auprc": torchmetrics.AveragePrecision(**classes),
            },
            compute_groups=True,
        )
        self.boot = wrappers.BootStrapper(torchmetrics.Accuracy(**classes), num_bootstraps=3)
        self.extremes = wrappers.MinMaxMetric(torchmetrics.Accuracy(**classes))
        self.multi = wrappers.MultioutputWrapper(torchmetrics.MeanSquaredError(), 3)
        self.classwise = wrappers.ClasswiseWrapper(torchmetrics.Accuracy(**classes, average=None))
        self.running = wrappers.Running(torchmetrics.MeanMetric(), window=3)
        self.tasks = wrappers.MultitaskWrapper(
            {"a": torchmetrics.MeanMetric(), "b": torchmetrics.MeanMetric()}
        )
        self.sum = torchmetrics.MeanMetric() + torchmetrics.SumMetric()
        self.cat = torchmetrics.CatMetric()

    def on_train_epoch_start(self) -> None:
        self.tracker.increment()
        self.several.increment()

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x, y = batch
        logits = self.net(x)
        loss = F.cross_entropy(logits, y)
        for metric in (self.tracker, self.several, self.groups, self.boot, self.extremes, self.classwise):
            metric.update(logits.detach().softmax(1), y)
        self.multi.update(logits.detach(), F.one_hot(y, 3).float())
        self.tasks.update({"a": loss.detach(), "b": loss.detach()}, {"a": 1.0, "b": 1.0})
        for metric in (self.running, self.sum, self.cat):
            metric.update(loss.detach())
        self.log("running", self.running.compute())
        self.log("by_class", float(self.classwise.compute()["multiclassaccuracy_0"]))
        self.log("loss", loss)
        return loss

    def on_train_epoch_end(self) -> None:
        self.log("best", float(self.tracker.best_metric()))
        self.log_dict({f"all_{k}": float(v) for k, v in self.several.compute().items()})
        self.log_dict(self.groups.compute())
        self.log_dict({f"boot_{k}": v for k, v in self.boot.compute().items()})
        self.log_dict({f"range_{k}": v for k, v in self.extremes.compute().items()})
        self.log("multi", self.multi.compute().sum())
        self.log("tasks", self.tasks.compute()["a"])
        self.log("sum", self.sum.compute())
        self.log("cat", self.cat.compute().sum())
        for metric in (self.groups, self.boot, self.extremes, self.multi, self.classwise, self.cat, self.sum):
            metric.reset()


class LoggedMetrics(Net):
    """A collection with groups, logged as it is."""

    def __init__(self) -> None:
        super().__init__()
        classes = {"task": "multiclass", "num_classes": 3}
        self.train_metrics = torchmetrics.MetricCollection(
            [torchmetrics.Accuracy(**classes), torchmetrics.AUROC(**classes)], prefix="train_"
        )
        self.valid_metrics = self.train_metrics.clone(prefix="val_")
        self.by_name = nn.ModuleDict({"mean": torchmetrics.MeanMetric()})

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        loss = super().training_step(batch, batch_idx)
        self.train_metrics(self.net(batch[0]).detach().softmax(1), batch[1])
        self.log_dict(self.train_metrics, on_step=False, on_epoch=True)
        self.by_name["mean"](loss.detach())
        self.log("named", self.by_name["mean"], on_step=True, on_epoch=True)
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        super().validation_step(batch, batch_idx)
        self.valid_metrics(self.net(batch[0]).softmax(1), batch[1])
        self.log_dict(self.valid_metrics)


class Normed(Net):
    """Parametrizations of all kinds, made by the constructor."""

    def body(self, width: int) -> nn.Module:
        first = nn.utils.weight_norm(nn.Linear(6, width))
        second = parametrizations.weight_norm(nn.Linear(width, width))
        third = parametrizations.spectral_norm(nn.Linear(width, width))
        fourth = parametrizations.orthogonal(nn.Linear(width, width))
        fifth = nn.utils.spectral_norm(nn.Linear(width, 3))
        return nn.Sequential(first, nn.ReLU(), second, third, fourth, fifth)


class PrunedByHand(Net):
    def on_train_epoch_end(self) -> None:
        prune.l1_unstructured(self.net[0], "weight", amount=0.2)
        if self.current_epoch == 1:
            prune.ln_structured(self.net[2], "weight", amount=0.3, n=2, dim=0)


class Finetuned(L.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU())
        self.head = nn.Linear(8, 3)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        loss = F.cross_entropy(self.head(self.backbone(batch[0])), batch[1])
        self.log("loss", loss, on_epoch=True)
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", F.cross_entropy(self.head(self.backbone(batch[0])), batch[1]))

    def configure_optimizers(self) -> Any:
        trained = [p for p in self.parameters() if p.requires_grad]
        optimizer = torch.optim.Adam(trained, lr=0.05)
        return [optimizer], [torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.7)]


class BringsCallbacks(Finetuned):
    def configure_callbacks(self) -> Any:
        return [
            EarlyStopping("val_loss", patience=0, min_delta=0.001),
            BackboneFinetuning(1, backbone_initial_lr=0.01, verbose=False),
            LearningRateMonitor("step", log_momentum=True, log_weight_decay=True),
        ]


class BringsAveraging(Net):
    def configure_callbacks(self) -> Any:
        return StochasticWeightAveraging(swa_lrs=0.1)


def pruning(**settings: Any) -> ModelPruning:
    return ModelPruning("l1_unstructured", amount=0.2, **settings)


def _seen(trainer: Any) -> dict[str, Any]:
    """What a module may read from its trainer, in comparable form."""
    loop, epoch_loop = trainer.fit_loop, trainer.fit_loop.epoch_loop
    metrics = ("callback_metrics", "logged_metrics", "progress_bar_metrics")
    names = """num_training_batches num_val_batches num_sanity_val_batches num_test_batches enable_validation
    is_last_batch val_check_batch val_check_interval check_val_every_n_epoch max_epochs max_steps min_epochs
    min_steps max_time current_epoch global_step sanity_checking training validating testing should_stop
    num_devices device_ids num_nodes world_size local_rank node_rank global_rank is_global_zero precision
    accumulate_grad_batches gradient_clip_val gradient_clip_algorithm log_every_n_steps limit_train_batches
    limit_val_batches overfit_batches fast_dev_run reload_dataloaders_every_n_epochs interrupted
    received_sigterm evaluating predicting ckpt_path enable_checkpointing num_sanity_val_steps""".split()  # noqa: SIM905
    return {
        **{name: getattr(trainer, name, None) for name in names},
        **{name: {key: float(value) for key, value in getattr(trainer, name).items()} for name in metrics},
        "steps": trainer.estimated_stepping_batches if trainer.train_dataloader is not None else None,
        "state": (str(trainer.state.fn), str(trainer.state.stage), str(trainer.state.status)),
        "loaders": [_lengths(trainer.train_dataloader), _lengths(trainer.val_dataloaders)],
        "loggers": len(trainer.loggers),
        "callbacks": [type(callback).__name__ for callback in trainer.callbacks if not _is_ours(callback)],
        "stoppers": [len(trainer.early_stopping_callbacks), len(trainer.checkpoint_callbacks)],
        "stopper": type(trainer.early_stopping_callback).__name__,
        "checkpoint": (trainer.checkpoint_callback, trainer.progress_bar_callback, trainer.datamodule),
        "optimizers": [type(optimizer).__name__ for optimizer in trainer.optimizers],
        "rates": [group["lr"] for optimizer in trainer.optimizers for group in optimizer.param_groups],
        "schedulers": [config.interval for config in trainer.lr_scheduler_configs],
        "loop": [loop.batch_idx, loop.total_batch_idx, loop.restarting, loop.min_epochs, loop.max_epochs],
        "restarts": [loop.is_resuming, epoch_loop.restarting, epoch_loop.val_loop.restarting],
        "progress": [repr(loop.epoch_progress), repr(epoch_loop.batch_progress)],
        "stages": [repr(epoch_loop.scheduler_progress), repr(epoch_loop.val_loop.batch_progress)],
        "steps_done": [repr(epoch_loop.automatic_optimization.optim_progress), epoch_loop.global_step],
        "max_batches": [loop.max_batches, epoch_loop.val_loop.max_batches],
        "folder": [type(trainer.log_dir).__name__, trainer.default_root_dir],
    }


def _lengths(loaders: Any) -> Any:
    if isinstance(loaders, list):
        return [len(loader) for loader in loaders]
    return None if loaders is None else len(loaders)


def _is_ours(callback: Any) -> bool:
    return type(callback).__name__ == "EpochMetrics"


_STEPS = """on_train_start on_train_epoch_start on_train_batch_start on_before_zero_grad on_before_backward
on_after_backward on_before_optimizer_step on_train_batch_end on_validation_start on_validation_epoch_start
on_validation_batch_start on_validation_batch_end on_validation_epoch_end on_validation_end
on_train_epoch_end on_validation_model_zero_grad on_validation_model_eval on_validation_model_train"""


class Watching(Net):
    """Writes down all that it sees of its trainer, in every hook and step."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[str] = []

    def note(self, where: str) -> None:
        self.records.append(f"{where}: {_seen(self.trainer)}")

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        self.note("training_step")
        return super().training_step(batch, batch_idx) * (1 + 0.01 * len(self.trainer.num_val_batches))

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.note("validation_step")
        super().validation_step(batch, batch_idx)

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=self.lr)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 2)]


def _noting(name: str) -> Any:
    def hook(self: Watching, *args: Any, **kwargs: Any) -> Any:
        self.note(name)
        return getattr(Net, name)(self, *args, **kwargs)

    return hook


for _name in _STEPS.split():
    setattr(Watching, _name, _noting(_name))


class Watcher(Callback):
    """The same from a callback."""

    def __init__(self) -> None:
        self.records: list[str] = []


def _noted(name: str) -> Any:
    def hook(self: Watcher, trainer: Any, *_: Any, **__: Any) -> None:
        self.records.append(f"{name}: {_seen(trainer)}")

    return hook


for _name in _STEPS.split()[:15]:
    setattr(Watcher, _name, _noted(_name))


class OptimizerAnew(Net):
    """A new head, and an optimizer set up again for it."""

    def on_train_epoch_start(self) -> None:
        if self.current_epoch == 1:
            self.net[2] = nn.Linear(8, 3)
            self.trainer.strategy.setup_optimizers(self.trainer)


class OtherOptimizer(Net):
    def configure_optimizers(self) -> Any:
        return (torch.optim.Adam if self.current_epoch else torch.optim.SGD)(self.parameters(), lr=0.1)

    def on_train_epoch_start(self) -> None:
        if self.current_epoch == 1:
            self.trainer.strategy.setup_optimizers(self.trainer)


class Hooked(Net):
    def on_train_epoch_start(self) -> None:
        if self.current_epoch == 1:
            self.net[0].register_forward_hook(lambda *_: None)
