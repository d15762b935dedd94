"""LightningModules as tasks: sub-epochs that equal one ordinary ``Trainer.fit`` bit for bit.

``CerebroTrainer`` is for users; ``LightningTask`` is what a recipe's ``kind: lightning`` names.
"""

from cerebro_lightning.task import LightningTask
from cerebro_lightning.trainer import CerebroTrainer

__all__ = ["CerebroTrainer", "LightningTask"]
