"""LightningModules as tasks: sub-epochs that equal one ordinary ``Trainer.fit`` bit for bit.

``CerebroTrainer`` is for users; ``LightningTask`` is the task of a recipe's ``kind: lightning``. Both are
imported on use, since a recipe is checked by ``section`` alone, without Lightning and torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from cerebro_lightning.one_name import use_one_name

if TYPE_CHECKING:
    from cerebro_lightning.task import LightningTask
    from cerebro_lightning.trainer import CerebroTrainer

__all__ = ["CerebroTrainer", "LightningTask"]

use_one_name()

_HOMES = {"CerebroTrainer": "cerebro_lightning.trainer", "LightningTask": "cerebro_lightning.task"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'cerebro_lightning' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
