"""A config's state as a checkpoint of Lightning's own, for whoever has nothing of ours installed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

import lightning.pytorch as pl

from cerebro_elastic.train.task import State
from cerebro_lightning.batches import EpochLoader
from cerebro_lightning.subepoch import SubEpoch

_HPARAMS, _NAME = (
    pl.LightningModule.CHECKPOINT_HYPER_PARAMS_KEY,
    pl.LightningModule.CHECKPOINT_HYPER_PARAMS_NAME,
)


def stock_checkpoint(
    module: pl.LightningModule, trainer: pl.Trainer, state: State, batches: int, arguments: Mapping[str, Any]
) -> dict[str, Any]:
    """What ``trainer.save_checkpoint`` would have saved at the end of an epoch of ``batches`` batches.

    ``module`` and ``trainer`` are fresh; the ``state`` was left by the epoch's last unit. ``arguments`` are
    those of the module's constructor: ``load_from_checkpoint`` finds them, whether the module saves its
    hyper-parameters or not.
    """
    unit = _Halt(module, trainer, state=state, batches=0, first=True, last=False)
    unit.fit(EpochLoader(batches, lambda: iter(())), None)
    checkpoint = unit.checkpoint
    if checkpoint.get(_NAME) not in arguments:
        checkpoint[_HPARAMS] = {**arguments, **checkpoint.get(_HPARAMS, {})}
    return checkpoint


def how_to_load(module: str) -> str:
    """Python code that loads an exported checkpoint of the class ``module`` (``module:name``)."""
    where, _, name = module.partition(":")
    return _LOAD.format(where=where, name=name)


_LOAD = """\
import lightning as L
from {where} import {name}

model = {name}.load_from_checkpoint("CHECKPOINT")
# or go on training: L.Trainer(max_epochs=...).fit({name}(...), loader, ckpt_path="CHECKPOINT")
"""


class _Halt(SubEpoch):
    """Takes a state in, and no batch."""

    def enter(self) -> NoReturn:
        super().enter()
        self.leave()

    def _capture(self) -> None:
        self.checkpoint = self._trainer._checkpoint_connector.dump_checkpoint(weights_only=False)
        # By number, where our strategy has names.
        self.checkpoint["optimizer_states"] = [o.state_dict() for o in self._trainer.optimizers]
