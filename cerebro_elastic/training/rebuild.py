"""Applies the changes that training has made to a model's structure to a model that was built anew."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.parameter import is_lazy
from torch.nn.utils import prune
from torch.optim import Optimizer

from cerebro_elastic.errors import CheckpointError
from cerebro_elastic.system.torch_internals import (
    buffers_of,
    modules_of,
    non_persistent_buffers_of,
    parameters_of,
)
from cerebro_elastic.training._torch_internals import finalize_lazy_module, refresh_flat_weights
from cerebro_elastic.training.parallel.optimizer_state import regroup
from cerebro_elastic.training.structure import (
    LAZY,
    PRUNED,
    ModelStructure,
    ModuleOutline,
    TensorOutline,
    where,
)


def rebuild(
    model: nn.Module,
    optimizers: Sequence[Optimizer],
    built: ModelStructure,
    changes: Mapping[str, Any],
    named: Sequence[Mapping[str, Any]],
) -> None:
    """Change the structure of a model; its values are to be loaded afterwards.

    Args:
        model: The model, as it was built.
        optimizers: Its optimizers, as they were built.
        built: The structure of both.
        changes: What ``ModelStructure.changes`` returned.
        named: The states of the optimizers by parameter names.

    Raises:
        CheckpointError: The changes belong to a model that was built differently.
    """
    if "parts" in changes:
        _Rebuild(model, built, changes["parts"]).do()
    if "trained" in changes:
        for name, parameter in model.named_parameters():
            parameter.requires_grad = name in changes["trained"]  # a lazy one does not know requires_grad_()
    if "groups" in changes:
        if changes["groups"] != built.groups:
            raise _otherwise("the optimizers' groups of parameters", changes["groups"], built.groups)
        for optimizer, state in zip(optimizers, named, strict=True):
            regroup(optimizer, model, state)


def finalize_lazy_modules(model: nn.Module) -> None:
    """Do to the lazy modules of ``model`` that have values what their first batch would do."""
    for module in model.modules():
        if isinstance(module, LazyModuleMixin):
            finalize_lazy_module(module)


class _Rebuild:
    def __init__(
        self, model: nn.Module, built: ModelStructure, changes: Mapping[str, Mapping[str, Any]]
    ) -> None:
        self._model = model
        self._built = built.outline
        self._changes = changes
        self._modules = dict(model.named_modules())
        self._device = next((p.device for p in model.parameters()), torch.device("cpu"))

    def do(self) -> None:
        built = dict(self._modules)
        for path, change in self._changes.items():
            was = change["was"] and ModuleOutline(*change["was"])
            if self._built.get(path) != was:
                raise _otherwise(where(self._model, path), was, self._built.get(path))
            if was is None:
                self._modules[path] = _copy_without_tensors(built[change["like"]])
        for path, change in self._changes.items():
            if change["now"] is not None:
                was, now = (ModuleOutline(*(change[key] or ("", (), (), ()))) for key in ("was", "now"))
                self._set_up(self._modules[path], was, now)

    def _set_up(self, module: nn.Module, was: ModuleOutline, now: ModuleOutline) -> None:
        inside = {name: None if at is None else self._modules[at] for name, at in now.modules}
        _refill(modules_of(module), inside)
        specs = dict(was.tensors)
        for hook in dict.fromkeys([*was.hooks, *now.hooks]):
            if hook.startswith(PRUNED):
                _prune(module, specs, hook.removeprefix(PRUNED), hook in now.hooks)
        tables: dict[str, dict[str, Any]] = {"parameter": {}, "buffer": {}}
        hidden = set()
        for name, spec in now.tensors:
            kind = "parameter" if spec[0] == "parameter" else "buffer"
            own = _table(module, kind).get(name)
            tables[kind][name] = own if specs.get(name) == spec else self._tensor(own, specs.get(name), spec)
            if spec[0] == "hidden":
                hidden.add(name)
            module.__dict__.pop(name, None)
        _refill(parameters_of(module), tables["parameter"])
        _refill(buffers_of(module), tables["buffer"])
        names = non_persistent_buffers_of(module)
        names.clear()
        names.update(hidden)
        if LAZY in was.hooks and LAZY not in now.hooks:
            finalize_lazy_modules(module)
        if isinstance(module, nn.RNNBase):
            refresh_flat_weights(module)

    def _tensor(self, own: Tensor | None, was: TensorOutline | None, now: TensorOutline) -> Tensor | None:
        if len(now) < 3:  # none, or tied
            return None
        if LAZY in now:
            return own
        kind, dtype, shape = now
        if own is not None and is_lazy(own):
            own.materialize(shape, dtype=dtype)
            return own
        fresh = torch.empty(shape, dtype=dtype, device=self._device)
        if kind != "parameter":
            return fresh
        if own is None or was is None or len(was) < 3:
            return nn.Parameter(fresh, fresh.is_floating_point() or fresh.is_complex())
        own.grad = None
        own.data = fresh
        return own


def _copy_without_tensors(like: nn.Module) -> nn.Module:
    """A copy of a module that is to get its tensors and modules."""
    inside = [part for table in _tables(like) for part in table.values()]
    module = copy.deepcopy(like, {id(part): None for part in inside if part is not None})
    for table in _tables(module):
        table.clear()
    return module


def _tables(module: nn.Module) -> tuple[dict[str, Any], ...]:
    return modules_of(module), parameters_of(module), buffers_of(module)


def _table(module: nn.Module, kind: str) -> dict[str, Any]:
    """The module's own parameters, or buffers of either kind."""
    return parameters_of(module) if kind == "parameter" else buffers_of(module)


def _refill(table: dict[str, Any], values: Mapping[str, Any]) -> None:
    """In place, for others may refer to the table."""
    table.clear()
    table.update(values)


def _prune(module: nn.Module, specs: dict[str, TensorOutline], name: str, pruned: bool) -> None:
    """Have a parameter pruned, or no longer. It stays the same object under another name."""
    original = f"{name}_orig"
    if pruned and name in parameters_of(module):
        mask = torch.ones_like(getattr(module, name))
        prune.custom_from_mask(module, name, mask)  # type: ignore[no-untyped-call]
        specs[original] = specs.pop(name)
    elif not pruned and original in parameters_of(module):
        prune.remove(module, name)  # type: ignore[no-untyped-call]
        specs[name] = specs.pop(original)


def _otherwise(what: str, was: Any, now: Any) -> CheckpointError:
    return CheckpointError(
        f"the checkpoint was made by a model with {what} built as {was}, here it is {now}: build the same "
        "model in every unit, from hyper-parameters alone"
    )
