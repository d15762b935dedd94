"""All objects that a unit's code keeps, reached from its roots."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cerebro_elastic.errors import TaskError
from cerebro_elastic.hop.objects.decoder import Decoder
from cerebro_elastic.hop.objects.encoder import Encoder
from cerebro_elastic.hop.objects.kinds import NotSerializable, Tree, name_of
from cerebro_elastic.hop.objects.object_index import ObjectIndex
from cerebro_elastic.system.logs import EventLog

if TYPE_CHECKING:
    import torch

_noted: set[str] = set()
"""The names that this process has already reported as left out."""


@dataclass(frozen=True)
class GraphRoot:
    """An object that is there in every unit."""

    name: str
    """Its name in the trees."""
    owner: Any
    """The object."""
    own: Callable[[Any], Mapping[str, Any]] = vars
    """Returns the attributes of the object."""
    label: str = ""
    """How its user calls it, for errors."""

    def tree(self, walk: Encoder) -> Tree:
        """The part of the object that hops."""
        return walk.attributes(self.own(self.owner), self.name)

    def restore(self, walk: Decoder, tree: Tree) -> None:
        """Put the values of ``tree`` back."""
        walk.attributes(self.owner, self.own(self.owner), tree, self.name)


class ObjectGraph:
    """The objects that can be reached from ``roots``.

    Make it when the unit is set up, before its state is put back.

    Args:
        roots: Where the walk begins.
        known: Returns the objects that are carried elsewhere, by name.
        marks: Names of attributes that are no state.

    Raises:
        TaskError: An attribute is an iterator.
    """

    def __init__(
        self,
        roots: Sequence[GraphRoot],
        known: Callable[[], Mapping[str, object]] = dict,
        marks: frozenset[str] = frozenset(),
    ) -> None:
        self._roots, self._known, self._marks = roots, known, marks
        encoder, trees = self._walk(None)
        self._bare = {name for name, tree in trees.items() if not tree}
        self._at_setup = encoder.index
        for path in self._at_setup.opaque:
            if _is_iterator(value := self._at_setup.objects[path]):
                raise TaskError(
                    f"{self._named(path)} is a {name_of(type(value))}: its position can neither be read nor "
                    "hop to another node. Keep what it iterates over and a number, take the iterator in the "
                    "method that uses it, or give its class state_dict and load_state_dict"
                )

    def restore(self, trees: Mapping[str, Tree], device: torch.device | None = None) -> None:
        """Restore the result of ``carry``; values that it lacks stay as they are.

        Raises:
            TaskError: An object that is needed is missing.
        """
        decoder = Decoder(self._at_setup, device, self._known(), self._marks)
        for root in self._roots:
            if (tree := trees.get(root.name)) is None:
                continue
            try:
                root.restore(decoder, tree)
            except NotSerializable as exc:
                raise TaskError(
                    f"{root.label}, attribute {exc}: its content cannot be restored as after the "
                    "last unit; make the object in the constructor or in setup(), or keep plain values"
                ) from None

    def carry(self, *, changes_allowed: bool = False) -> dict[str, Tree]:
        """The trees of the roots by name.

        Args:
            changes_allowed: Whether objects that do not hop may have changed: after a config's last unit
                nothing hops.

        Raises:
            TaskError: An object that a constructor has made, and that does not hop, has changed.
        """
        encoder, trees = self._walk(self._at_setup)
        if not changes_allowed:
            self._check(encoder)
            self._note(encoder.left_out)
        return {name: tree for name, tree in trees.items() if tree or name not in self._bare}

    def _walk(self, at_setup: ObjectIndex | None) -> tuple[Encoder, dict[str, Tree]]:
        encoder = Encoder(self._known(), at_setup, self._marks, strict=False)
        return encoder, {root.name: root.tree(encoder) for root in self._roots}

    def _check(self, encoder: Encoder) -> None:
        for path, now in encoder.index.opaque.items():
            if now != self._at_setup.opaque.get(path, now):
                was, *_ = self._at_setup.opaque[path]
                raise TaskError(
                    f"{self._named(path)}, a {was}, has changed during training in a way that cannot hop to "
                    "another node: keep changing values in plain values, tensors or objects of your own "
                    "classes, or give its class state_dict and load_state_dict"
                )

    def _note(self, left_out: Mapping[str, Any]) -> None:
        """Report the names that the next unit makes again, once in a process."""
        names = {self._named(path): type(value).__qualname__ for path, value in left_out.items()}
        for name in names.keys() - _noted:
            _noted.add(name)
            EventLog().info("made in training and left out: the next unit makes it again", name=name)

    def _named(self, path: str) -> str:
        """The object at ``path`` as its user calls it."""
        root = next(root for root in self._roots if path.startswith(f"{root.name}/"))
        return f"{root.label}.{path.removeprefix(f'{root.name}/').replace('/', '.')}"


def _is_iterator(value: Any) -> bool:
    """Whether ``value`` moves each time that it is used, and has no position that can be read."""
    return hasattr(type(value), "__next__") and not isinstance(value, io.IOBase)


def tree_of(values: Mapping[str, Any]) -> Tree:
    """The trees of plain values by name, with objects of any class that is made again without its
    constructor. Raises ``TaskError`` for one that holds something else."""
    trees, walk = {}, Encoder(at_setup=ObjectIndex())
    for name, value in values.items():
        try:
            trees[name] = walk.tree(value, name)
            if walk.lost:
                raise NotSerializable(name_of(type(walk.lost[0][1])))
        except NotSerializable as exc:
            raise TaskError(
                f"{name} holds a {exc}, which cannot hop to another node: keep plain values, arrays, or "
                "objects of your own classes"
            ) from None
    return trees


def made_again(trees: Mapping[str, Tree]) -> dict[str, Any]:
    """The values that ``tree_of`` has turned into ``trees``."""
    walk = Decoder(ObjectIndex())
    return {name: walk.value(tree, name) for name, tree in trees.items()}
