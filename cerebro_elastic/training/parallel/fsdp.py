"""Parameters, gradients and optimizer state sharded over the ranks: for models that do not fit one."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from cerebro_elastic.errors import RecipeError, TaskError, did_you_mean
from cerebro_elastic.hop import checkpoint
from cerebro_elastic.hop.optimizer_state import NamedState, take, to_names
from cerebro_elastic.training.parallel import collectives
from cerebro_elastic.training.parallel._torch_internals import local_tensor_of, sharded_like
from cerebro_elastic.training.parallel.base import Make, Parts, Spread
from cerebro_elastic.training.parallel.collectives import ranks
from cerebro_elastic.training.parallel.construct import made
from cerebro_elastic.training.parallel.data_parallel import (
    Buffers,
    DataParallel,
    mapped,
    taken,
)
from cerebro_elastic.training.parallel.group import mesh


def blocks(model: nn.Module, classes: Sequence[str] | None) -> dict[str, nn.Module]:
    """The modules to shard separately, by name, outermost first; the rest goes with the model itself.

    By default the repeated entries of each ``ModuleList`` or ``Sequential``, such as the layers of a
    transformer; otherwise the modules of the ``classes`` named. Raises ``TaskError`` for a class that the
    model does not have, and for a module that cannot be sharded alone.
    """
    if classes is None:
        candidates, owners = repeated(model), _owners(model)
        return {name: block for name, block in candidates.items() if not _shared(owners, block)}
    chosen = {
        name: module for name, module in model.named_modules() if name and type(module).__name__ in classes
    }
    _check(model, classes, chosen)
    return chosen


def repeated(model: nn.Module) -> dict[str, nn.Module]:
    """The repeated entries of each ``ModuleList`` or ``Sequential``, by name: the model's blocks."""
    repeats: dict[str, nn.Module] = {}
    for name, module in model.named_modules():
        if any(name.startswith(f"{outer}.") for outer in repeats):
            continue
        if isinstance(module, nn.ModuleList | nn.Sequential):
            entries = {key: child for key, child in module.named_children() if _parameters(child)}
            kinds = Counter(type(child) for child in entries.values())
            prefix = f"{name}." if name else ""
            repeats |= {f"{prefix}{key}": child for key, child in entries.items() if kinds[type(child)] > 1}
    return {name: block for name, block in repeats.items() if _callable(block)}


def _check(model: nn.Module, classes: Sequence[str], chosen: dict[str, nn.Module]) -> None:
    present = {type(module).__name__ for name, module in model.named_modules() if name}
    for kind in classes:
        if kind not in present:
            raise TaskError(
                f"wrap: {type(model).__name__} has no module of class {kind!r}; {did_you_mean(kind, present)}"
            )
    owners = _owners(model)
    for name, module in chosen.items():
        if not _callable(module):
            raise TaskError(
                f"wrap: {name} is a {type(module).__name__}, which is never called, so it cannot be sharded "
                "alone: name the class of its entries"
            )
        if shared := _shared(owners, module):
            raise TaskError(
                f"wrap: {name} shares {', '.join(shared)} with a module outside of it, so it cannot be "
                "sharded alone: name a class that holds both, or leave it out"
            )


def _callable(module: nn.Module) -> bool:
    return not isinstance(module, nn.ModuleList | nn.ModuleDict)


def _parameters(module: nn.Module) -> bool:
    return any(True for _ in module.parameters())


def _owners(model: nn.Module) -> Counter[nn.Parameter]:
    """How many modules have each parameter as their own."""
    return Counter(p for module in model.modules() for p in module.parameters(recurse=False))


def _shared(owners: Counter[nn.Parameter], block: nn.Module) -> list[str]:
    """The names of the block's parameters that modules outside of it have too."""
    inside = _owners(block)
    return sorted(name for name, p in block.named_parameters() if inside[p] < owners[p])


_WHOLE = ("Adafactor", "LBFGS", "Muon", "Rprop", "SparseAdam")
"""Optimizers of torch with operations that ``DTensor`` lacks."""
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


class Fsdp(DataParallel):
    """FSDP2, ``torch.distributed.fsdp.fully_shard``.

    ``wrap``: names of the classes that are sharded separately; by default the model's blocks
    (``wrapping.blocks``), with ``[]`` only the whole. ``precision`` is that of the computation, ``reduce``
    that of adding up gradients; by default both are the parameters'. Parameters and optimizer keep their own.
    ``offload`` keeps them in the memory of the CPU while they are not used (without effect on a CPU).
    """

    def __init__(
        self,
        *,
        wrap: Sequence[str] | None = None,
        precision: str | None = None,
        reduce: str | None = None,
        offload: bool = False,
    ) -> None:
        self._wrap = wrap
        self._policy = MixedPrecisionPolicy(
            param_dtype=_dtype("precision", precision),
            reduce_dtype=_dtype("reduce", reduce),
            output_dtype=torch.float32 if precision else None,
        )
        self._offload = offload
        self._place: torch.device
        self._buffers = Buffers()
        self._mapped: dict[str, Tensor] = {}
        """The frozen parameters of the state that lie in a base, whole."""

    def refusal(self, parts: Parts, ranks: int) -> str | None:  # noqa: ARG002
        """Whether the model can be sharded; on one rank it is of use with ``offload``."""
        scalars = [name for name, parameter in parts.model.named_parameters() if parameter.dim() == 0]
        if scalars:
            return f"fsdp cannot shard parameters without dimensions: {', '.join(scalars)}; give them one"
        strided = [name for name, p in parts.model.named_parameters() if not p.is_contiguous()]
        if strided:
            return f"fsdp cannot shard parameters that are not contiguous: {', '.join(strided)}"
        if not any(p.requires_grad for p in parts.model.parameters()):
            return "nothing is trainable"
        if (kind := type(parts.optimizer).__name__) in _WHOLE:
            return f"{kind} does not work on sharded tensors: take AdamW, SGD or the like, or ddp"
        try:
            blocks(parts.model, self._wrap)
        except TaskError as refused:
            return str(refused)
        return None

    def spread(self, ranks: int, device: torch.device) -> Spread:
        """A shard of everything; with ``offload`` it is not on the GPU."""
        share = 0.0 if self._offload and device.type != "cpu" else 1 / ranks
        return Spread(share, share, share)

    def build(self, make: Make, device: torch.device, *, loaded: bool = False) -> Parts:
        """The model sharded in place, and the optimizer pointed to the shards. If a state will be ``loaded``
        they have no memory before: its tensors are put into the model as they arrive."""
        parts = made(make, loaded=loaded, hollow=True)
        self._place = torch.device("cpu") if self._offload else device
        initial = to_names(parts.optimizer, parts.model)
        wrapped = blocks(parts.model, self._wrap)
        self._shard(parts.model, [*wrapped.values()], device)
        _point(parts.optimizer, parts.model, initial, self._place)
        return parts

    def _shard(self, model: nn.Module, wrapped: Sequence[nn.Module], device: torch.device) -> None:
        row = mesh(device)
        offload = CPUOffloadPolicy() if self._offload and device.type != "cpu" else OffloadPolicy()
        # Values passed between blocks stay in the precision of the computation.
        inner = replace(self._policy, output_dtype=None)
        for module in reversed(wrapped):
            fully_shard(module, mesh=row, mp_policy=inner, offload_policy=offload)
        fully_shard(model, mesh=row, mp_policy=self._policy, offload_policy=offload)

    def load(
        self, parts: Parts, model: Mapping[str, Any] | None, optimizer: Mapping[str, Any] | None
    ) -> None:
        """Every rank keeps its shard of each tensor that arrives, or the tensor itself if it is that
        shard."""
        live, names = _state(parts.model), dict(parts.model.named_parameters())
        self._mapped = {}

        def cut(path: tuple[Any, ...], full: Tensor) -> Any:
            match path:
                case ("model", name):
                    if _is_frozen(live.get(name)) and full.is_contiguous() and checkpoint.is_mapped(full):
                        self._mapped[name] = full
                    return _sharded(full, live.get(name), self._place, copy=name not in self._mapped)
                case ("optimizer", "state", name, *_):
                    return _sharded(full, names.get(name), self._place)
            return full

        state = None if model is None else {"model": model, "optimizer": optimizer}
        mine = taken(state, cut, self._place)
        if all(parameter.is_meta for parameter in names.values()):
            _fill(parts, mine["model"], live, self._place)
        else:
            parts.model.load_state_dict(mine["model"])
        take(parts.optimizer, parts.model, mine["optimizer"])

    def update(self, parts: Parts, clip: float | None) -> None:
        """Each rank steps on its shards."""
        super().update(parts, clip)
        self._buffers.agree(parts.model)

    def export(self, parts: Parts) -> tuple[dict[str, Any], dict[str, Any]]:
        """The neutral state, gathered; empty on all ranks but the first."""
        gather = _Gather(ranks()[0])
        model = {name: gather(tensor) for name, tensor in _state(parts.model).items()}
        optimizer = mapped(to_names(parts.optimizer, parts.model), lambda _, tensor: gather(tensor))
        return (model, optimizer) if ranks()[0] == 0 else ({}, {})

    def export_shards(self, parts: Parts) -> tuple[dict[str, Any], dict[str, Any]]:
        """This rank's shards, cut by rows as FSDP2 does it; on the CPU, the live ones. Frozen parameters are
        whole on the first rank, so that they can lie in a base, and ``None`` on the others."""
        detached: dict[int, Any] = {}  # tied ones stay one object
        model, whole = _state(parts.model), self._frozen(parts.model)

        def live(_path: tuple[Any, ...], tensor: Tensor) -> Any:
            return detached.setdefault(id(tensor), tensor.detach())

        shards = {name: value for name, value in model.items() if name not in whole}
        moved = mapped(shards, live)
        optimizer = mapped(to_names(parts.optimizer, parts.model), live)
        return {name: whole[name] if name in whole else moved[name] for name in model}, optimizer

    def _frozen(self, model: nn.Module) -> dict[str, Tensor | None]:
        """The frozen parameters. Tensors that no rank has written to are not gathered: they are the state's
        own."""
        frozen = {name: value for name, value in _state(model).items() if _is_frozen(value)}
        as_loaded = collectives.least_of([self._is_as_loaded(*each) for each in frozen.items()])
        gather, first = _Gather(ranks()[0]), ranks()[0] == 0
        return {
            name: (self._mapped[name] if first else None) if same else gather(value)
            for (name, value), same in zip(frozen.items(), as_loaded, strict=True)
        }

    def _is_as_loaded(self, name: str, shard: Any) -> bool:
        if name not in self._mapped:
            return False
        start = shard.device_mesh.get_local_rank() * _rows_of_a_part(shard)
        own = local_tensor_of(shard).detach().cpu().contiguous()
        return checkpoint.has_its_rows(self._mapped[name], own, start)


def _is_frozen(value: Any) -> bool:
    return isinstance(value, DTensor) and not value.requires_grad


class _Gather:
    """A full tensor on the CPU of rank 0, from the ranks' shards; tied ones are gathered once."""

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._seen: dict[int, Tensor | None] = {}

    def __call__(self, value: Any) -> Any:
        if not isinstance(value, DTensor):
            return value.detach().cpu() if isinstance(value, Tensor) else value
        if id(value) not in self._seen:
            full = value.full_tensor().detach()
            self._seen[id(value)] = full.cpu() if self._rank == 0 else None
        return self._seen[id(value)]


def _point(optimizer: Optimizer, model: nn.Module, initial: NamedState, place: torch.device) -> None:
    """Give ``optimizer`` the parameters that ``model`` has now, by their names, and its state in shards."""
    by_name = dict(model.named_parameters())
    for group, named in zip(optimizer.param_groups, initial["param_groups"], strict=True):
        group["params"] = [by_name[name] for name in named["params"]]
    optimizer.state.clear()
    for name, slots in initial["state"].items():
        optimizer.state[by_name[name]] = {
            key: _sharded(value, by_name[name], place) if isinstance(value, Tensor) else value
            for key, value in slots.items()
        }


def _fill(parts: Parts, state: Mapping[str, Any], live: Mapping[str, Any], place: torch.device) -> None:
    """The tensors of ``state`` become those of a hollow model; tied ones stay one. FSDP2 takes over tensors
    that are assigned in this way."""
    filled: dict[int, Any] = {}
    for name in live.keys() & state.keys():
        if isinstance(own := live[name], Tensor):
            value = state[name].to(place, own.dtype)
            filled[id(own)] = (
                nn.Parameter(value, own.requires_grad) if isinstance(own, nn.Parameter) else value
            )
    values = {name: filled.get(id(live.get(name)), value) for name, value in state.items()}
    before = {parameter: name for name, parameter in parts.model.named_parameters()}
    parts.model.load_state_dict(values, assign=True)
    after = dict(parts.model.named_parameters())
    for group in parts.optimizer.param_groups:
        group["params"] = [after[before[parameter]] for parameter in group["params"]]
    parts.optimizer.state.clear()


def _state(model: nn.Module) -> dict[str, Any]:
    """``state_dict`` with the parameters themselves, so that tied ones are seen to be one."""
    return model.state_dict(keep_vars=True)


def _rows_of_a_part(sharded: DTensor) -> int:
    return math.ceil(len(sharded) / sharded.device_mesh.size())


def _sharded(value: Tensor, like: Any, place: torch.device, *, copy: bool = True) -> Any:
    """This rank's rows of ``value``, as a ``copy`` that does not keep it alive, or ``value`` if it is these,
    as the sharded tensor that ``like`` is; anything else as it is."""
    if not isinstance(like, DTensor):
        return value
    local = local_tensor_of(like).shape
    if value.shape == like.shape != local:
        start = like.device_mesh.get_local_rank() * _rows_of_a_part(like)
        value = value[start : start + local[0]].to(place, copy=copy)
    if value.shape != local:
        return value
    return sharded_like(value.to(place).contiguous(), like)


def _dtype(option: str, name: str | None) -> torch.dtype | None:
    if name is None:
        return None
    if name not in _DTYPES:
        raise RecipeError(f"fsdp: {option} is {name!r}; {did_you_mean(name, _DTYPES)}")
    return _DTYPES[name]
