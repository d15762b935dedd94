"""A model that takes a state.

It is made without computing unused initial values. The state's tensors become its own without a copy, so
loading is no pass over the memory.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer
from torch.overrides import TorchFunctionMode

from cerebro_elastic.errors import CheckpointError
from cerebro_elastic.hop.checkpoint import Still, as_they_are
from cerebro_elastic.hop.checkpoint.on_device import copied, is_copy, on_host
from cerebro_elastic.hop.checkpoint.tree import flatten, leaves_in
from cerebro_elastic.system.torch_internals import (
    MODULE_ATTRIBUTES,
    buffers_of,
    non_persistent_buffers_of,
    parameters_of,
)
from cerebro_elastic.training.parallel._torch_internals import give_memory, move_parameter, same_parameters
from cerebro_elastic.training.parallel.base import Make, Parts
from cerebro_elastic.training.parallel.collectives import ranks


def made(make: Make, *, loaded: bool, hollow: bool = False) -> Parts:
    """The result of ``make``; if ``loaded``, with parameters of undefined values, or, if ``hollow``, without
    memory: on the meta device.

    Only where that makes no difference once a state is loaded: all else is as ever. If anything else is
    random (the generator was drawn from), or a tensor is kept that no state has and that may come from a
    parameter, then all is made as ever.
    """
    if not loaded:
        with Zeroed():
            return make()
    before = torch.get_rng_state()
    with _NoInitialValues():
        parts = make()
    if torch.equal(torch.get_rng_state(), before) and not any(True for _ in kept_tensors(parts.model)):
        return _emptied(parts) if hollow else parts
    torch.set_rng_state(before)
    with Zeroed():
        return make()


def place(model: nn.Module, device: torch.device) -> None:
    """Move the model, whose parameters stay the same objects: an optimizer has them."""
    with same_parameters(device):
        model.to(device)


def share_bases(
    model: nn.Module, values: Mapping[str, Any], stays: Container[str], prefix: str, device: torch.device
) -> None:
    """On an accelerator, give frozen parameters whose ``values`` lie in bases (``stays`` has their names
    behind ``prefix``) the copies that units share there. The state is loaded later: see ``hand_over``."""
    if device.type == "cpu":
        return
    for name, own in model.named_parameters():
        value = values.get(name) if f"{prefix}/{name}" in stays and not own.requires_grad else None
        if isinstance(value, Tensor) and not is_lazy(own) and _alike(own, value):
            give_memory(own, copied(value, device))


def unshare_bases(model: nn.Module) -> None:
    """Move the frozen parameters to the host: those in copies of bases become the mapped tensors there."""
    for own in model.parameters():
        if not own.requires_grad and own.device.type != "cpu" and _is_dense(own):
            give_memory(own, on_host(own.detach()))


def _listed(groups: Any) -> Any:
    """Groups of parameters, whose iterators are lists from now on."""
    for group in groups if isinstance(groups, list) else ():
        if isinstance(group, dict) and not isinstance(group["params"], Tensor):
            group["params"] = list(group["params"])
    return groups


@contextmanager
def optimizers_on(device: torch.device, *, loaded: bool) -> Iterator[None]:
    """Within the block an optimizer gets parameters that have moved to ``device``: its copies of them
    (look-ahead, averages) are there, too. If a state will be ``loaded``, frozen ones wait for it, unless the
    optimizer's class is not torch's: those of torch copy nothing."""
    init: Any = Optimizer.__init__

    def placed(self: Optimizer, params: Any, defaults: Any) -> None:
        params = params if isinstance(params, Tensor) else list(params)
        waits = loaded and type(self).__module__.startswith("torch.")
        for own in (leaf for leaf in leaves_in(_listed(params)) if isinstance(leaf, nn.Parameter)):
            if own.device.type == "cpu" and (own.requires_grad or not waits):
                move_parameter(own, device)
        init(self, params, defaults)

    Optimizer.__init__ = placed  # type: ignore[method-assign]
    try:
        yield
    finally:
        Optimizer.__init__ = init  # type: ignore[method-assign]


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


class Zeroed(TorchFunctionMode):
    """Inside it, memory that is left as it is (``torch.empty``) has zeros. Buffers of libraries that nothing
    ever writes (of lightly's memory bank) would differ in each process."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        made = func(*args, **(kwargs or {}))
        if func in _UNWRITTEN:
            with torch.no_grad():  # it may be a leaf
                made.zero_()
        return made


_UNWRITTEN = (torch.empty, torch.empty_like, torch.empty_strided, Tensor.new_empty)


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
                # ``trunc_normal_`` reads its draws, and repeats those out of range.
                return tensor.zero_()
        return func(*args, **kwargs)


def kept_tensors(model: nn.Module) -> Iterator[Tensor]:
    """Tensors of the model that its ``state_dict`` lacks."""
    for module in model.modules():
        hidden = non_persistent_buffers_of(module)
        yield from (own for name, own in buffers_of(module).items() if name in hidden and own is not None)
        others = {key: value for key, value in vars(module).items() if key not in MODULE_ATTRIBUTES}
        yield from (leaf for leaf in leaves_in(others) if isinstance(leaf, Tensor))


def hand_over(
    model: nn.Module, state: Mapping[str, Any], *, strict: bool = True, only: Collection[str] | None = None
) -> None:
    """As ``model.load_state_dict(state)``, but ``model`` then trains in the very tensors of ``state``, or in
    ``only`` those, where they lie in memory as its own do. Parameters stay the same objects, so that an
    optimizer keeps them."""
    given = dict(state)
    if only is None or only:
        # A tensor that a module keeps beside its state may be a view of a parameter.
        viewed = {_memory(tensor) for tensor in kept_tensors(model)}
        for name, own in model.state_dict(keep_vars=True).items():
            value = given.get(name)
            if not (isinstance(own, Tensor) and isinstance(value, Tensor)) or is_lazy(own):
                continue
            if is_copy(own, value):
                own.data = copied(value, own.device)
                given[name] = own
            elif (only is None or name in only) and _alike(own, value) and _memory(own) not in viewed:
                own.data = value
                given[name] = own
    load_values(model, given, strict=strict)


def untrained(
    model: nn.Module, values: Mapping[str, Any] | None, known: Container[str], prefix: str
) -> dict[str, Still]:
    """The tensors of a whole model that get no gradient, as they are in the state ``values`` from which it
    continues, or else in the model itself, by their names behind ``prefix``.

    ``known`` ones are left out. None are returned if they are small, or if the model makes its state in its
    own way. Rank 0 alone gets an answer: it saves whole tensors.
    """
    if type(model).state_dict is not nn.Module.state_dict or ranks()[0]:
        return {}
    trained = {name for name, own in model.named_parameters(remove_duplicate=False) if own.requires_grad}
    tensors = model.state_dict() if values is None else values
    idle = {
        name: own.detach()
        for name, own in tensors.items()
        if name not in trained and isinstance(own, Tensor) and not own.is_quantized and _is_dense(own)
    }
    tied = {_view(own) for name, own in idle.items() if f"{prefix}/{name}" in known}
    _, leaves = flatten({prefix: {name: own for name, own in idle.items() if _view(own) not in tied}})
    return as_they_are(leaves)


def _view(tensor: Tensor) -> tuple[Any, ...]:
    return (tensor.data_ptr(), tensor.shape, tensor.stride())


def _is_dense(tensor: Tensor) -> bool:
    return tensor.layout is torch.strided and not is_lazy(tensor) and type(tensor.detach()) is Tensor


def _memory(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr() if _is_dense(tensor) else 0


def load_values(model: nn.Module, state: Mapping[str, Any], *, strict: bool = True) -> None:
    """``model.load_state_dict``, for sparse tensors, too; lazy tensors of ``model`` need not be in ``state``.
    Raises ``CheckpointError`` if it does not fit."""
    for name, value in state.items():
        if isinstance(value, Tensor) and value.layout is not torch.strided:
            _put_sparse(model, name, value)
    tensors = (*model.named_parameters(), *model.named_buffers())
    lazy = {name for name, value in tensors if is_lazy(value)} - state.keys()
    try:
        keys = model.load_state_dict(state, strict=strict and not lazy)
        if strict and lazy and (wrong := {*keys.missing_keys, *keys.unexpected_keys} - lazy):
            raise RuntimeError(f"missing or unexpected: {', '.join(sorted(wrong))}")
    except RuntimeError as exc:
        reason = " ".join(str(exc).split())
        raise CheckpointError(
            f"the checkpoint does not fit {type(model).__name__}: {reason}; build the same model in every "
            "unit, from hyper-parameters alone"
        ) from exc


def _put_sparse(model: nn.Module, name: str, value: Tensor) -> None:
    """As it is: into a sparse tensor with other elements none can be copied."""
    path, _, leaf = name.rpartition(".")
    owner = model.get_submodule(path)
    own = buffers_of(owner).get(leaf)
    if own is not None:
        buffers_of(owner)[leaf] = value.to(own.device, copy=True)


def _alike(own: Tensor, value: Tensor) -> bool:
    """Whether ``value`` can take the place of ``own``: in the same order, and with all of its memory."""
    return own.layout is value.layout is torch.strided and (
        (own.shape, own.dtype, own.device, own.stride())
        == (value.shape, value.dtype, value.device, value.stride())
        and type(value) is Tensor
        and not value.requires_grad
        and value.untyped_storage().nbytes() == value.numel() * value.element_size()
    )
