"""Values as trees that a checkpoint can hold, and back.

*Plain* are numbers, strings, tensors, numpy arrays and lists, tuples, sets and dicts of these: they
are their own tree. Other containers, enum members, random generators, modules, objects with
``state_dict`` and ``load_state_dict``, and simple objects whose attributes are all plain become a
*tagged* tree, which is given back by filling the object found in its place: nothing is ever made
from a name in a checkpoint. Anything else (a function, a logger, a tokenizer) is not plain.
"""

from __future__ import annotations

import copy
import functools
import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from typing import Any, Protocol, TypeAlias, runtime_checkable

import lightning.pytorch as pl
import numpy as np
import torch
from torch import Tensor, nn

Tree: TypeAlias = Any

_TAG = "cerebro.kind"
_LEAVES = {type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.Size}
_ON_ACCELERATOR = "tensor on an accelerator"
_PYTHON_CLASS = 1 << 9  # Py_TPFLAGS_HEAPTYPE: what an instance keeps is in its __dict__
_MODULE_OWN = frozenset(vars(nn.Module())) - {"training"}
_LIGHTNING_OWN = _MODULE_OWN.union(
    vars(pl.LightningModule()).keys() - {"training"}, {"_hparams_initial", "_hparams_name"}
)


class NotPlain(Exception):
    """The value has no tree; its text names the type at fault."""


@runtime_checkable
class _Stateful(Protocol):
    def state_dict(self) -> Mapping[str, Any]: ...

    def load_state_dict(self, state: Any) -> Any: ...


def own_attributes(owner: object, marks: frozenset[str] = frozenset()) -> dict[str, Any]:
    """The attributes that a user's code has set, without the machinery of ``nn.Module``, and without
    ``marks``, which others have hung on it."""
    if isinstance(owner, pl.LightningModule):
        ignored = _LIGHTNING_OWN
    else:
        ignored = _MODULE_OWN if isinstance(owner, nn.Module) else frozenset()
    return {
        name: value
        for name, value in vars(owner).items()
        if name not in ignored
        and name not in marks
        and not (name == "_hparams" and not value)  # made empty on first use
    }


class Carrier:
    """Makes trees. ``foreign`` are objects that are carried elsewhere or not at all: not plain here.
    Attributes whose names are ``marks`` are passed over."""

    def __init__(self, foreign: Iterable[object] = (), marks: frozenset[str] = frozenset()) -> None:
        self._closed = set(map(id, foreign))
        self._marks = marks

    def tree(self, value: Any) -> Tree:
        """Raises ``NotPlain``. Tensors are detached, not copied."""
        kind = type(value)
        if kind in _LEAVES:
            return value
        if kind is Tensor:
            tensor = value.detach()
            return tensor if tensor.device.type == "cpu" else {_TAG: _ON_ACCELERATOR, "value": tensor}
        if isinstance(value, np.generic | np.ndarray) and value.dtype.kind in "biufc":
            return value
        with self._inside(value):
            if kind in (list, tuple):
                return kind(self.tree(item) for item in value)
            if kind in (set, frozenset):
                return kind(map(_key, value))
            if kind is dict and _TAG not in value:
                return {_key(key): self.tree(item) for key, item in value.items()}
            return {_TAG: _name(kind), "value": self._content(value)}

    @contextmanager
    def _inside(self, value: object) -> Iterator[None]:
        """Guards against what is foreign, and against an object that holds itself."""
        if id(value) in self._closed:
            raise NotPlain(_name(type(value)))
        self._closed.add(id(value))
        try:
            yield
        finally:
            self._closed.discard(id(value))

    def _content(self, value: Any) -> Tree:
        kind = type(value)
        if isinstance(value, Enum):
            return value.name
        if isinstance(value, torch.device):
            return str(value)
        if isinstance(value, nn.Parameter):
            return value.detach()
        for generator, (get, _) in _GENERATORS.items():
            if isinstance(value, generator):
                return self.tree(get(value))
        if isinstance(value, dict | list | set | tuple | deque) and not getattr(value, "__dict__", None):
            items = value.items() if isinstance(value, dict) else value
            return [self.tree(item) for item in items]
        if isinstance(value, nn.Module):
            return {"state": dict(value.state_dict()), **self.module(value)}
        if isinstance(value, _Stateful):
            return self.tree(dict(value.state_dict()))
        if _is_simple(kind):
            return self.tree(dict(vars(value)))
        raise NotPlain(_name(kind))

    def module(self, module: nn.Module) -> Tree:
        """All of a module but its state dict: which parameters are trained, buffers that are not
        persistent, and the plain attributes of every part."""
        parts = dict(module.named_modules())
        return {
            "trained": [name for name, parameter in module.named_parameters() if parameter.requires_grad],
            "buffers": {
                path: {name: part._buffers[name] for name in part._non_persistent_buffers_set}
                for path, part in parts.items()
                if part._non_persistent_buffers_set
            },
            "attributes": {path: self.attributes(part) for path, part in parts.items()},
        }

    def attributes(self, owner: object) -> Tree:
        """``{"plain": {name: tree}, "other": [names of what is not plain]}``."""
        plain, other = {}, []
        for name, value in own_attributes(owner, self._marks).items():
            try:
                plain[name] = self.tree(value)
            except NotPlain:
                other.append(name)
        return {"plain": plain, "other": other}


def cloned(tree: Tree) -> Tree:
    """The tree with tensors and containers of its own."""
    if isinstance(tree, Tensor):
        return tree.clone()
    if isinstance(tree, dict):
        return {key: cloned(item) for key, item in tree.items()}
    if type(tree) in (list, tuple):
        return type(tree)(cloned(item) for item in tree)
    return copy.copy(tree)


def restored(present: Any, tree: Tree, device: torch.device) -> Any:
    """The value of ``tree``; its tagged parts fill the objects found in ``present``. Raises
    ``NotPlain`` if there is no such object. Tensors that were on an accelerator go to ``device``."""
    kind = type(tree)
    if kind is dict and _TAG in tree:
        return _filled(present, tree[_TAG], tree["value"], device)
    if kind is dict:
        found = present if isinstance(present, dict) else {}
        return {key: restored(found.get(key), item, device) for key, item in tree.items()}
    if kind in (list, tuple):
        return kind(_restored_items(present, tree, device))
    return tree


def restore_module(
    module: nn.Module, tree: Tree, device: torch.device, marks: frozenset[str] = frozenset()
) -> None:
    """Put back what ``Carrier.module`` took, after the state dict. Raises ``NotPlain``."""
    trained = set(tree["trained"])
    for name, parameter in module.named_parameters():
        parameter.requires_grad = name in trained  # a lazy one does not know requires_grad_()
    for path, buffers in tree["buffers"].items():
        for name, buffer in buffers.items():
            module.get_submodule(path)._buffers[name] = None if buffer is None else buffer.to(device)
    for path, part in module.named_modules():
        saved = tree["attributes"].get(path, {"plain": {}, "other": []})
        restore_attributes(part, saved, device, marks)


def restore_attributes(
    owner: object, tree: Tree, device: torch.device, marks: frozenset[str] = frozenset()
) -> None:
    """Put back what ``Carrier.attributes`` took. Raises ``NotPlain``."""
    for name in own_attributes(owner, marks).keys() - tree["plain"].keys() - set(tree["other"]):
        del vars(owner)[name]
    for name, value in tree["plain"].items():
        try:
            vars(owner)[name] = restored(vars(owner).get(name), value, device)
        except NotPlain as exc:
            raise NotPlain(f"{name!r}: {exc}") from None


def _filled(present: Any, kind: str, content: Tree, device: torch.device) -> Any:
    if kind == _ON_ACCELERATOR:
        return content.to(device)
    if _name(type(present)) != kind:
        raise NotPlain(f"was a {kind}, is now a {_name(type(present))}")
    if isinstance(present, torch.device):
        return present  # where a config trains is no part of its state
    if isinstance(present, Enum):
        return type(present)[content]
    if isinstance(present, nn.Parameter):
        present.data = content.to(present.device)
        return present
    for generator, (_, put) in _GENERATORS.items():
        if isinstance(present, generator):
            put(present, restored(None, content, device))
            return present
    if isinstance(present, dict | list | set | tuple | deque):
        return _filled_container(present, content, device)
    if isinstance(present, nn.Module):
        present.load_state_dict(content["state"])
        restore_module(present, content, device)
    elif isinstance(present, _Stateful):
        present.load_state_dict(restored(present.state_dict(), content, device))
    else:
        vars(present).update(restored(dict(vars(present)), content, device))
    return present


def _filled_container(present: Any, content: list[Tree], device: torch.device) -> Any:
    if isinstance(present, dict):
        pairs = [(key, restored(present.get(key), item, device)) for key, item in content]
        present.clear()
        for key, item in pairs:  # not update(): that of a Counter counts
            present[key] = item
        return present
    items = _restored_items(present, content, device)
    if isinstance(present, tuple):
        make: Callable[..., Any] = getattr(type(present), "_make", type(present))
        return make(items)
    present.clear()
    (present.update if isinstance(present, set) else present.extend)(items)
    return present


def _restored_items(present: Any, trees: Any, device: torch.device) -> list[Any]:
    alike = isinstance(present, list | tuple | deque) and len(present) == len(trees)
    old = list(present) if alike else [None] * len(trees)
    return [restored(was, tree, device) for was, tree in zip(old, trees, strict=True)]


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _key(key: Any) -> Any:
    """A dict's key or a set's item: values that need no tree."""
    if type(key) in _LEAVES or (type(key) is tuple and all(type(_key(part)) in _LEAVES for part in key)):
        return key
    raise NotPlain(_name(type(key)))


def _is_simple(kind: type) -> bool:
    """Whether instances are no more than their ``__dict__``."""
    classes = kind.__mro__[:-1]
    return kind is not functools.partial and all(
        base.__flags__ & _PYTHON_CLASS and not vars(base).get("__slots__") for base in classes
    )


def _set_numpy(generator: np.random.Generator, state: Any) -> None:
    generator.bit_generator.state = state


_GENERATORS: dict[type, tuple[Callable[[Any], Any], Callable[[Any, Any], Any]]] = {
    torch.Generator: (torch.Generator.get_state, torch.Generator.set_state),
    np.random.Generator: (lambda generator: generator.bit_generator.state, _set_numpy),
    np.random.RandomState: (np.random.RandomState.get_state, np.random.RandomState.set_state),
    random.Random: (random.Random.getstate, random.Random.setstate),
}
"""How to read and set the state of the random generators that a module may keep."""
