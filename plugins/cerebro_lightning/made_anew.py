"""Values that a module's ``on_save_checkpoint`` adds and our checkpoints cannot store, such as a loss or a
scaler as objects: they are left out, and the next unit's module adds them again by the same hook."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.utilities.model_helpers import is_overridden

from cerebro_elastic.extending.errors import CheckpointError, TaskError
from cerebro_elastic.extending.state import flatten


def leave_out(state: dict[str, Any], module: pl.LightningModule) -> Sequence[str]:
    """Remove the values of ``state`` that cannot be stored; returns their keys."""
    if not is_overridden("on_save_checkpoint", module):
        return ()
    odd = [key for key, value in state.items() if not _can_be_stored(value)]
    for key in odd:
        del state[key]
    return odd


def put_back(checkpoint: dict[str, Any], module: pl.LightningModule, keys: Sequence[str]) -> None:
    """Add the values that were left out, as the hook of the fresh ``module`` makes them. Raises ``TaskError``
    for a value that only training makes."""
    if not keys:
        return
    made: dict[str, Any] = {
        "state_dict": module.state_dict(),
        module.CHECKPOINT_HYPER_PARAMS_KEY: dict(module.hparams),
    }
    module.on_save_checkpoint(made)
    for key in keys:
        if key not in made:
            raise TaskError(
                f"{type(module).__name__}.on_save_checkpoint adds {key!r}, which no checkpoint can hold, and "
                "a fresh module's hook does not add it: keep plain values or tensors in it"
            )
        checkpoint[key] = made[key]


def _can_be_stored(value: Any) -> bool:
    try:
        flatten({"value": value}, copies=False)
    except CheckpointError:
        return False
    return True
