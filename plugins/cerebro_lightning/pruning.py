"""Lightning's ``ModelPruning`` between units: masks hop, and are not applied for good before the training's
end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import lightning.pytorch as pl
from lightning.pytorch.callbacks import ModelPruning
from torch import Tensor

from cerebro_elastic.extending.state import parameters_of
from cerebro_lightning._lightning_internals import (
    PRUNED_LAYERS,
    pruned_layers_of,
    pruned_module_of,
    prunes_for_good,
    set_prunes_for_good,
)


def made_in_setup(owner: object) -> frozenset[str]:
    """Names of attributes that the callback's ``setup`` makes anew: copies of the layers as they are
    built."""
    return frozenset({PRUNED_LAYERS}) if isinstance(owner, ModelPruning) else frozenset()


@contextmanager
def masks_kept(callbacks: Iterable[pl.Callback]) -> Iterator[None]:
    """A checkpoint made inside the block has the weights and their masks. By default ``ModelPruning`` would
    save weights that are pruned for good."""
    permanent = [callback for callback in _pruning(callbacks) if prunes_for_good(callback)]
    for callback in permanent:
        set_prunes_for_good(callback, False)
    try:
        yield
    finally:
        for callback in permanent:
            set_prunes_for_good(callback, True)


def gone_on(callbacks: Iterable[pl.Callback]) -> list[list[int]]:
    """For each ``ModelPruning``, the indices of parameters whose stored initial value has become the trained
    tensor: Lightning rewinds a parameter to its initial value by reference, so that from then on both are
    one."""
    return [
        [number for number, first, own in _first_values(callback) if first.data_ptr() == own.data_ptr()]
        for callback in _pruning(callbacks)
    ]


def go_on(callbacks: Iterable[pl.Callback], numbers: Sequence[Sequence[int]]) -> None:
    """Apply what ``gone_on`` has returned; called after the parameters' values are loaded."""
    for callback, trained in zip(_pruning(callbacks), numbers, strict=False):
        for number, first, own in _first_values(callback):
            if number in trained:
                first.data = own.data


def _pruning(callbacks: Iterable[pl.Callback]) -> list[ModelPruning]:
    return [callback for callback in callbacks if isinstance(callback, ModelPruning)]


def _first_values(callback: ModelPruning) -> Iterator[tuple[int, Tensor, Tensor]]:
    for layer in pruned_layers_of(callback):
        for number, name in layer["names"]:
            present = parameters_of(pruned_module_of(callback, number))
            first = parameters_of(layer["data"]).get(name)
            own = present.get(f"{name}_orig", present.get(name))
            if first is not None and own is not None:
                yield number, first, own
