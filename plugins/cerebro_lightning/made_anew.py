"""What a module's ``on_save_checkpoint`` adds and a checkpoint of ours cannot hold, such as a loss or a
scaler as objects: it is left out where a fresh module's hook gives the same, which the next unit does."""

from __future__ import annotations

import hashlib
import io
import pickle
from collections.abc import Callable, Sequence
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.utilities.model_helpers import is_overridden

from cerebro_elastic.extending.errors import CheckpointError
from cerebro_elastic.extending.state import flatten


def leave_out(
    state: dict[str, Any], module: pl.LightningModule, fresh: Callable[[], pl.LightningModule]
) -> Sequence[str]:
    """Remove from ``state`` what cannot be stored and is made anew; returns its keys. ``fresh`` makes a
    module as the next unit does."""
    if not is_overridden("on_save_checkpoint", module):
        return ()
    odd = [key for key, value in state.items() if not _can_be_stored(value)]
    if not odd:
        return ()
    other = fresh()
    again = _of_hook(other)
    same = [
        key
        for key in odd
        if key in again
        and (digest := _digest(state[key], module)) is not None
        and digest == _digest(again[key], other)
    ]
    for key in same:
        del state[key]
    return same


def put_back(checkpoint: dict[str, Any], module: pl.LightningModule, keys: Sequence[str]) -> None:
    """Add what was left out, as the hook of the fresh ``module`` makes it."""
    if keys:
        made = _of_hook(module)
        checkpoint.update((key, made[key]) for key in keys)


def _of_hook(module: pl.LightningModule) -> dict[str, Any]:
    checkpoint: dict[str, Any] = {
        "state_dict": module.state_dict(),
        module.CHECKPOINT_HYPER_PARAMS_KEY: dict(module.hparams),
    }
    module.on_save_checkpoint(checkpoint)
    return checkpoint


def _can_be_stored(value: Any) -> bool:
    try:
        flatten({"value": value}, copies=False)
    except CheckpointError:
        return False
    return True


def _digest(value: Any, module: pl.LightningModule) -> bytes | None:
    """Of the content, in which parts of the module, which hop by themselves, count by their names. Equal
    texts are the same: of those that a state has brought, fewer are one object."""
    content = io.BytesIO()
    pickler = pickle.Pickler(content)
    named = (*module.named_modules(), *module.named_parameters(), *module.named_buffers())
    names = {id(part): name for name, part in named}
    pickler.persistent_id = lambda part: (  # type: ignore[method-assign]
        f"={part}" if type(part) is str else names.get(id(part))
    )
    try:
        pickler.dump(value)
    except Exception:  # of a class of anybody's
        return None
    return hashlib.sha256(content.getvalue()).digest()
