"""The objects of a LightningModule, its callbacks, optimizers, schedulers and trainer, as a graph that
hops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import lightning.pytorch as pl
from torch import nn

from cerebro_elastic.extending.state import (
    MODULE_ATTRIBUTES,
    GraphRoot,
    ObjectGraph,
    UserFiles,
    hooks,
    known_of_model,
    made_by_compiler,
    optimizer_root,
    tensor_roots,
)
from cerebro_lightning import _lightning_internals, pruning
from cerebro_lightning._lightning_internals import average_model_of, averages_weights, lightning_optimizers_of
from cerebro_lightning.optimizers import NamedStateStrategy

MODULE = "module"


def own_attributes(owner: object) -> dict[str, Any]:
    """The attributes that a user's code has set on a module, a part of it or a callback, without the
    machinery of ``nn.Module`` and Lightning."""
    if isinstance(owner, pl.LightningModule):
        ignored = _lightning_internals.MODULE_ATTRIBUTES
    else:
        ignored = MODULE_ATTRIBUTES if isinstance(owner, nn.Module) else pruning.made_in_setup(owner)
    return {
        name: value
        for name, value in vars(owner).items()
        if name not in ignored
        and not made_by_compiler(name)
        and not (name == _lightning_internals.HPARAMS and not value)
    }


def names_of(callbacks: Sequence[pl.Callback]) -> list[str]:
    """The roots that exist in every unit: the module, and the callbacks in their order."""
    return [MODULE, *(f"callback {number}" for number, _ in enumerate(callbacks))]


def graph(
    module: pl.LightningModule,
    trainer: pl.Trainer,
    strategy: NamedStateStrategy,
    files: UserFiles,
    stock: frozenset[str],
) -> ObjectGraph:
    """All objects that the roots keep, in the order in which they are reached. ``stock`` are the attributes
    of a new trainer."""
    callbacks: list[pl.Callback] = vars(trainer)["callbacks"]
    optimizers = strategy.real_optimizers()
    schedulers = [config.scheduler for config in trainer.lr_scheduler_configs]

    def of_trainer(_: object) -> dict[str, Any]:
        return {k: v for k, v in vars(trainer).items() if k not in stock and not k.startswith("_")}

    def known() -> dict[str, object]:
        ours: dict[str, object] = {"trainer": trainer}
        ours |= {
            f"Lightning's optimizer {number}": optimizer
            for number, optimizer in enumerate(lightning_optimizers_of(strategy))
        }
        ours |= {f"callback {number}": callback for number, callback in enumerate(callbacks)}
        ours |= {f"scheduler {number}": scheduler for number, scheduler in enumerate(schedulers)}
        averages = [average_model_of(c) for c in callbacks if averages_weights(c)]
        ours |= {f"average {number}": model for number, model in enumerate(averages)}
        return {**known_of_model(module, optimizers), **ours}

    roots = [GraphRoot(MODULE, module, own_attributes, type(module).__name__)]
    roots += [
        GraphRoot(name, callback, own_attributes, type(callback).__name__)
        for name, callback in zip(names_of(callbacks)[1:], callbacks, strict=True)
    ]
    roots += [optimizer_root(number, optimizer) for number, optimizer in enumerate(optimizers)]
    roots += [
        GraphRoot(f"scheduler {number}", scheduler, vars, type(scheduler).__name__)
        for number, scheduler in enumerate(schedulers)
    ]
    roots += [GraphRoot("trainer", trainer, of_trainer, "trainer"), hooks(module, optimizers)]
    if strategy.whole:
        roots += tensor_roots(module)
    return ObjectGraph(roots, known, files, strategy.marks)
