"""From a tree back to objects: into those that are at the same paths."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from cerebro_elastic.system.torch_internals import buffers_of
from cerebro_elastic.training.objects.kinds import (
    KNOWN,
    LEAVES,
    PLACED,
    SAME,
    TAG,
    VIEW,
    NotSerializable,
    Tree,
    is_key,
    name_of,
)
from cerebro_elastic.training.objects.object_index import ObjectIndex, same_memory, viewed
from cerebro_elastic.training.objects.table import BY_NAME, OPAQUE, makeable
from cerebro_elastic.training.objects.tensor_kinds import into


class Decoder:
    """One walk over a tree.

    Args:
        at_setup: The objects that are there, by path.
        device: Where tensors go that were on an accelerator.
        known: Objects by the names that the encoder had for them.
        classes: The classes that instances can be made of, by their full names.
        marks: Names of attributes to leave alone.
        as_new: Whether the objects become what they were when they were made.
    """

    def __init__(
        self,
        at_setup: ObjectIndex,
        device: torch.device,
        known: Mapping[str, Any] | None = None,
        classes: Mapping[str, type] | None = None,
        marks: frozenset[str] = frozenset(),
        *,
        as_new: bool = False,
    ) -> None:
        self.device = device
        self.as_new = as_new
        self._at_setup = at_setup
        self._known = known or {}
        self._classes = classes or {}
        self._marks = marks
        self._decoded: dict[str, Any] = {}

    def value(self, tree: Tree, path: str = "") -> Any:
        """The value of ``tree``; raises ``NotSerializable`` if an object that it needs is missing."""
        kind = type(tree)
        if kind is dict and TAG in tree:
            return self._tagged(tree, path)
        if kind in (list, dict) or isinstance(tree, Tensor | np.ndarray):
            return self._plain(tree, path, path)
        if kind is tuple:
            return tuple(self.items(tree, path))
        return tree

    def named(self, trees: Mapping[str, Tree], path: str) -> dict[str, Any]:
        """The values of ``trees``, which are at ``path``."""
        return {
            name: tree if type(tree) in LEAVES else self.value(tree, f"{path}/{name}")
            for name, tree in trees.items()
        }

    def items(self, trees: Iterable[Tree], path: str) -> list[Any]:
        """The values of ``trees``, which are at ``path``."""
        return [
            tree if type(tree) in LEAVES else self.value(tree, f"{path}/{at}")
            for at, tree in enumerate(trees)
        ]

    def parts(self, tree: Tree, path: str) -> Any:
        """The parts of the object with this tree."""
        if "pairs" in tree:
            return {
                self.value(key, f"{path}/key {at}"): self.value(item, f"{path}/{key if is_key(key) else at}")
                for at, (key, item) in enumerate(tree["pairs"])
            }
        content = tree["value"]
        if type(content) is list:
            return self.items(content, path)
        if type(content) is dict and TAG not in content:
            return self.named(content, path)
        return self.value(content, f"{path}/parts")

    def class_of(self, tree: Tree, present: Any) -> Any:
        """The type of the value of ``tree``; raises ``NotSerializable`` if it is another one than that of
        ``present``, and no value of it can be made."""
        name, kind = tree["type"], type(present)
        if name_of(kind) == name:
            return kind
        if (found := makeable(name, self._classes)) is None:
            raise NotSerializable(f"was a {name}, is now a {name_of(kind)}")
        return found

    def keep(self, path: str, value: Any) -> Any:
        """Have ``value`` be the object at ``path``, for all that refer to it."""
        self._decoded[path] = value
        return value

    def module(
        self,
        module: nn.Module,
        tree: Tree,
        own: Callable[[Any], Mapping[str, Any]],
        path: str = "",
        *,
        lenient: bool = False,
    ) -> None:
        """Restore what ``Encoder.module`` has encoded, after the state dict. If ``lenient``, attributes that
        refer to objects of the training alone stay as they are."""
        trained = set(tree["trained"])
        for name, parameter in module.named_parameters():
            parameter.requires_grad = name in trained  # a lazy one does not know requires_grad_()
        for at, buffers in tree["buffers"].items():
            table = buffers_of(module.get_submodule(at))
            for name, buffer in buffers.items():
                table[name] = buffer if buffer is None else into(table.get(name), buffer.to(self.device))
        for at, part in list(module.named_modules()):  # a metric's hash depends on its state
            if at not in tree["attributes"]:
                raise NotSerializable(f"the layer {at!r} was not in the model")
            saved = tree["attributes"][at]
            self.attributes(part, own(part), saved, f"{path}/{at}" if at else path, lenient=lenient)

    def attributes(
        self, owner: object, own: Mapping[str, Any], tree: Tree, path: str = "", *, lenient: bool = False
    ) -> None:
        """Restore what ``Encoder.attributes`` has encoded, and remove the other names of ``own``, the present
        attributes."""
        for name in own.keys() - tree.keys() - self._marks:
            _remove(owner, name)
        for name, value in tree.items():
            stays = type(value) is dict and value.get(TAG) == OPAQUE.name and "born" not in value
            if stays and name in own:
                continue
            try:
                restored = self.value(value, f"{path}/{name}")
            except NotSerializable as exc:
                if lenient or stays:
                    continue
                raise NotSerializable(f"{name!r}: {exc}") from None
            if name not in own or own[name] is not restored:
                _set(owner, name, restored)

    def _tagged(self, tree: Tree, path: str) -> Any:
        tag, content = tree[TAG], tree.get("value")
        if tag == KNOWN:
            return self._by_name(content)
        if tag == SAME:
            return self._seen(content)
        born = tree.get("born", path)
        if tag == PLACED:
            return self._plain(content, path, born)
        present = self._at_setup.objects.get(born)
        if tag == VIEW:
            return self.keep(path, self._viewed(present, content))
        if tag not in BY_NAME:
            raise NotSerializable(f"was of the kind {tag!r}, which there is not")
        return BY_NAME[tag].value(present, tree, path, self)

    def _plain(self, tree: Tree, path: str, born: Any) -> Any:
        present: Any = self._at_setup.objects.get(born)
        if isinstance(tree, Tensor | np.ndarray):
            return self.keep(path, into(present, tree))
        value: Any = self.keep(path, present if type(present) is type(tree) else type(tree)())
        if type(tree) is list:
            value[:] = self.items(tree, path)
        else:
            items = self.named(tree, path)
            value.clear()
            value.update(items)
        return value

    def _by_name(self, name: str) -> Any:
        if name not in self._known:
            raise NotSerializable(f"was {name}, which there is not")
        return self._known[name]

    def _seen(self, path: str) -> Any:
        """The object at ``path``."""
        value = self._decoded.get(path, self._at_setup.objects.get(path))
        if value is None:
            raise NotSerializable(f"was the same as {path}, which there is not")
        return value

    def _viewed(self, present: Any, view: dict[str, Any]) -> Any:
        where, _, name = view["of"].partition(":")
        holder = self._by_name(name) if where == KNOWN else self._seen(name)
        value = viewed(holder, view)
        same = isinstance(present, Tensor | np.ndarray) and same_memory(present, value)
        return present if same else value


def _set(owner: object, name: str, value: Any) -> None:
    """Set an attribute without running code of the user's."""
    if isinstance(owner, type):
        type.__setattr__(owner, name, value)
    else:
        vars(owner)[name] = value


def _remove(owner: object, name: str) -> None:
    if isinstance(owner, type):
        type.__delattr__(owner, name)
    else:
        del vars(owner)[name]
