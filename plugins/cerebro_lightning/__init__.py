"""LightningModules as tasks: sub-epochs that equal one ordinary ``Trainer.fit`` bit for bit."""

from cerebro_lightning.task import LightningTask

__all__ = ["LightningTask"]
