"""What the user's files keep: global variables, attributes of classes, and the state of functions.

All configs of a process share the files, so a unit borrows them: it begins with their values right after the
import, or with those that its config has carried. Afterwards the values are put back.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from operator import is_
from pathlib import Path
from types import FunctionType, MappingProxyType, ModuleType
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from cerebro_elastic.errors import TaskError
from cerebro_elastic.registry import is_library, is_own
from cerebro_elastic.training.objects import value_types, watched
from cerebro_elastic.training.objects.decoder import Decoder
from cerebro_elastic.training.objects.encoder import IN_FILES, TAG, Encoder, Tree
from cerebro_elastic.training.objects.object_index import ObjectIndex
from cerebro_elastic.training.objects.opaque import Fingerprint
from cerebro_elastic.training.objects.snapshot import CannotWatch, Snapshot
from cerebro_elastic.training.objects.trees import cloned, size_in_bytes, trees_equal
from cerebro_elastic.training.objects.value_types import FUNCTION, KNOWN, OPAQUE, SAME, VIEW

_LARGEST = 64 << 20
"""In bytes: a variable that is larger is not carried, so it must stay as it is."""
_CPU = torch.device("cpu")
_NOWHERE = object()


@dataclass(frozen=True)
class Owner:
    """A file or a class."""

    name: str
    """Its path in the graph of objects."""
    thing: Any
    """The module object or the class."""

    def own(self, fixed: Mapping[str, Any] = MappingProxyType({})) -> dict[str, Any]:
        """The variables that may change, by name. Members of an enum do not, nor what is bound as in
        ``fixed``."""
        if isinstance(self.thing, type) and issubclass(self.thing, Enum):
            return {}
        return {
            name: value
            for name, value in vars(self.thing).items()
            if (fixed.get(name, _NOWHERE) is not value or isinstance(value, FunctionType))
            and self._may_change(name, value)
        }

    def fixed(self) -> dict[str, Any]:
        """What can only change by being bound anew, by name: most of a file. Of functions, those that keep
        nothing yet: they may be given attributes."""
        return {
            name: value
            for name, value in vars(self.thing).items()
            if type(value) in value_types.LEAVES or not self._may_change(name, value)
        }

    def plain_functions(self) -> dict[str, FunctionType]:
        """The functions of its own that keep nothing, by name."""
        return {
            name: value
            for name, value in vars(self.thing).items()
            if isinstance(value, FunctionType)
            and value.__module__ == self._module
            and name[:2] != "__"
            and not value_types.has_state(value)
        }

    def _may_change(self, name: str, value: Any) -> bool:
        if name.startswith(("__", "_abc_")):
            return False
        if isinstance(value, FunctionType):
            return value_types.has_state(value) and value.__module__ == self._module
        return not isinstance(value, type | ModuleType | property | classmethod | staticmethod)

    @property
    def _module(self) -> str:
        return str(self.thing.__module__ if isinstance(self.thing, type) else self.thing.__name__)


@dataclass(frozen=True)
class _Variable:
    """A variable right after its file's import."""

    tree: Tree
    met: ObjectIndex
    """The objects that were first met in it."""
    snapshot: Snapshot | None
    """What shows that it has not changed; ``None`` if only its tree can."""


@dataclass(frozen=True)
class _Pristine:
    """A file right after its import."""

    owners: Sequence[Owner]
    """The file and its classes."""
    variables: Mapping[str, Mapping[str, _Variable]]
    """By owner: its variables by name."""
    fixed: Mapping[str, Mapping[str, Any]]
    """By owner: what has not to be looked into as long as it is bound as here."""
    functions: Mapping[str, FunctionType]
    """The functions that kept nothing, by their paths in the graph of objects."""
    index: ObjectIndex
    """The objects that it kept."""
    arrays: Sequence[Any]
    """The tensors and arrays among them."""
    watched: dict[str, tuple[Any, Fingerprint]]
    """By path: what cannot be carried, with its fingerprint. It may only stay as it is."""
    rebound: dict[str, Any]
    """By path: what a variable was bound to in the unit that can be neither carried nor put back."""
    spoiled: list[str]
    """What has changed of that, for errors: every later unit of this process would begin with it."""


_PRISTINE: WeakKeyDictionary[ModuleType, _Pristine] = WeakKeyDictionary()


class UserFiles:
    """The user's files that have been imported: those below the folder ``root``, and the modules
    ``names``."""

    def __init__(self, root: Path, names: Sequence[str] = ()) -> None:
        self._imported = _imported_below(root.resolve(), frozenset(names))
        self._files: Sequence[_Pristine] = ()
        self.shared = False
        """Whether an object of the config is an array of a file."""

    @contextmanager
    def borrowed(self) -> Iterator[None]:
        """The block is a unit. A file that it imports itself is not tracked in it."""
        self._files = self._imported.files()
        spoiled = sum(len(file.spoiled) for file in self._files)
        try:
            yield
        finally:
            self._put_back()
        if sum(len(file.spoiled) for file in self._files) > spoiled:
            self._refuse_spoiled()

    @property
    def classes(self) -> dict[str, type]:
        """The classes that the files define, by their full names."""
        return {
            value_types.name_of(owner.thing): owner.thing
            for owner in self.owners
            if isinstance(owner.thing, type)
        }

    @property
    def owners(self) -> list[Owner]:
        """The files and their classes."""
        return [owner for file in self._files for owner in file.owners]

    def changed(self, encoder: Encoder) -> dict[str, Tree]:
        """By owner: the trees of variables that have changed since the import, and the names that are
        gone."""
        changed: dict[str, Tree] = {}
        self.shared = any(
            not encoder.index.paths.get(id(value), "file ").startswith(IN_FILES)
            for file in self._files
            for value in file.arrays
        )
        for file in self._files:
            for owner in file.owners:
                tree = _changes(encoder, owner, file)
                if tree["plain"] or tree["gone"]:
                    changed[owner.name] = cloned(tree)
        return changed

    def index(self, encoder: Encoder) -> None:
        """Have ``encoder`` meet all objects of the files. Raises ``TaskError`` if one cannot be watched, or
        is not as it was imported."""
        self._refuse_spoiled()
        for file in self._files:
            watched.refuse_unseen(file.watched)
            for owner in file.owners:
                own = owner.own(file.fixed[owner.name])
                _encoded(encoder, owner, own, file.variables[owner.name])
            for path, function in file.functions.items():
                encoder.index.meet(function, path)

    def restore(self, decoder: Decoder, changed: Mapping[str, Tree]) -> None:
        """Set the values that ``changed`` has in the files, which are as they were imported."""
        for owner in self.owners:
            if owner.name in changed:
                decoder.variables(owner.thing, changed[owner.name], owner.name)

    def refuse_lost(self, encoder: Encoder) -> None:
        """Raise ``TaskError`` for an object in a variable that the next unit could not make."""
        for path, value in encoder.lost:
            if path.startswith(IN_FILES) and path.count("/") > 1:
                raise TaskError(
                    f"{watched.described(path)} was set to a {type(value).__qualname__} during training, "
                    f"which cannot hop to another node: {watched.REMEDY}"
                )

    def _put_back(self) -> None:
        encoder = Encoder(strict=False)
        for file in self._files:
            _put_back(file, encoder)

    def _refuse_spoiled(self) -> None:
        for file in self._files:
            for story in file.spoiled:
                raise TaskError(story)


class _Imported:
    """The files below ``root``, and the modules ``names``, that have been imported."""

    def __init__(self, root: Path, names: frozenset[str]) -> None:
        self._root, self._names = root, names
        self._modules: list[Any] = []
        self._files: list[_Pristine] = []

    def files(self) -> list[_Pristine]:
        """All that have been imported by now."""
        modules = list(sys.modules.values())
        if len(modules) != len(self._modules) or not all(map(is_, modules, self._modules)):
            self._files = self._find()
            self._modules = modules
        return self._files

    def _find(self) -> list[_Pristine]:
        modules = [
            module
            for name, module in sorted(sys.modules.items())
            if isinstance(module, ModuleType)
            and (name in self._names or _lies_below(self._root, vars(module).get("__file__") or ""))
        ]
        encoder = Encoder(strict=False)
        for module in modules:
            if module not in _PRISTINE:
                _PRISTINE[module] = _pristine(module, encoder)
        return [_PRISTINE[module] for module in modules]


_imported_below = functools.lru_cache(maxsize=64)(_Imported)


def _lies_below(root: Path, file: str) -> bool:
    """Whether a file is the user's. It must be fast: a unit asks it of thousands of modules."""
    return bool(file) and not is_library(file) and _is_own(file, root)


@functools.lru_cache(maxsize=20_000)
def _is_own(file: str, root: Path) -> bool:
    return is_own(Path(file), root)


def _pristine(module: ModuleType, encoder: Encoder) -> _Pristine:
    owners = [Owner(f"file {module.__name__}", module), *_classes(module, module.__name__)]
    variables = {
        owner.name: {
            **{name: _variable(encoder, owner, name, value) for name, value in owner.own().items()},
            **{name: _plain_function(encoder, owner, name, f) for name, f in owner.plain_functions().items()},
        }
        for owner in owners
    }
    fixed = {owner.name: owner.fixed() for owner in owners}
    functions = {f"{o.name}/{name}": value for o in owners for name, value in o.plain_functions().items()}
    known = encoder.index.objects.values()
    arrays = [value for value in known if isinstance(value, Tensor | np.ndarray)]
    opaque = [path for path in encoder.index.opaque if path.startswith(tuple(f"{o.name}/" for o in owners))]
    large = [
        f"{owner}/{name}"
        for owner, of_owner in variables.items()
        for name, variable in of_owner.items()
        if size_in_bytes(variable.tree) > _LARGEST
    ]
    return _Pristine(
        owners,
        variables,
        fixed,
        functions,
        encoder.index,
        arrays,
        watched.watch({path: encoder.index.objects[path] for path in (*opaque, *large)}, encoder.index.paths),
        {},
        [],
    )


def _variable(encoder: Encoder, owner: Owner, name: str, value: Any) -> _Variable:
    before = encoder.index.size()
    tree = cloned(_tree(encoder, owner, name, value))
    try:
        snapshot = Snapshot(value, encoder.index)
    except CannotWatch:
        snapshot = None
    return _Variable(tree, encoder.index.since(before), snapshot)


def _plain_function(encoder: Encoder, owner: Owner, name: str, function: FunctionType) -> _Variable:
    """A function that keeps nothing: as such it is restored when a unit has given it attributes."""
    _tree(encoder, owner, name, function)  # so that it is known to be this one
    tree = {TAG: FUNCTION, "value": encoder.function(function, f"{owner.name}/{name}")}
    return _Variable(tree, ObjectIndex(), None)


def _classes(outer: Any, module: str) -> Iterator[Owner]:
    """The classes that are defined in a file, or in a class of it."""
    inside = f"{outer.__qualname__}." if isinstance(outer, type) else ""
    for value in list(vars(outer).values()):
        if not isinstance(value, type) or value.__module__ != module:
            continue
        if value.__qualname__.startswith(inside) and value is not outer:
            yield Owner(f"class {value_types.name_of(value)}", value)
            yield from _classes(value, module)


def _tree(encoder: Encoder, owner: Owner, name: str, value: Any) -> Tree:
    tree = encoder.attributes({name: value}, owner.name)
    return tree["plain"].get(name, {TAG: OPAQUE, "value": value_types.name_of(type(value))})


def _encoded(
    encoder: Encoder, owner: Owner, own: Mapping[str, Any], before: Mapping[str, _Variable]
) -> dict[str, Tree]:
    """The trees of the variables that are not certainly as ``before``. ``encoder`` meets them all."""
    trees = {}
    for name, value in own.items():
        variable = before.get(name)
        if variable is not None and _is_as_before(encoder, value, variable):
            encoder.index.add(variable.met)
        else:
            trees[name] = _tree(encoder, owner, name, value)
    return trees


def _is_as_before(encoder: Encoder, value: Any, variable: _Variable) -> bool:
    """Whether ``encoder`` would make the same tree, and meet the same objects, as right after the import."""
    if (snapshot := variable.snapshot) is None:
        return False
    return snapshot.shows(value) and encoder.meets_at(snapshot.paths)


def _changes(encoder: Encoder, owner: Owner, pristine: _Pristine) -> dict[str, Any]:
    """The variables of ``owner`` that have changed. Those that cannot be carried, or are too large to be
    kept, count as constant. One that is carried elsewhere, too, has changed only if it is another object."""
    before, fixed = pristine.variables[owner.name], pristine.fixed[owner.name]
    own, bound_now = owner.own(fixed), vars(owner.thing)
    changed = {}
    for name, tree in _encoded(encoder, owner, own, before).items():
        bound = pristine.index.objects.get(f"{owner.name}/{name}", _NOWHERE) is own[name]
        if bound and type(tree) is dict and tree.get(TAG) in (KNOWN, SAME, VIEW):
            continue
        if not bound and isinstance(own[name], FunctionType):
            continue  # it was patched, as torch does with the step of an optimizer's class
        was = before[name].tree if name in before else _NOWHERE
        if _is_constant(tree):
            if not bound:
                pristine.rebound[f"{owner.name}/{name}"] = own[name]
        elif not trees_equal(tree, was):
            changed[name] = tree
    gone = [
        n for n in before.keys() - own.keys() if n not in fixed or bound_now.get(n, _NOWHERE) is not fixed[n]
    ]
    return {"plain": changed, "gone": sorted(gone)}


def _is_constant(tree: Tree) -> bool:
    return (type(tree) is dict and tree.get(TAG) == OPAQUE) or size_in_bytes(tree) > _LARGEST


def _put_back(pristine: _Pristine, encoder: Encoder) -> None:
    decoder = Decoder(pristine.index, _CPU, as_new=True)
    for owner in pristine.owners:
        before = pristine.variables[owner.name]
        changed = _changes(encoder, owner, pristine)
        names = [name for name in (*changed["plain"], *changed["gone"]) if name in before]
        back = {
            "plain": cloned({name: before[name].tree for name in names}),
            "gone": [name for name in changed["plain"] if name not in before],
        }
        decoder.variables(owner.thing, back, owner.name)
    carried = pristine.index.paths
    stories = watched.changes(pristine.watched, carried)
    stories += watched.rebindings(pristine.watched, pristine.rebound, carried)
    pristine.spoiled.extend(stories)
    pristine.rebound.clear()
