"""What a child sets anew in its parent's state: the plain attributes of the module, and the options of the
optimizers, that follow from its own hyper-parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import lightning.pytorch as pl

from cerebro_elastic.extending.state import Encoder, Tree, known_of_model, values_equal
from cerebro_elastic.extending.tasks import TaskState
from cerebro_elastic.extending.torch_tasks import OptimizerOptions, override_options
from cerebro_lightning.attributes import MODULE, own_attributes


def with_own_attributes(
    state: TaskState, key: str, parent: pl.LightningModule, own: pl.LightningModule
) -> TaskState:
    """A copy of ``state`` whose attributes (under ``key``) have the values of ``own`` where the constructor
    made ``own`` different from ``parent``; both are fresh."""
    trees = [
        Encoder(known_of_model(module, ()), strict=False).module(module, own_attributes, MODULE)["attributes"]
        for module in (parent, own)
    ]
    carried = state[key]
    module, *callbacks = carried["attributes"]
    module = {**module, "attributes": _own(module["attributes"], *trees)}
    return {**state, key: {**carried, "attributes": [module, *callbacks]}}


def set_own_options(
    trainer: pl.Trainer, theirs: Sequence[OptimizerOptions], own: Sequence[OptimizerOptions]
) -> None:
    """Give the optimizers, which have loaded another config's state, their own options."""
    schedulers = [config.scheduler for config in trainer.lr_scheduler_configs]
    for optimizer, *built in zip(trainer.optimizers, theirs, own, strict=True):
        moved_by = [s for s in schedulers if getattr(s, "optimizer", None) is optimizer]
        override_options(optimizer, moved_by, *built)


def _own(saved: Tree, parent: Tree, own: Tree) -> Tree:
    if isinstance(saved, Mapping) and isinstance(parent, Mapping) and isinstance(own, Mapping):
        return {
            key: _own(value, parent[key], own[key]) if key in parent and key in own else value
            for key, value in saved.items()
        }
    return saved if values_equal(parent, own) else own
