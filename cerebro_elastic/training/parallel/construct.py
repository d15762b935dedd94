"""Parts whose initial values nobody will see: made without computing them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from cerebro_elastic.system.torch_internals import MODULE_ATTRIBUTES, non_persistent_buffers_of, parameters_of
from cerebro_elastic.training.parallel.base import Make, Parts


def made(make: Make, *, loaded: bool, hollow: bool = False) -> Parts:
    """What ``make`` makes; if ``loaded``, with parameters whose values are whatever lay in memory, or if they
    shall be ``hollow``, that have no memory: they are on the meta device.

    Only where that makes no difference once a state is loaded: all else is as ever. If anything else is
    random (the generator was drawn from), or a tensor is kept that no state has and that may come from a
    parameter, then all is made as ever.
    """
    if not loaded:
        return make()
    before = torch.get_rng_state()
    with _NoInitialValues():
        parts = make()
    if torch.equal(torch.get_rng_state(), before) and not keeps_tensors(parts.model):
        return _emptied(parts) if hollow else parts
    torch.set_rng_state(before)
    return make()


def _emptied(parts: Parts) -> Parts:
    """The parts with parameters on the meta device, tied ones as before."""
    empty: dict[Tensor, nn.Parameter] = {}
    for module in parts.model.modules():
        for name, own in parameters_of(module).items():
            if own is not None and own not in empty:
                empty[own] = nn.Parameter(torch.empty_like(own, device="meta"), own.requires_grad)
            if own is not None:
                parameters_of(module)[name] = empty[own]
    for group in parts.optimizer.param_groups:
        group["params"] = [empty.get(own, own) for own in group["params"]]
    slots = {empty.get(own, own): kept for own, kept in parts.optimizer.state.items()}
    parts.optimizer.state.clear()
    parts.optimizer.state.update(slots)
    return parts


class _NoInitialValues(TorchFunctionMode):
    """Inside it, initialising a parameter leaves it as it is.

    Unlike construction on the meta device it leaves alone everything else that a model may keep: buffers,
    ties, plain tensors, the optimizer's references.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        tensor = kwargs["tensor"] if "tensor" in kwargs else args[0] if args else None
        if isinstance(tensor, nn.Parameter):
            if getattr(func, "__module__", None) == "torch.nn.init" or func is Tensor.uniform_:
                return tensor
            if func is Tensor.normal_:
                # ``trunc_normal_`` looks at what it got, and draws again what is out of range.
                return tensor.zero_()
        return func(*args, **kwargs)


def keeps_tensors(model: nn.Module) -> bool:
    """Whether the model has tensors that its ``state_dict`` lacks."""
    for module in model.modules():
        if non_persistent_buffers_of(module):
            return True
        own = {key: value for key, value in vars(module).items() if key not in MODULE_ATTRIBUTES}
        if any(True for _ in _tensors(own)):
            return True
    return False


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _tensors(item)
    elif isinstance(value, list | tuple | set):
        for item in value:
            yield from _tensors(item)
