"""Modules that depend on the number of epochs."""

from __future__ import annotations

from typing import Any

from lightning_zoo import Net


class Anneals(Net):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return super().training_step(batch, batch_idx) * (1 + self.current_epoch / self.trainer.max_epochs)


class Ends(Net):
    def on_train_epoch_end(self) -> None:
        self.nearly = self.current_epoch + 1 == self.trainer.max_epochs


class Finale(Net):
    def on_train_end(self) -> None:
        for parameter in self.parameters():
            parameter.data.zero_()
