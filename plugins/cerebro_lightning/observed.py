"""The contents of a fit after each batch and at the ends of epochs, passed to an observer: for ``cerebro
check``.

Lightning calls all hooks by two functions of its module ``trainer.call``. They are wrapped meanwhile, so that
module and trainer look unchanged from within; with one more callback they would not.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import lightning.pytorch as pl
from torch import nn

from cerebro_elastic.extending.state import to_names
from cerebro_elastic.extending.tasks import Observe
from cerebro_elastic.extending.torch_tasks import rng
from cerebro_lightning._lightning_internals import hooks_wrapped
from cerebro_lightning.attributes import own_attributes

BEGINS = "at the epoch's beginning, before"
ENDS = "at the training's end, after"
_MOMENTS = {
    "on_train_batch_end": "after",
    "on_train_epoch_end": "at the epoch's end, after",
    "on_train_end": ENDS,
}
"""The moment that follows each hook of the module."""

_ANEW = (
    "configure_",
    "on_exception",
    "on_fit_start",
    "on_load_checkpoint",
    "on_sanity_check",
    "on_save_checkpoint",
    "on_train_start",
    "prepare_data",
    "setup",
    "teardown",
)
"""The hooks that every unit calls anew (docs/design/exactness.md)."""


@contextmanager
def observed(observe: Observe) -> Iterator[None]:
    """Pass the contents of all fits inside the block to ``observe``."""
    hooks: list[str] = []

    def module_hook(of_module: Any, trainer: pl.Trainer, name: str, *args: Any, **kwargs: Any) -> Any:
        module = kwargs.get("pl_module") or trainer.lightning_module
        if _is_own(module, pl.LightningModule, name):
            hooks.append(name)
        answer = of_module(trainer, name, *args, **kwargs)
        if (moment := _MOMENTS.get(name)) is not None:
            observe(moment, {**_consists_of(trainer, module), "hooks": ", ".join(hooks)})
            hooks.clear()
        return answer

    def callback_hooks(of_callbacks: Any, trainer: pl.Trainer, name: str, *args: Any, **kwargs: Any) -> None:
        callbacks: list[pl.Callback] = vars(trainer)["callbacks"]
        if name == "on_train_epoch_start":
            observe(BEGINS, _consists_of(trainer, trainer.lightning_module))
            hooks.clear()  # the hooks after the last epoch's end ran in another process
        hooks.extend(f"{type(c).__name__}.{name}" for c in callbacks if _is_own(c, pl.Callback, name))
        of_callbacks(trainer, name, *args, **kwargs)

    with hooks_wrapped(partial(partial, module_hook), partial(partial, callback_hooks)):
        yield


def _is_own(owner: object, base: type, hook: str) -> bool:
    """Whether the user has written the hook, and it fires as in one ordinary fit."""
    written = getattr(type(owner), hook, None) is not getattr(base, hook, None)
    return written and not hook.startswith(_ANEW)


def _consists_of(trainer: pl.Trainer, module: pl.LightningModule) -> dict[str, Any]:
    callbacks: list[pl.Callback] = vars(trainer)["callbacks"]
    return {
        "counter": {
            "current_epoch": trainer.current_epoch,
            "global_step": trainer.global_step,
            "batch_idx": trainer.fit_loop.epoch_loop.batch_idx,
        },
        "attribute": _attributes(module),
        "callback": {f"{type(c).__name__}[{at}]": own_attributes(c) for at, c in enumerate(callbacks)},
        "optimizer": {str(at): _optimizer(module, own) for at, own in enumerate(trainer.optimizers)},
        "scheduler": {
            str(at): config.scheduler.state_dict() for at, config in enumerate(trainer.lr_scheduler_configs)
        },
        "generator": rng.capture(trainer.strategy.root_device),
        "buffer": dict(module.named_buffers()),
        "weight": dict(module.named_parameters()),
    }


def _attributes(module: nn.Module) -> dict[str, Any]:
    trained = {f"{name}.requires_grad": p.requires_grad for name, p in module.named_parameters()}
    return trained | {
        f"{path}.{name}".lstrip("."): value
        for path, part in module.named_modules()
        for name, value in own_attributes(part).items()
    }


def _optimizer(module: nn.Module, optimizer: Any) -> dict[str, Any]:
    attributes = {
        name: value
        for name, value in vars(optimizer).items()
        if name not in ("state", "param_groups", "defaults") and not name.startswith("_")
    }
    return {**to_names(optimizer, module), **attributes}
