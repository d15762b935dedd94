"""The task ``lightning`` keeps the contract of tasks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import lightning as L
import pytest
import torch
from torch import Tensor, nn

from cerebro_elastic.extending.tasks import Phase, Strategy, Task, TaskState, Unit
from cerebro_elastic.testing.task_contract import Epoch, TaskContract
from cerebro_lightning import LightningTask
from cerebro_lightning.section import LightningSection


class Net(L.LightningModule):
    def __init__(
        self,
        lr: float,
        width: int = 5,
        ratio: float = 1.0,
        scale: float = 1.0,
        activation: str | None = None,
        bias: bool = True,
        layers: list[int] | None = None,
        options: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.save_hyperparameters()
        options, layers = options or {}, layers or []
        self.lr, self.decay = lr, options.pop("decay", 0.01)  # as users do, with the mapping that they get
        layers.append(round(width * ratio))
        self.scaled = lambda x: x * scale
        parts = [nn.Linear(a, b, bias=bias) for a, b in zip([4, *layers], [*layers, 3], strict=True)]
        middle = [nn.Dropout(0.2), *([getattr(nn, activation)()] if activation else [])]
        self.net = nn.Sequential(*parts[:-1], *middle, parts[-1])

    def training_step(self, batch: Any) -> Tensor:
        loss = nn.functional.cross_entropy(self.scaled(self.net(batch[0])), batch[1])
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch: Any) -> None:
        self.log("val_loss", nn.functional.cross_entropy(self.net(batch[0]), batch[1]))

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.lr, weight_decay=self.decay)
        return {"optimizer": optimizer, "lr_scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)}


class TestLightningTask(TaskContract):
    hparams = {"lr": 0.1}  # noqa: RUF012
    variants: ClassVar[dict[str, dict[str, Any]]] = {
        "a float of the optimizer": {"lr": 0.0},
        "a float of the architecture": {"ratio": 0.6},
        "a float in a closure": {"scale": 0.5},
        "an int": {"width": 7},
        "a text, not null": {"activation": "Sigmoid"},
        "a bool": {"bias": False},
        "a list": {"layers": [6, 5]},
        "a mapping": {"options": {"decay": 0.9}},
        "batch_size": {"batch_size": 2},
    }

    def make(self) -> Task:
        return LightningTask(LightningSection(module=f"{__name__}:Net"), Path(__file__).parent)

    def trained(self, state: TaskState) -> Mapping[str, Any]:
        return dict(state.get("current_model_state", state["state_dict"]))

    def sequential(self, epochs: Sequence[Epoch]) -> Mapping[str, Any]:
        L.seed_everything(self.seed, verbose=False)
        module = Net(lr=0.1)
        trainer = L.Trainer(
            max_epochs=len(epochs),
            accelerator="cpu",
            logger=False,
            num_sanity_val_steps=0,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(module, Loader(trainer, epochs), Validation(epochs[0].validation))
        return dict(module.state_dict())


class Validation:
    """Batches; a ``DataLoader`` would draw from torch's generator, and a list means several loaders."""

    def __init__(self, batches: Sequence[Any]) -> None:
        self._batches = batches

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._batches)


class Loader:
    """The batches of the trainer's present epoch."""

    def __init__(self, trainer: L.Trainer, epochs: Sequence[Epoch]) -> None:
        self._trainer, self._epochs = trainer, epochs

    def __len__(self) -> int:
        return len(self._epochs[0].batches)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._epochs[self._trainer.current_epoch].batches)


class Watch(L.Callback):
    def on_validation_end(self, *_: Any) -> None: ...


def apart(**section: Any) -> str | None:
    task = LightningTask(LightningSection(module=f"{__name__}:Net", **section), Path(__file__).parent)
    return task.why_not_apart({"lr": 0.1}, [Strategy()])


def test_what_watches_validation_is_named_before_a_run_that_validates_apart() -> None:
    assert apart() is None
    assert "Watch would not be called" in str(apart(callbacks=[f"{__name__}:Watch"]))
    for monitor, refused in (("val_loss", True), ("accuracy", True), ("train_loss", False)):
        stops = {"class": "EarlyStopping", "args": {"monitor": monitor}}
        assert ("EarlyStopping would not be called" in str(apart(callbacks=[stops]))) == refused
    assert apart(callbacks=["LearningRateMonitor"]) is None
    task = LightningTask(LightningSection(module=f"{__name__}:Net"), Path(__file__).parent)
    assert "parallelism: single" in str(task.why_not_apart({"lr": 0.1}, [Strategy("ddp", 2)]))


class Logging(Net):
    """Logs in ways of which Lightning's logger has some, and notes its stage."""

    def setup(self, stage: str) -> None:
        self.stage = stage

    def validation_step(self, batch: Any) -> None:
        super().validation_step(batch)
        self.log("val_both", batch[0].mean(), on_step=True, on_epoch=True)
        self.log("val_shown", batch[0].mean(), logger=False, prog_bar=True)


def test_a_validation_apart_has_the_metrics_of_one_in_the_fit() -> None:
    contract = TestLightningTask()
    task = LightningTask(LightningSection(module=f"{__name__}:Logging"), Path(__file__).parent)
    state = None
    for number in range(3):
        fit = task.train(contract.job(number, state))
        state = fit.state
    unit, part = Unit("c0", 0, 9, Phase.EVALUATE), contract.partition(9, 7)
    apart = task.evaluate(contract.job(2, state, unit=unit, partition=part, validation=()))
    expected = {name: value for name, value in fit.metrics.items() if name.startswith("val")}
    assert expected.keys() == {"val_loss", "val_both", "val_both_epoch", "val_shown"}
    assert apart.metrics == pytest.approx(expected, rel=1e-5)
