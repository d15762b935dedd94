"""Which parts of a LightningModule's training depend on the number of epochs, by what they read.

Meanwhile the trainer's properties that follow from ``max_epochs`` record which code reads them, if that is
the user's or a callback's: Lightning's own loops read them all the time.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import lightning.pytorch as pl

_PROPERTIES = ("max_epochs", "max_steps", "estimated_stepping_batches")
_FRAMEWORK = ("lightning", "cerebro_lightning", "cerebro_elastic", "torch")
_CALLBACKS = "lightning.pytorch.callbacks."
_SHOWS = ("progress", "model_summary", "timer", "model_checkpoint", "throughput_monitor")
"""Lightning's callbacks that do not change a config's state by what they read, nor by what they do at the
end."""
_AT_END = ("on_train_end", "on_fit_end", "teardown")
"""Hooks that are called at the end of a config's last epoch, before its state is saved."""


@contextmanager
def readers(epochs: int, longer: int) -> Iterator[list[str]]:
    """Record which code reads the training's length inside this block; an extension will change it from
    ``epochs`` to ``longer``."""
    noted: list[str] = []
    plain = {name: vars(pl.Trainer)[name] for name in _PROPERTIES}

    def watched(name: str) -> property:
        def read(trainer: pl.Trainer) -> Any:
            reader = _reader(inspect.stack(0)[1].frame)
            values = f" ({epochs}, it would be {longer})" if name == "max_epochs" else ""
            text = f"{reader} reads trainer.{name}{values}"
            if reader and text not in noted:
                noted.append(text)
            return plain[name].fget(trainer)

        return property(read)

    for name in _PROPERTIES:
        setattr(pl.Trainer, name, watched(name))
    try:
        yield noted
    finally:
        for name, value in plain.items():
            setattr(pl.Trainer, name, value)


def acts_at_end(module: pl.LightningModule, callbacks: Iterable[pl.Callback], epochs: int) -> Iterator[str]:
    """The hooks that have acted on the state when the training ended."""
    for owner, base in [(module, pl.LightningModule), *((callback, pl.Callback) for callback in callbacks)]:
        for hook in _AT_END:
            written = getattr(type(owner), hook) is not getattr(base, hook)
            if written and not _only_shows(type(owner).__module__):
                yield (
                    f"{type(owner).__name__}.{hook} has acted at the end of epoch {epochs}, which would not "
                    "have been the last one"
                )


def _reader(frame: FrameType) -> str | None:
    """The user's function, or Lightning's callback, that reads; ``None`` if it is the framework itself."""
    module, name = frame.f_globals.get("__name__", ""), frame.f_code.co_qualname
    if module.startswith(_CALLBACKS):
        return None if _only_shows(module) else name
    return None if module.partition(".")[0] in _FRAMEWORK else f"{module}:{name}"


def _only_shows(module: str) -> bool:
    return module.startswith(tuple(_CALLBACKS + name for name in _SHOWS))
