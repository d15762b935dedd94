"""From a tree back to objects: into the objects at the same paths."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from cerebro_elastic.hop.objects.kinds import (
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
from cerebro_elastic.hop.objects.object_index import ObjectIndex, into, is_array, same_memory, viewed
from cerebro_elastic.hop.objects.table import OPAQUE, kinds_by_name, makeable

if TYPE_CHECKING:
    import torch


class Decoder:
    """One walk over a tree.

    Args:
        at_setup: The objects that are there, by path.
        device: Where tensors go that were on an accelerator; ``None`` without tensors.
        known: Objects by the names that the encoder had for them.
        marks: Names of attributes to leave alone.
        lenient: Whether attributes that refer to absent objects stay as they are.
    """

    def __init__(
        self,
        at_setup: ObjectIndex,
        device: torch.device | None = None,
        known: Mapping[str, Any] | None = None,
        marks: frozenset[str] = frozenset(),
        *,
        lenient: bool = False,
    ) -> None:
        self.device = device
        self._lenient = lenient
        self._kinds = kinds_by_name()
        self._at_setup = at_setup
        self._known = known or {}
        self._marks = marks
        self._decoded: dict[str, Any] = {}

    def value(self, tree: Tree, path: str = "") -> Any:
        """The value of ``tree``; raises ``NotSerializable`` if an object that it needs is missing."""
        kind = type(tree)
        if kind is dict and TAG in tree:
            return self._tagged(tree, path)
        if kind in (list, dict) or is_array(tree):
            return self._plain(tree, path, path)
        if kind is tuple:
            return tuple(self.items(tree, path))
        return tree

    def named(self, trees: Mapping[str, Tree], path: str) -> dict[str, Any]:
        """The values of ``trees`` at ``path``."""
        return {
            name: tree if type(tree) in LEAVES else self.value(tree, f"{path}/{name}")
            for name, tree in trees.items()
        }

    def items(self, trees: Iterable[Tree], path: str) -> list[Any]:
        """The values of ``trees`` at ``path``."""
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
        if (found := makeable(name)) is None:
            raise NotSerializable(f"was a {name}, is now a {name_of(kind)}")
        return found

    def keep(self, path: str, value: Any) -> Any:
        """Have ``value`` be the object at ``path``, for all that refer to it."""
        self._decoded[path] = value
        return value

    def attributes(self, owner: object, own: Mapping[str, Any], tree: Tree, path: str = "") -> None:
        """Restore the attributes that ``Encoder.attributes`` has encoded, and remove the other names of
        ``own``, the present attributes. No user's code runs."""
        restored = self.own(own, tree, path)
        for name in own.keys() - restored.keys() - self._marks:
            del vars(owner)[name]
        for name, value in restored.items():
            if name not in own or own[name] is not value:
                vars(owner)[name] = value

    def own(self, present: Mapping[str, Any], trees: Mapping[str, Tree], path: str) -> dict[str, Any]:
        """The attributes that ``Encoder.attributes`` has turned into ``trees``; one that was left out is as
        at ``present``, or is missing."""
        restored = {}
        for name, tree in trees.items():
            stays = type(tree) is dict and tree.get(TAG) == OPAQUE.name and "born" not in tree
            try:
                if not (stays and name in present):
                    restored[name] = self.value(tree, f"{path}/{name}")
            except NotSerializable as exc:
                if not (self._lenient or stays):
                    raise NotSerializable(f"{name!r}: {exc}") from None
            if name not in restored and name in present:
                restored[name] = present[name]
        return restored

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
        if tag not in self._kinds:
            raise NotSerializable(f"was of the unknown kind {tag!r}")
        return self._kinds[tag].value(present, tree, path, self)

    def _plain(self, tree: Tree, path: str, born: Any) -> Any:
        present: Any = self._at_setup.objects.get(born)
        if is_array(tree):
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
            raise NotSerializable(f"was {name}, which this process does not have")
        return self._known[name]

    def _seen(self, path: str) -> Any:
        """The object at ``path``."""
        value = self._decoded.get(path, self._at_setup.objects.get(path))
        if value is None:
            raise NotSerializable(f"was the same as {path}, which this process does not have")
        return value

    def _viewed(self, present: Any, view: dict[str, Any]) -> Any:
        where, _, name = view["of"].partition(":")
        holder = self._by_name(name) if where == KNOWN else self._seen(name)
        value = viewed(holder, view)
        same = is_array(present) and same_memory(present, value)
        return present if same else value
