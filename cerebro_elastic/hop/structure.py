"""The parts of a model, and their changes by training.

Every unit builds its model again, while an ordinary fit keeps one model. During that, lazy layers become real
ones, parameters are pruned or frozen, buffers get another shape or type, and torchmetrics' ``MetricTracker``
copies metrics. A unit compares the structure of its model at the end with that at the beginning. The
difference hops; ``rebuild`` applies it to the next unit's model before that gets its values. All else is
refused: parameters that come, go or are replaced, layers and hooks that come or go.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.parameter import is_lazy
from torch.nn.utils import prune
from torch.optim import Optimizer

from cerebro_elastic.errors import CheckpointError, TaskError
from cerebro_elastic.hop._torch_internals import (
    CALL_HOOK_TABLES,
    OPTIMIZER_HOOK_TABLES,
    PARAMETER_HOOK_TABLES,
    finalize_lazy_module,
    hooks_of,
    is_lazy_hook,
    pruned_name,
)
from cerebro_elastic.hop.objects.kinds import name_of
from cerebro_elastic.hop.objects.tensor_kinds import set_trained, trained_names
from cerebro_elastic.hop.optimizer_state import group_names, regroup
from cerebro_elastic.system.torch_internals import (
    buffers_of,
    modules_of,
    non_persistent_buffers_of,
    parameters_of,
)

TensorOutline: TypeAlias = tuple[Any, ...] | None
"""A tensor: dtype and shape. A tied one has its name elsewhere in the model, a lazy one ``()``."""


class ModuleOutline(NamedTuple):
    kind: str
    """The full name of its class."""
    modules: dict[str, str | None]
    """The modules right inside it: by name, the path at which each is first met."""
    parameters: dict[str, TensorOutline]
    """Its own, by name; a pruned one by the name that it had before."""
    buffers: dict[str, TensorOutline]
    """Its own, by name."""
    hidden: list[str]
    """The buffers that the state dict leaves out."""
    pruned: list[str]
    """The parameters that are pruned."""
    hooks: list[str]
    """Labels of its hooks besides those of pruned and lazy modules."""


class ModelStructure:
    """The structure of ``model`` and the parameter groups of its ``optimizers`` as they are built."""

    def __init__(self, model: nn.Module, optimizers: Sequence[Optimizer]) -> None:
        self._outline = _outline(model)
        self.groups = [group_names(optimizer, model) for optimizer in optimizers]
        self._trained = trained_names(model)
        self._kinds = [type(optimizer) for optimizer in optimizers]
        self._hooks = [_labels(optimizer, OPTIMIZER_HOOK_TABLES) for optimizer in optimizers]

    def changes(self, model: nn.Module, optimizers: Sequence[Optimizer]) -> dict[str, Any]:
        """The changes by training: none, as a rule.

        Raises:
            TaskError: A change cannot be applied to the next unit's model.
        """
        if [type(optimizer) for optimizer in optimizers] != self._kinds:
            raise TaskError(
                f"{type(model).__name__} had the optimizers {_kinds(self._kinds)} and has "
                f"{_kinds(map(type, optimizers))} now: keep them, and change their groups of parameters"
            )
        for optimizer, before in zip(optimizers, self._hooks, strict=True):
            _compare_hooks(type(optimizer).__name__, before, _labels(optimizer, OPTIMIZER_HOOK_TABLES))
        now = _outline(model)
        parts = {"parts": self._parts(model, now)} if now != self._outline else {}
        return {**parts, **self._trained_and_groups(model, optimizers)}

    def refrozen(
        self, carried: Mapping[str, Any], model: nn.Module, optimizers: Sequence[Optimizer]
    ) -> dict[str, Any]:
        """The changes by training of a model whose tensors are divided among ranks: frozen parameters, and
        the optimizers' groups. ``carried`` are the changes that the unit began with."""
        parts = {"parts": carried["parts"]} if "parts" in carried else {}
        return {**parts, **self._trained_and_groups(model, optimizers)}

    def _trained_and_groups(self, model: nn.Module, optimizers: Sequence[Optimizer]) -> dict[str, Any]:
        trained, groups = trained_names(model), [group_names(optimizer, model) for optimizer in optimizers]
        return {
            **({"trained": trained} if trained != self._trained else {}),
            **({"groups": self.groups} if groups != self.groups else {}),
        }

    def _parts(self, model: nn.Module, now: Mapping[str, ModuleOutline]) -> dict[str, dict[str, Any]]:
        modules = dict(model.named_modules())
        parts: dict[str, dict[str, Any]] = {}
        for path in {**self._outline, **now}:
            was, is_now = self._outline.get(path), now.get(path)
            if was == is_now:
                continue
            like = path if was is not None else self._like(path, modules)
            if like is None or is_now is None or not _is_as_built(was or is_now, is_now):
                raise TaskError(
                    f"{_where(model, path)}: layers or parameters have come, gone or been replaced during "
                    "training, which the next unit's model would lack: make them all in the constructor, and "
                    "freeze or skip those that are not used yet"
                )
            before = was or self._outline[like]
            _compare_hooks(_where(model, path), before.hooks, is_now.hooks)
            parts[path] = {
                "like": like,
                "modules": is_now.modules,
                "real": {n: spec for n, spec in is_now.parameters.items() if before.parameters[n] == ()},
                "pruned": [name for name in is_now.pruned if name not in before.pruned],
                "buffers": is_now.buffers,
                "hidden": is_now.hidden,
            }
        return parts

    def _like(self, path: str, modules: Mapping[str, nn.Module]) -> str | None:
        """The path of a module that was built and can be copied for the new one at ``path``: it is of the
        same class and has no parameters. ``None`` without one."""
        new = modules[path]
        paths = [name for name, _ in new.named_modules()]
        if next(new.parameters(), None) is not None:
            return None
        return next(
            (
                built
                for built in self._outline
                if built in modules
                and type(modules[built]) is type(new)
                and [name for name, _ in modules[built].named_modules()] == paths
            ),
            None,
        )


def rebuild(
    model: nn.Module,
    optimizers: Sequence[Optimizer],
    built: ModelStructure,
    changes: Mapping[str, Any],
    named: Sequence[Mapping[str, Any]],
) -> None:
    """Change the structure of a model; its values are loaded afterwards.

    Args:
        model: The model, as it was built.
        optimizers: Its optimizers, as they were built.
        built: The structure of both.
        changes: The result of ``ModelStructure.changes``.
        named: The states of the optimizers by parameter names.

    Raises:
        CheckpointError: The changes belong to a model that was built differently.
    """
    try:
        _rebuild_parts(model, changes.get("parts", {}))
    except (AttributeError, KeyError) as exc:
        raise CheckpointError(
            f"the checkpoint does not fit {type(model).__name__} ({exc}): build the same model in every "
            "unit, from hyper-parameters alone"
        ) from exc
    finalize_lazy_modules(model)
    if "trained" in changes:
        set_trained(model, changes["trained"])
    if "groups" in changes:
        if changes["groups"] != built.groups:
            raise CheckpointError(
                "the checkpoint was made by a model with the optimizers' groups of parameters "
                f"{changes['groups']}, here they are {built.groups}: build the same model in every unit, "
                "from hyper-parameters alone"
            )
        for optimizer, state in zip(optimizers, named, strict=True):
            regroup(optimizer, model, state)


def finalize_lazy_modules(model: nn.Module) -> None:
    """Initialise the lazy modules of ``model`` that have values, as their first batch would."""
    for module in model.modules():
        if isinstance(module, LazyModuleMixin):
            finalize_lazy_module(module)


def without_uninitialized(state: Mapping[str, Any]) -> Mapping[str, Any]:
    """A state dict without its uninitialized values."""
    lazy = [name for name, value in state.items() if is_lazy(value)]
    if not lazy:
        return state
    kept = type(state)()
    for name, value in state.items():
        if name not in lazy:
            kept[name] = value  # type: ignore[index]
    return kept


def _rebuild_parts(model: nn.Module, parts: Mapping[str, Mapping[str, Any]]) -> None:
    modules = dict(model.named_modules())
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    for path, part in parts.items():
        if path not in modules:
            new = copy.deepcopy(modules[part["like"]])
            modules |= {f"{path}.{inner}".rstrip("."): each for inner, each in new.named_modules()}
    for path, part in parts.items():
        module = modules[path]
        _refill(
            modules_of(module),
            {name: at if at is None else modules[at] for name, at in part["modules"].items()},
        )
        for name, (dtype, shape) in part["real"].items():
            parameter: Any = module.get_parameter(name)
            parameter.materialize(shape, dtype=dtype)
        for name in part["pruned"]:
            mask = torch.ones_like(getattr(module, name))
            prune.custom_from_mask(module, name, mask)  # type: ignore[no-untyped-call]
        own = buffers_of(module)
        _refill(own, {name: _buffer(own.get(name), spec, device) for name, spec in part["buffers"].items()})
        non_persistent_buffers_of(module).clear()
        non_persistent_buffers_of(module).update(part["hidden"])


def _buffer(own: Any, spec: TensorOutline, device: torch.device) -> Any:
    """The buffer ``own`` if it matches ``spec``, else a new one for its values."""
    if spec is None:
        return None
    if len(spec) < 2:  # tied or lazy
        return own
    dtype, shape = spec
    if own is not None and is_lazy(own):
        own.materialize(shape, dtype=dtype)
    same = own is not None and (own.dtype, tuple(own.shape)) == spec
    return own if same else torch.empty(shape, dtype=dtype, device=device)


def _refill(table: dict[str, Any], values: Mapping[str, Any]) -> None:
    """In place, for others may refer to the table."""
    table.clear()
    table.update(values)


def _is_as_built(was: ModuleOutline, now: ModuleOutline) -> bool:
    """Whether a module has the parameters that its constructor made: they may be pruned, or no longer lazy.
    Buffers may come and go."""
    was_lazy = () in was.parameters.values() or () in was.buffers.values()
    same = all(
        name in now.parameters and spec in ((), now.parameters[name]) for name, spec in was.parameters.items()
    )
    pruned = set(was.pruned) <= set(now.pruned)
    return (
        (was.kind == now.kind or was_lazy) and same and pruned and len(was.parameters) == len(now.parameters)
    )


def _outline(model: nn.Module) -> dict[str, ModuleOutline]:
    parts: dict[str, ModuleOutline] = {}
    tensors: dict[int, str] = {}
    paths = {part: path for path, part in model.named_modules()}
    for part, path in paths.items():
        pruned = _pruned(part)
        names = {f"{name}_orig": name for name in pruned}
        parts[path] = ModuleOutline(
            name_of(type(part)),
            {name: None if inner is None else paths[inner] for name, inner in modules_of(part).items()},
            {names.get(n, n): _spec(f"{path}.{n}", own, tensors) for n, own in parameters_of(part).items()},
            {name: _spec(f"{path}.{name}", own, tensors) for name, own in buffers_of(part).items()},
            sorted(non_persistent_buffers_of(part)),
            pruned,
            _labels(part, CALL_HOOK_TABLES) + _labels_of_parameters(part),
        )
    return parts


def _spec(name: str, tensor: Tensor | None, seen: dict[int, str]) -> TensorOutline:
    if tensor is None:
        return None
    if (first := seen.setdefault(id(tensor), name)) != name:
        return (first,)
    return () if is_lazy(tensor) else (tensor.dtype, tuple(tensor.shape))


def _pruned(part: nn.Module) -> list[str]:
    hooks = hooks_of(part, CALL_HOOK_TABLES[0]).values()
    return [pruned_name(hook) for hook in hooks if isinstance(hook, prune.BasePruningMethod)]


def _labels(owner: nn.Module | Tensor | Optimizer, tables: Iterable[str]) -> list[str]:
    hooks = [hook for table in tables for hook in hooks_of(owner, table).values()]
    labels = [
        getattr(hook, "__qualname__", type(hook).__qualname__)
        for hook in hooks
        if not isinstance(hook, prune.BasePruningMethod)
    ]
    return [label for label in labels if not is_lazy_hook(label)]


def _labels_of_parameters(part: nn.Module) -> list[str]:
    return [
        f"{label} of {name}"
        for name, parameter in parameters_of(part).items()
        if parameter is not None
        for label in _labels(parameter, PARAMETER_HOOK_TABLES)
    ]


def _compare_hooks(owner: str, before: Sequence[str], after: Sequence[str]) -> None:
    if before != after:
        changed = ", ".join(
            dict.fromkeys(hook for hook in [*before, *after] if hook not in before or hook not in after)
        )
        raise TaskError(
            f"{owner} has got or lost a hook during training ({changed or 'their order'}), "
            "which the next unit's would lack: register hooks in the constructor or in setup(), and keep them"
        )


def _where(model: nn.Module, path: str) -> str:
    """A module as its user calls it."""
    return f"{type(model).__name__}.{path}" if path else type(model).__name__


def _kinds(kinds: Iterable[type]) -> str:
    return ", ".join(kind.__name__ for kind in kinds) or "none"
