"""Lightning's ``ModelPruning`` between units: masks hop, and are not applied for good before the training's
end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import lightning.pytorch as pl
from lightning.pytorch.callbacks import ModelPruning
from torch import Tensor


def made_in_setup(owner: object) -> frozenset[str]:
    """Names of attributes that the callback's ``setup`` makes anew: copies of the layers as they are
    built."""
    return frozenset({"_original_layers"}) if isinstance(owner, ModelPruning) else frozenset()


@contextmanager
def masks_kept(callbacks: Iterable[pl.Callback]) -> Iterator[None]:
    """A checkpoint that is made inside has the weights and their masks. By default ``ModelPruning`` would
    save weights that are pruned for good."""
    permanent = [callback for callback in _pruning(callbacks) if callback._make_pruning_permanent]
    for callback in permanent:
        callback._make_pruning_permanent = False
    try:
        yield
    finally:
        for callback in permanent:
            callback._make_pruning_permanent = True


def gone_on(callbacks: Iterable[pl.Callback]) -> list[list[int]]:
    """For each ``ModelPruning`` the numbers of the parameters whose first values are trained by now:
    Lightning puts a parameter back to these by reference, so that from then on they are the parameter
    itself."""
    return [
        [number for number, first, own in _first_values(callback) if first.data_ptr() == own.data_ptr()]
        for callback in _pruning(callbacks)
    ]


def go_on(callbacks: Iterable[pl.Callback], numbers: Sequence[Sequence[int]]) -> None:
    """The inverse, behind the parameters' values."""
    for callback, trained in zip(_pruning(callbacks), numbers, strict=False):
        for number, first, own in _first_values(callback):
            if number in trained:
                first.data = own.data


def _pruning(callbacks: Iterable[pl.Callback]) -> list[ModelPruning]:
    return [callback for callback in callbacks if isinstance(callback, ModelPruning)]


def _first_values(callback: ModelPruning) -> Iterator[tuple[int, Tensor, Tensor]]:
    for layer in (callback._original_layers or {}).values():
        for number, name in layer["names"]:
            module, _ = callback._parameters_to_prune[number]
            first = layer["data"]._parameters.get(name)
            own = module._parameters.get(f"{name}_orig", module._parameters.get(name))
            if first is not None and own is not None:
                yield number, first, own
