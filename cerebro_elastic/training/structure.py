"""What a model consists of, and how training has changed that.

Every unit builds its model anew, while an ordinary fit keeps one model. During that, lazy layers become real
ones, parameters are pruned or frozen, buffers get another shape or type. A unit compares the structure of its
model at the end with that at the beginning. The difference hops; ``rebuild`` applies it to the next unit's
model before that gets its values. Parameters that come are refused, and so are layers of a user's with
parameters.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.nn.utils.prune import BasePruningMethod
from torch.optim import Optimizer

from cerebro_elastic.errors import TaskError
from cerebro_elastic.system.torch_internals import (
    buffers_of,
    modules_of,
    non_persistent_buffers_of,
    parameters_of,
)
from cerebro_elastic.training._torch_internals import (
    CALL_HOOK_TABLES,
    OPTIMIZER_HOOK_TABLES,
    PARAMETER_HOOK_TABLES,
    hooks_of,
    is_lazy_hook,
    pruned_name,
)
from cerebro_elastic.training.objects.kinds import name_of
from cerebro_elastic.training.parallel.optimizer_state import group_names

TensorOutline: TypeAlias = tuple[Any, ...]
"""A tensor: its kind (``parameter``, ``buffer``, or ``hidden`` for a buffer that the state dict leaves out),
dtype and shape. A tied tensor has kind and its name elsewhere in the model; an uninitialized one kind,
``lazy`` and ``None``; ``None`` has its kind alone."""

LAZY = "lazy"
PRUNED = "pruned:"


class ModuleOutline(NamedTuple):
    kind: str
    """The full name of its class."""
    modules: tuple[tuple[str, str | None], ...]
    """The modules right inside it: by name, the path at which each is first met."""
    tensors: tuple[tuple[str, TensorOutline], ...]
    """Its own tensors, by name."""
    hooks: tuple[str, ...]
    """Labels of its hooks."""


ModelOutline: TypeAlias = Mapping[str, ModuleOutline]
"""The modules by their paths, outer ones first."""

ModuleChange: TypeAlias = Mapping[str, Any]
"""A module's outlines ``was`` and ``now`` (``None``: it was or is not there), and for a new one the path of
the module that it is ``like``."""


class ModelStructure:
    """The structure of ``model`` and the parameter groups of its ``optimizers`` as they are built."""

    def __init__(self, model: nn.Module, optimizers: Sequence[Optimizer]) -> None:
        self.outline = outline(model)
        self.groups = [group_names(optimizer, model) for optimizer in optimizers]
        self._trained = _trained(model)
        self._kinds = [type(optimizer) for optimizer in optimizers]
        self._hooks = [_hooks_of_optimizer(optimizer) for optimizer in optimizers]

    def changes(self, model: nn.Module, optimizers: Sequence[Optimizer]) -> dict[str, Any]:
        """What training has changed: nothing, as a rule.

        Raises:
            TaskError: A change cannot be applied to the next unit's model.
        """
        if [type(optimizer) for optimizer in optimizers] != self._kinds:
            raise TaskError(
                f"{type(model).__name__} had the optimizers {_kinds(self._kinds)} and has "
                f"{_kinds(map(type, optimizers))} now: keep them, and change their groups of parameters"
            )
        for optimizer, before in zip(optimizers, self._hooks, strict=True):
            _compare_hooks(type(optimizer).__name__, before, _hooks_of_optimizer(optimizer))
        now = outline(model)
        parts = {"parts": self._parts(model, now)} if now != self.outline else {}
        return {**parts, **self._trained_and_groups(model, optimizers)}

    def refrozen(
        self, carried: Mapping[str, Any], model: nn.Module, optimizers: Sequence[Optimizer]
    ) -> dict[str, Any]:
        """What training has changed in a model whose tensors are divided among ranks: which parameters are
        frozen, and the optimizers' groups. ``carried`` are the changes that the unit began with."""
        parts = {"parts": carried["parts"]} if "parts" in carried else {}
        return {**parts, **self._trained_and_groups(model, optimizers)}

    def _trained_and_groups(self, model: nn.Module, optimizers: Sequence[Optimizer]) -> dict[str, Any]:
        trained, groups = _trained(model), [group_names(optimizer, model) for optimizer in optimizers]
        return {
            **({"trained": trained} if trained != self._trained else {}),
            **({"groups": self.groups} if groups != self.groups else {}),
        }

    def _parts(self, model: nn.Module, now: ModelOutline) -> dict[str, ModuleChange]:
        parts: dict[str, ModuleChange] = {}
        modules = dict(model.named_modules())
        built = {path: modules[path] for path, part in self.outline.items() if now.get(path) == part}
        for path in {**self.outline, **now}:
            was, is_now = self.outline.get(path), now.get(path)
            if was == is_now:
                continue
            like = _like(modules[path], built) if was is None else None
            if like is None and is_now is not None and not (was and _is_as_built(was, is_now)):
                raise TaskError(
                    f"{where(model, path)}: layers or parameters have come, gone or been replaced during "
                    "training, which the next unit's model would lack: make them all in the constructor, and "
                    "freeze or skip those that are not used yet"
                )
            if was is not None and is_now is not None:
                _check_hooks(model, path, was, is_now)
            parts[path] = {"was": was and tuple(was), "now": is_now and tuple(is_now), "like": like}
        return parts


def _like(new: nn.Module, built: Mapping[str, nn.Module]) -> str | None:
    """The path of a module of the class of ``new``, a layer of torch's or one without parameters:
    torchmetrics' ``MetricTracker`` copies a metric in each epoch. A copy of that one gets the attributes of
    ``new``. ``None`` if there is none."""
    plain = type(new).__module__.startswith("torch.nn.") or next(new.parameters(), None) is None
    if not plain or any(hooks_of(new, table) for table in CALL_HOOK_TABLES):
        return None
    return next((path for path, other in built.items() if type(other) is type(new)), None)


def _is_as_built(was: ModuleOutline, now: ModuleOutline) -> bool:
    """Whether a module has the parameters that its constructor made: they may be frozen, pruned, of another
    shape, or no longer lazy. Buffers may come and go."""
    same = was.kind == now.kind or (LAZY in was.hooks and LAZY not in now.hooks)
    return same and _parameters_in(was) == _parameters_in(now)


def _parameters_in(part: ModuleOutline) -> set[tuple[str, str]]:
    """Their names, with those of parameters that are tied to others. A pruned one counts as what it was."""
    pruned = {f"{hook.removeprefix(PRUNED)}_orig" for hook in part.hooks if hook.startswith(PRUNED)}
    return {
        (name.removesuffix("_orig") if name in pruned else name, spec[1] if len(spec) == 2 else "")
        for name, spec in part.tensors
        if spec[0] == "parameter" and len(spec) > 1
    }


def outline(model: nn.Module) -> dict[str, ModuleOutline]:
    parts: dict[str, ModuleOutline] = {}
    paths: dict[nn.Module, str] = {}
    tensors: dict[int, str] = {}
    for path, part in model.named_modules():
        paths[part] = path
        hidden = non_persistent_buffers_of(part)
        specs = [
            (name, _spec("parameter", path, name, own, tensors)) for name, own in parameters_of(part).items()
        ]
        specs += [
            (name, _spec("hidden" if name in hidden else "buffer", path, name, own, tensors))
            for name, own in buffers_of(part).items()
        ]
        parts[path] = ModuleOutline(name_of(type(part)), (), tuple(specs), _hooks(part))
    for part, path in paths.items():
        if inside := modules_of(part):
            modules = tuple((name, None if m is None else paths[m]) for name, m in inside.items())
            parts[path] = parts[path]._replace(modules=modules)
    return parts


def _trained(model: nn.Module) -> list[str]:
    """The names of the parameters that are not frozen."""
    return [name for name, parameter in model.named_parameters() if parameter.requires_grad]


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


def _spec(kind: str, path: str, name: str, tensor: Tensor | None, seen: dict[int, str]) -> TensorOutline:
    if tensor is None:
        return (kind,)
    full = f"{path}.{name}" if path else name
    if (first := seen.setdefault(id(tensor), full)) != full:
        return kind, first
    if is_lazy(tensor):
        return kind, LAZY, None
    return kind, tensor.dtype, tuple(tensor.shape)


def _hooks(part: nn.Module) -> tuple[str, ...]:
    own = [_label(hook) for table in CALL_HOOK_TABLES for hook in hooks_of(part, table).values()]
    of_parameters = [
        f"{_label(hook)} of {name}"
        for name, parameter in parameters_of(part).items()
        if parameter is not None
        for table in PARAMETER_HOOK_TABLES
        for hook in hooks_of(parameter, table).values()
    ]
    return (*own, *of_parameters)


def _label(hook: Any) -> str:
    if isinstance(hook, BasePruningMethod):
        return f"{PRUNED}{pruned_name(hook)}"
    name = getattr(hook, "__qualname__", type(hook).__qualname__)
    return LAZY if is_lazy_hook(name) else str(name)


def _hooks_of_optimizer(optimizer: Optimizer) -> list[str]:
    return [_label(hook) for table in OPTIMIZER_HOOK_TABLES for hook in hooks_of(optimizer, table).values()]


def _check_hooks(model: nn.Module, path: str, was: ModuleOutline, now: ModuleOutline) -> None:
    before, after = ([hook for hook in part.hooks if not _is_known(hook)] for part in (was, now))
    _compare_hooks(where(model, path), before, after)


def _compare_hooks(owner: str, before: Sequence[str], after: Sequence[str]) -> None:
    if before != after:
        changed = ", ".join(
            dict.fromkeys(hook for hook in [*before, *after] if hook not in before or hook not in after)
        )
        raise TaskError(
            f"{owner} has got or lost a hook during training ({changed or 'their order'}), "
            "which the next unit's would lack: register hooks in the constructor or in setup(), and keep them"
        )


def _is_known(hook: str) -> bool:
    return hook == LAZY or hook.startswith(PRUNED)


def where(model: nn.Module, path: str) -> str:
    """A module as its user calls it."""
    return f"{type(model).__name__}.{path}" if path else type(model).__name__


def _kinds(kinds: Iterable[type]) -> str:
    return ", ".join(kind.__name__ for kind in kinds) or "none"
