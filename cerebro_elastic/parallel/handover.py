"""A state's tensors become a model's own without a copy: so loading is no pass over the memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from cerebro_elastic.parallel.construct import keeps_tensors


def hand_over(model: nn.Module, state: Mapping[str, Any]) -> None:
    """As ``model.load_state_dict(state)``, but ``model`` then trains in the very tensors of ``state``, where
    they lie in memory as its own do. Parameters stay the same objects, so that an optimizer keeps them."""
    given = dict(state)
    # A tensor that a module keeps beside its state may be a view of a parameter.
    live = {} if keeps_tensors(model) else model.state_dict(keep_vars=True)
    for name, own in live.items():
        value = given.get(name)
        if isinstance(own, Tensor) and isinstance(value, Tensor) and _alike(own, value):
            own.data = value
            given[name] = own
    model.load_state_dict(given)


def _alike(own: Tensor, value: Tensor) -> bool:
    """Whether ``value`` can take the place of ``own``: in the same order, and with all of its memory."""
    return (
        (own.shape, own.dtype, own.device, own.stride())
        == (value.shape, value.dtype, value.device, value.stride())
        and type(value) is Tensor
        and not value.requires_grad
        and value.untyped_storage().nbytes() == value.numel() * value.element_size()
    )
