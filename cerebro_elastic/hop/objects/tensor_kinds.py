"""Kinds of torch's values: tensors, generators, and modules that are no part of the model."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from cerebro_elastic.hop.instances import made_by_compiler
from cerebro_elastic.hop.objects.kinds import (
    TAG,
    Decodes,
    Encodes,
    Kind,
    NotSerializable,
    Tree,
    name_of,
    of,
)
from cerebro_elastic.hop.objects.object_index import into
from cerebro_elastic.hop.objects.value_kinds import generator_kind, view_of
from cerebro_elastic.system.torch_internals import (
    MODULE_ATTRIBUTES,
    buffers_of,
    non_persistent_buffers_of,
    version_of,
)


class _Plain(Kind):
    """Values that a checkpoint holds as they are."""

    def tree(self, value: Any, path: str, walk: Encodes) -> Tree | None:
        del path, walk
        return value


class _Tensors(Kind):
    """A tensor on the CPU that is no parameter, and has no gradient, is its own tree."""

    def tree(self, value: Any, path: str, walk: Encodes) -> Tree | None:
        if type(value) not in (Tensor, nn.Parameter, nn.Buffer):
            return None
        if (view := view_of(value, path, walk)) is not None:
            return view
        trained = isinstance(value, nn.Parameter) or (value.requires_grad and value.is_leaf)
        tensor = value.detach()
        if not trained and tensor.device.type == "cpu":
            return tensor
        tree = {TAG: self.name, "type": name_of(type(value)), "value": tensor}
        if trained:
            tree["trained"] = value.requires_grad
            if value.grad is not None:
                tree["grad"] = walk.tree(value.grad, f"{path}/grad")
        return tree

    def value(self, present: Any, tree: Tree, path: str, walk: Decodes) -> Any:
        content = tree["value"]
        if tree["type"] == name_of(nn.Parameter):
            value = present if type(present) is nn.Parameter else nn.Parameter(content, tree["trained"])
            value.data = content.to(value.device)
        elif "trained" in tree:
            leaf = isinstance(present, Tensor) and present.is_leaf and present.requires_grad
            value = into(present, content.to(present.device)) if leaf else content.to(walk.device)
        else:
            value = into(present, content.to(walk.device))
        walk.keep(path, value)
        if "trained" in tree:
            value.requires_grad = tree["trained"]
            value.grad = walk.value(tree["grad"], f"{path}/grad") if "grad" in tree else None
        return value


def own_attributes(part: nn.Module) -> dict[str, Any]:
    """The attributes that a user's code has set on a plain module."""
    return {
        name: value
        for name, value in vars(part).items()
        if name not in MODULE_ATTRIBUTES and not made_by_compiler(name)
    }


def module_tree(
    walk: Encodes, module: nn.Module, own: Callable[[Any], Mapping[str, Any]], path: str = ""
) -> Tree:
    """The tree of a module without its state dict.

    It has non-persistent buffers that changed since set-up, and the attributes of each module in it that
    ``own`` returns. Which parameters are frozen is a part of its structure.
    """
    parts = {at: (part, f"{path}/{at}" if at else path) for at, part in module.named_modules()}
    return {
        "buffers": {at: moved for at, place in parts.items() if (moved := _moved_buffers(walk, *place))},
        "attributes": {at: walk.attributes(own(part), where) for at, (part, where) in parts.items()},
    }


def restore_module(
    walk: Decodes, module: nn.Module, tree: Tree, own: Callable[[Any], Mapping[str, Any]], path: str = ""
) -> None:
    """Restore the tree of ``module_tree``, after the state dict."""
    for at, buffers in tree["buffers"].items():
        table = buffers_of(module.get_submodule(at))
        for name, buffer in buffers.items():
            table[name] = buffer if buffer is None else into(table.get(name), buffer.to(walk.device))
    parts = list(module.named_modules())  # the hash of a torchmetric depends on its state
    for at, part in parts:
        if at not in tree["attributes"]:
            raise NotSerializable(f"has the part {at}, which it did not have")
        walk.attributes(part, own(part), tree["attributes"][at], f"{path}/{at}" if at else path)


def trained_names(module: nn.Module) -> list[str]:
    """The names of the parameters that are not frozen."""
    return [name for name, parameter in module.named_parameters() if parameter.requires_grad]


def set_trained(module: nn.Module, names: Iterable[str]) -> None:
    """Have the parameters of these names be trained, and all others be frozen."""
    trained = set(names)
    for name, parameter in module.named_parameters():
        parameter.requires_grad = name in trained  # a lazy one has no requires_grad_()


def _moved_buffers(walk: Encodes, part: nn.Module, path: str) -> dict[str, Tensor | None]:
    """Restored tensors are moved, too: they were written to."""
    moved, hidden = dict[str, Tensor | None](), non_persistent_buffers_of(part)
    for name, buffer in buffers_of(part).items() if hidden else ():
        if name in hidden and walk.has_moved(f"{path}/{name}", buffer, version_of(buffer)):
            moved[name] = buffer if buffer is None else buffer.detach()
    return moved


class _Modules(Kind):
    """Modules that are no part of the model, with their gradients."""

    def tree(self, value: Any, path: str, walk: Encodes) -> Tree | None:
        inside = {
            "state": dict(value.state_dict()),
            "trained": trained_names(value),
            **module_tree(walk, value, own_attributes, path),
        }
        if grads := {name: p.grad for name, p in value.named_parameters() if p.grad is not None}:
            inside["grads"] = walk.named(grads, f"{path}/grads")
        return {TAG: self.name, "type": name_of(type(value)), "value": inside}

    def value(self, present: Any, tree: Tree, path: str, walk: Decodes) -> Any:
        if name_of(type(present)) != tree["type"]:
            raise NotSerializable(f"was a {tree['type']}, is now a {name_of(type(present))}")
        walk.keep(path, present)
        inside = tree["value"]
        present.load_state_dict(inside["state"])
        set_trained(present, inside["trained"])
        restore_module(walk, present, inside, own_attributes, path)
        grads = walk.named(inside.get("grads", {}), f"{path}/grads")
        for name, parameter in present.named_parameters():
            parameter.grad = grads.get(name)
        return present


def _is_made_of_python(kind: type) -> bool:
    """Whether a module is none of TorchScript's: those hold objects of C++, and carry themselves."""
    return issubclass(kind, nn.Module) and not issubclass(kind, torch.jit.ScriptModule)


TENSORS = (
    _Plain("torch's value", of(torch.dtype, torch.Size), identity=False),
    _Tensors("tensor", of(Tensor), made=(Tensor, nn.Parameter, nn.Buffer)),
    _Modules("module", _is_made_of_python),
    Kind(  # where a config trains is no part of its state
        "device", of(torch.device), str, make=lambda kind, tree: kind(tree["value"]), made=(torch.device,),
        identity=False,
    ),
    generator_kind(torch.Generator, torch.Generator.get_state, torch.Generator.set_state),
)  # fmt: skip


def cloned(tree: Any) -> Any:
    """A copy of the tree with its own tensors and containers."""
    if isinstance(tree, Tensor):
        return tree.clone()
    if isinstance(tree, dict):
        return {key: cloned(item) for key, item in tree.items()}
    if type(tree) in (list, tuple):
        return type(tree)(cloned(item) for item in tree)
    return copy.copy(tree)
