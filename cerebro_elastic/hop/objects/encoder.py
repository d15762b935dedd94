"""From objects to a tree that a checkpoint holds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from cerebro_elastic.hop.instances import made_by_compiler
from cerebro_elastic.hop.objects.kinds import (
    KNOWN,
    LEAVES,
    PLACED,
    REFERENCES,
    SAME,
    TAG,
    NotSerializable,
    Tree,
    is_key,
    name_of,
    torchs,
)
from cerebro_elastic.hop.objects.object_index import MemoryIndex, ObjectIndex
from cerebro_elastic.hop.objects.table import Rows, makeable, opaque
from cerebro_elastic.hop.objects.unchanged import token


class Encoder:
    """One walk over a graph of objects.

    Args:
        known: Objects that are carried elsewhere, by name.
        at_setup: The objects that were there when the unit had been set up.
        marks: Names of attributes to pass over.
        strict: Raise ``NotSerializable`` for opaque values.
    """

    def __init__(
        self,
        known: Mapping[str, object] | None = None,
        at_setup: ObjectIndex | None = None,
        marks: frozenset[str] = frozenset(),
        *,
        strict: bool = True,
    ) -> None:
        self.index = ObjectIndex()
        self.lost: list[tuple[str, Any]] = []
        """Path and value of objects that the next unit lacks at their path, and cannot make."""
        self.left_out: dict[str, Any] = {}
        """By path: the attributes that are left out because they hold such objects, with these."""
        self.memory = MemoryIndex()
        """The tensors and arrays that were met."""
        self._at_setup = at_setup
        self._known = {id(value): name for name, value in (known or {}).items()}
        self._marks = marks
        self.strict = strict
        """Whether opaque values are refused."""
        self._rows = Rows()
        for name, value in (known or {}).items():
            if isinstance(value, torchs("Tensor")):
                self.memory.add(value, f"{KNOWN}:{name}")

    def tree(self, value: Any, path: str = "") -> Tree:
        """The tree of ``value`` at ``path``; raises ``NotSerializable``. Tensors are detached, not copied."""
        kind = type(value)
        if kind in LEAVES:
            return value
        row = self._rows[kind][0]
        if not row.identity and (tree := row.tree(value, path, self)) is not None:
            self.index.objects[path] = value
            if self._at_setup is not None and type(self._at_setup.objects.get(path)) is not kind:
                self._note_lost(tree, value, path)
            return tree
        if (name := self._known.get(id(value))) is not None:
            return {TAG: KNOWN, "value": name}
        if (first := self.index.paths.get(id(value))) is not None:
            return {TAG: SAME, "value": first}
        return self._object(value, path)

    def named(self, values: Mapping[str, Any], path: str) -> dict[str, Tree]:
        """The trees of ``values`` at ``path``."""
        return {
            name: item if type(item) in LEAVES else self.tree(item, f"{path}/{name}")
            for name, item in values.items()
        }

    def items(self, values: Iterable[Any], path: str) -> list[Tree]:
        """The trees of ``values`` at ``path``."""
        return [
            item if type(item) in LEAVES else self.tree(item, f"{path}/{at}")
            for at, item in enumerate(values)
        ]

    def parts(self, parts: Any, path: str) -> dict[str, Tree]:
        """Entries of the tree of an object that consists of ``parts``."""
        kind = type(parts)
        if kind is dict:
            if TAG not in parts and all(map(is_key, parts)):
                return {"value": self.named(parts, path)}
            return {
                "pairs": [
                    [
                        self.tree(key, f"{path}/key {at}"),
                        self.tree(item, f"{path}/{key if is_key(key) else at}"),
                    ]
                    for at, (key, item) in enumerate(parts.items())
                ]
            }
        if kind is list:
            return {"value": self.items(parts, path)}
        return {"value": self.tree(parts, f"{path}/parts")}

    def opaque(self, value: Any, path: str) -> Tree:
        """The tree of a value that is of no kind that can be carried."""
        if self.strict:
            raise NotSerializable(name_of(type(value)))
        self.index.opaque[path] = token(value)
        return opaque(value)

    def is_known(self, value: Any) -> bool:
        """Whether ``value`` is carried elsewhere."""
        return id(value) in self._known

    def has_moved(self, path: str, buffer: Any, writes: int) -> bool:
        """Whether a buffer at ``path`` that a state dict leaves out is another one than at set-up, or was
        written to since."""
        self.index.buffers[path] = buffer, writes
        before = None if self._at_setup is None else self._at_setup.buffers.get(path)
        return before is None or before[0] is not buffer or before[1] != writes

    @contextmanager
    def whole(self) -> Iterator[None]:
        """The block takes an object apart whose parts may be useless alone: it gets all trees, or raises
        ``NotSerializable``."""
        strict, self.strict = self.strict, True
        try:
            with self._undone():
                yield
        finally:
            self.strict = strict

    def attributes(self, own: Mapping[str, Any], path: str = "") -> dict[str, Tree]:
        """The trees of an object's ``own`` attributes, by name. That of one that cannot hop says that it
        stays as a constructor has made it; those come last, for a later unit makes them after all others."""
        trees, stay = dict[str, Tree](), dict[str, Tree]()
        for name, value in own.items():
            if name in self._marks or made_by_compiler(name):
                continue
            where, lost = f"{path}/{name}", len(self.lost)
            try:
                with self._undone():
                    trees[name] = self.tree(value, where)
                    if len(self.lost) > lost:
                        raise NotSerializable(name_of(type(self.lost[lost][1])))
            except NotSerializable:
                trees.pop(name, None)
                stay[name] = opaque(value)
                if self._at_setup is not None:
                    self._leave_out(where, value)
        return trees | stay

    def _leave_out(self, path: str, value: Any) -> None:
        assert self._at_setup is not None
        if path in self._at_setup.opaque:
            self.index.opaque[path] = token(value)
        else:
            self.left_out[path] = value

    def _object(self, value: Any, path: str) -> Tree:
        self.index.paths[id(value)] = path
        self.index.objects[path] = value
        tree = None
        for row in self._rows[type(value)]:
            if (tree := row.tree(value, path, self)) is not None:
                break
        if self._at_setup is None:
            return tree
        born = self._at_setup.paths.get(id(value))
        if born is None:
            self._note_lost(tree, value, path)
        if born == path or (born is None and path not in self._at_setup.objects):
            return tree
        if type(tree) is dict and TAG in tree:
            return tree if tree[TAG] in REFERENCES else {**tree, "born": born}
        return {TAG: PLACED, "value": tree, "born": born}

    def _note_lost(self, tree: Tree, value: Any, path: str) -> None:
        """Note ``value`` if its tree cannot be decoded without an object that a constructor has made."""
        if type(tree) is not dict or TAG not in tree or tree[TAG] in REFERENCES:
            return
        if "type" not in tree or makeable(tree["type"]) is None:
            self.lost.append((path, value))

    @contextmanager
    def _undone(self) -> Iterator[None]:
        """If the block raises ``NotSerializable``, forget the objects met in it."""
        before = self.index.size(), self.memory.size(), len(self.lost)
        try:
            yield
        except NotSerializable:
            self.index.forget(before[0])
            self.memory.forget(before[1])
            del self.lost[before[2] :]
            raise
