"""The task ``lightning`` keeps the contract of tasks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import lightning as L
import torch
from torch import Tensor, nn

from cerebro_elastic.extending.tasks import Task, TaskState
from cerebro_elastic.testing import TaskContract
from cerebro_elastic.testing.task_contract import Epoch
from cerebro_lightning import LightningTask
from cerebro_lightning.section import LightningSection


class Net(L.LightningModule):
    def __init__(self, lr: float) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.lr = lr
        self.net = nn.Sequential(nn.Linear(4, 5), nn.Dropout(0.2), nn.Linear(5, 3))

    def training_step(self, batch: Any) -> Tensor:
        loss = nn.functional.cross_entropy(self.net(batch[0]), batch[1])
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch: Any) -> None:
        self.log("val_loss", nn.functional.cross_entropy(self.net(batch[0]), batch[1]))

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.lr)
        return {"optimizer": optimizer, "lr_scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)}


class TestLightningTask(TaskContract):
    hparams = {"lr": 0.1}  # noqa: RUF012

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
