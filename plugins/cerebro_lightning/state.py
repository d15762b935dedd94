"""State of a fit that hops besides a checkpoint of Lightning's: the objects of the module, its callbacks,
optimizers, schedulers and trainer as a graph, and values that a checkpoint leaves out."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.utilities.model_helpers import is_overridden
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from cerebro_elastic.extending.errors import TaskError
from cerebro_elastic.extending.state import (
    MODULE_ATTRIBUTES,
    Decoder,
    Encoder,
    GraphRoot,
    ModelStructure,
    ModuleRoot,
    NotSerializable,
    ObjectGraph,
    OptimizerOptions,
    Tree,
    buffers_of,
    cloned,
    finalize_lazy_modules,
    is_users,
    known_of_model,
    load_values,
    made_by_compiler,
    non_persistent_buffers_of,
    optimizer_root,
    override_options,
    parameters_of,
    rebuild,
    values_equal,
)
from cerebro_elastic.extending.tasks import TaskState
from cerebro_lightning import _lightning_internals
from cerebro_lightning._lightning_internals import (
    average_model_of,
    averages_weights,
    callbacks_of,
    lightning_optimizers_of,
    made_in_setup,
)
from cerebro_lightning.made_anew import put_back
from cerebro_lightning.optimizers import OURS, NamedStateStrategy

MODULE = "module"


def own_attributes(owner: object) -> dict[str, Any]:
    """The attributes that a user's code has set on a module, a part of it or a callback, without the
    machinery of ``nn.Module`` and Lightning."""
    if isinstance(owner, pl.LightningModule):
        ignored = _lightning_internals.MODULE_ATTRIBUTES
    else:
        ignored = MODULE_ATTRIBUTES if isinstance(owner, nn.Module) else made_in_setup(owner)
    return {
        name: value
        for name, value in vars(owner).items()
        if name not in ignored
        and not made_by_compiler(name)
        and not (name == _lightning_internals.HPARAMS and not value)
    }


def names_of(callbacks: Sequence[pl.Callback]) -> list[str]:
    """The roots that exist in every unit: the module, and the callbacks in their order."""
    return [MODULE, *_numbered("callback", callbacks)]


def _numbered(kind: str, objects: Iterable[object]) -> dict[str, Any]:
    return {f"{kind} {number}": each for number, each in enumerate(objects)}


def graph(
    module: pl.LightningModule,
    trainer: pl.Trainer,
    strategy: NamedStateStrategy,
    stock: frozenset[str],
) -> ObjectGraph:
    """All objects that the roots keep, in the order in which they are reached. ``stock`` are the attributes
    of a new trainer."""
    callbacks = callbacks_of(trainer)
    optimizers = strategy.real_optimizers()
    schedulers = [config.scheduler for config in trainer.lr_scheduler_configs]

    def of_trainer(_: object) -> dict[str, Any]:
        return {k: v for k, v in vars(trainer).items() if k not in stock and not k.startswith("_")}

    def known() -> dict[str, object]:
        return {
            **known_of_model(module, optimizers),
            "trainer": trainer,
            **_numbered("Lightning's optimizer", lightning_optimizers_of(strategy)),
            **_numbered("callback", callbacks),
            **_numbered("scheduler", schedulers),
            **_numbered("average", [average_model_of(c) for c in callbacks if averages_weights(c)]),
        }

    roots = roots_of(module, callbacks)
    roots += [optimizer_root(number, optimizer) for number, optimizer in enumerate(optimizers)]
    roots += [
        GraphRoot(name, scheduler, vars, type(scheduler).__name__)
        for name, scheduler in _numbered("scheduler", schedulers).items()
    ]
    roots.append(GraphRoot("trainer", trainer, of_trainer, "trainer"))
    return ObjectGraph(roots, known, strategy.marks)


def roots_of(module: pl.LightningModule, callbacks: Sequence[pl.Callback]) -> list[GraphRoot]:
    """The module and the callbacks. A callback may be a module, too."""
    return [
        (ModuleRoot if isinstance(owner, nn.Module) else GraphRoot)(
            name, owner, own_attributes, type(owner).__name__
        )
        for name, owner in zip(names_of(callbacks), (module, *callbacks), strict=True)
    ]


MISSING, ALTERED = "missing", "altered"


class LeftOut:
    """The weights that a module's own checkpoint leaves out or alters, as ``state_dict`` and
    ``on_save_checkpoint`` may: an ordinary fit continues with them as they are in memory.

    Made before the module gets its state, to see the tensors that training changes: the next unit's
    constructor makes all others again."""

    def __init__(self, module: pl.LightningModule, callbacks: Iterable[pl.Callback]) -> None:
        own = is_overridden("state_dict", module) or is_overridden("on_save_checkpoint", module)
        saves = own or any(is_users(type(c)) and is_overridden("on_save_checkpoint", c) for c in callbacks)
        self._built = {name: _bits(tensor) for name, tensor in _tensors(module)} if saves else {}

    def of(self, module: nn.Module, saved: Mapping[str, Any]) -> dict[str, dict[str, Tensor]]:
        """The tensors of ``module`` that ``saved``, its checkpoint's state dict, lacks or has changed: the
        ``missing`` ones that have changed, and the ``altered`` ones."""
        found: dict[str, dict[str, Tensor]] = {MISSING: {}, ALTERED: {}}
        for name, tensor in _tensors(module):
            stored = saved.get(name)
            if stored is None and self._built.get(name) != _bits(tensor):
                found[MISSING][name] = tensor.detach()
            elif isinstance(stored, Tensor) and not _same(stored, tensor):
                found[ALTERED][name] = tensor.detach()
        return {how: tensors for how, tensors in found.items() if tensors}


def put_left_out(module: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Put the tensors that ``LeftOut.of`` has found into a module."""
    present = dict(_tensors(module))
    with torch.no_grad():
        for name, value in tensors.items():
            if name in present:
                present[name].copy_(value)


def _tensors(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Parameters, and the buffers that a state dict has."""
    for path, part in module.named_modules(remove_duplicate=False):
        hidden = non_persistent_buffers_of(part)
        for name, tensor in (*parameters_of(part).items(), *buffers_of(part).items()):
            if tensor is not None and name not in hidden and not is_lazy(tensor):
                yield f"{path}.{name}" if path else name, tensor


def _same(one: Tensor, other: Tensor) -> bool:
    alike = (one.layout, one.dtype, one.shape) == (other.layout, other.dtype, other.shape)
    aliases = alike and one.layout is torch.strided and one.data_ptr() == other.data_ptr()
    return aliases or (alike and _bits(one) == _bits(other))


def _bits(tensor: Tensor) -> str:
    dense = tensor.detach().to_dense() if tensor.layout is not torch.strided else tensor.detach()
    flat = dense.cpu().resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8)
    return f"{tensor.dtype}{tuple(tensor.shape)}{hashlib.blake2b(flat.numpy().data).hexdigest()}"


def with_own_attributes(state: TaskState, parent: pl.LightningModule, own: pl.LightningModule) -> TaskState:
    """A copy of ``state``, another config's, whose plain attributes have the values of ``own`` where the
    constructor made ``own`` different from ``parent``; both are fresh."""
    trees = [
        _root(module).tree(Encoder(known_of_model(module, ()), strict=False))["attributes"]
        for module in (parent, own)
    ]
    carried = state[OURS]
    module, *callbacks = carried["attributes"]
    module = {**module, "attributes": _own(module["attributes"], *trees)}
    return {**state, OURS: {**carried, "attributes": [module, *callbacks]}}


def set_own_options(
    trainer: pl.Trainer, theirs: Sequence[OptimizerOptions], own: Sequence[OptimizerOptions]
) -> None:
    """Give the optimizers, loaded with another config's state, their own options."""
    schedulers = [config.scheduler for config in trainer.lr_scheduler_configs]
    for optimizer, *built in zip(trainer.optimizers, theirs, own, strict=True):
        moved_by = [s for s in schedulers if getattr(s, "optimizer", None) is optimizer]
        override_options(optimizer, moved_by, *built)


def _own(saved: Tree, parent: Tree, own: Tree) -> Tree:
    if isinstance(saved, Mapping) and isinstance(parent, Mapping) and isinstance(own, Mapping):
        return {
            key: _own(value, parent[key], own[key]) if key in parent and key in own else value
            for key, value in saved.items()
        }
    return saved if values_equal(parent, own) else own


def plain_tensors(logged: Any) -> Any:
    """The ``logged`` values, as tensors of torch's own class: a loss of monai's data is a ``MetaTensor``."""
    if isinstance(logged, dict):
        return {name: plain_tensors(value) for name, value in logged.items()}
    return logged.as_subclass(Tensor) if isinstance(logged, Tensor) else logged


def scheduler_tree(scheduler: Any) -> Tree:
    try:
        return Encoder().tree(dict(scheduler.state_dict()))
    except NotSerializable as exc:
        raise TaskError(
            f"the state of {type(scheduler).__name__} holds a {exc}, which cannot hop to another node: keep "
            "plain values in its state_dict"
        ) from None


def scheduler_state(scheduler: Any, tree: Tree, device: torch.device) -> Any:
    present = Encoder(strict=False)
    present.tree(dict(scheduler.state_dict()))
    return Decoder(present.index, device).value(tree)


def load_state(module: pl.LightningModule, state: TaskState) -> pl.LightningModule:
    """Give a freshly built module the weights and attributes of ``state``; the average weights if a
    ``WeightAveraging`` callback keeps them."""
    checkpoint = {key: cloned(value) for key, value in state.items() if key != OURS}
    if is_overridden("configure_model", module):
        module.configure_model()
    structure = {key: part for key, part in state[OURS]["structure"].items() if key != "groups"}
    rebuild(module, (), ModelStructure(module, ()), structure, ())
    put_back(checkpoint, module, state[OURS].get("made anew", ()))
    module.on_load_checkpoint(checkpoint)
    load_values(module, checkpoint["state_dict"], strict=module.strict_loading)
    put_left_out(module, state[OURS].get("left out", {}).get(MISSING, {}))
    finalize_lazy_modules(module)
    known = known_of_model(module, ())
    root, built = _root(module), Encoder(known, strict=False)
    root.tree(built)
    decoder = Decoder(built.index, torch.device("cpu"), known, lenient=True)
    root.restore(decoder, cloned(state[OURS]["attributes"][0]))
    return module


def _root(module: pl.LightningModule) -> GraphRoot:
    return roots_of(module, ())[0]
