"""Kinds of numpy's and torch's values: numbers, arrays, tensors, modules; copies and sizes of trees."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from cerebro_elastic.system.torch_internals import MODULE_ATTRIBUTES, made_by_compiler
from cerebro_elastic.training.objects.kinds import (
    SAME,
    TAG,
    VIEW,
    Decodes,
    Encodes,
    Kind,
    NotSerializable,
    Tree,
    name_of,
    of,
)
from cerebro_elastic.training.objects.object_index import fits

_NUMBERS = "biufc"


def own_attributes(part: nn.Module) -> dict[str, Any]:
    """The attributes that a user's code has set on a plain module."""
    return {
        name: value
        for name, value in vars(part).items()
        if name not in MODULE_ATTRIBUTES and not made_by_compiler(name)
    }


def into(present: Any, value: Any) -> Any:
    """``value``, written into the memory of ``present`` if it fits."""
    if type(present) is not type(value) or not fits(present, value):
        return value
    if isinstance(present, Tensor):
        present.detach().copy_(value)
    else:
        present[...] = value
    return present


def _viewed(value: Any, path: str, walk: Encodes) -> Tree | None:
    """The tree of a view; ``None`` if the value is the first with its memory."""
    view = walk.memory.view(value)
    if view is None:
        walk.memory.add(value, f"{SAME}:{path}")
        return None
    return {TAG: VIEW, "value": view}


class _Numbers(Kind):
    def tree(self, value: Any, path: str, walk: Encodes) -> Tree | None:
        del path, walk
        return value if value.dtype.kind in _NUMBERS else None


class _Arrays(Kind):
    def tree(self, value: Any, path: str, walk: Encodes) -> Tree | None:
        if type(value) is not np.ndarray or value.dtype.kind not in _NUMBERS:
            return None
        view = _viewed(value, path, walk)
        return value if view is None else view


class _Tensors(Kind):
    """A tensor on the CPU that is no parameter, and has no gradient of its own, is its own tree."""

    def tree(self, value: Any, path: str, walk: Encodes) -> Tree | None:
        if type(value) not in (Tensor, nn.Parameter, nn.Buffer):
            return None
        if (view := _viewed(value, path, walk)) is not None:
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


class _Modules(Kind):
    """Modules that are no part of the model, with their gradients."""

    def tree(self, value: Any, path: str, walk: Encodes) -> Tree | None:
        inside = {"state": dict(value.state_dict()), **walk.module(value, own_attributes, path)}
        if grads := {name: p.grad for name, p in value.named_parameters() if p.grad is not None}:
            inside["grads"] = walk.named(grads, f"{path}/grads")
        return {TAG: self.name, "type": name_of(type(value)), "value": inside}

    def value(self, present: Any, tree: Tree, path: str, walk: Decodes) -> Any:
        if name_of(type(present)) != tree["type"]:
            raise NotSerializable(f"was a {tree['type']}, is now a {name_of(type(present))}")
        walk.keep(path, present)
        inside = tree["value"]
        present.load_state_dict(inside["state"])
        walk.module(present, inside, own_attributes, path)
        grads = walk.named(inside.get("grads", {}), f"{path}/grads")
        for name, parameter in present.named_parameters():
            parameter.grad = grads.get(name)
        return present


def _is_made_of_python(kind: type) -> bool:
    """Whether a module is none of TorchScript's: those hold objects of C++, and carry themselves."""
    return issubclass(kind, nn.Module) and not issubclass(kind, torch.jit.ScriptModule)


TENSORS = (
    _Numbers("number", of(np.generic), identity=False),
    _Arrays("numpy's array", of(np.ndarray)),
    _Tensors("tensor", of(Tensor), made=(Tensor, nn.Parameter, nn.Buffer)),
    _Modules("module", _is_made_of_python),
)


def cloned(tree: Any) -> Any:
    """A copy of the tree with its own tensors and containers."""
    if isinstance(tree, Tensor):
        return tree.clone()
    if isinstance(tree, dict):
        return {key: cloned(item) for key, item in tree.items()}
    if type(tree) in (list, tuple):
        return type(tree)(cloned(item) for item in tree)
    return copy.copy(tree)
