"""What the user's files keep: global variables, attributes of classes, and the state of functions.

All configs of a process share the files, so a unit borrows them: it begins with their values right after the
import, or with those that its config has carried. Afterwards the values are put back.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import is_
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any
from weakref import WeakKeyDictionary

import torch

from cerebro_elastic.errors import TaskError
from cerebro_elastic.registry import is_library, lies_in, users_paths, users_places
from cerebro_elastic.training.equality import values_equal
from cerebro_elastic.training.objects.container_kinds import IN_FILES
from cerebro_elastic.training.objects.decoder import Decoder
from cerebro_elastic.training.objects.encoder import Encoder
from cerebro_elastic.training.objects.kinds import REFERENCES, TAG, Tree, name_of
from cerebro_elastic.training.objects.opaque import REMEDY, changes, described, rebindings, refuse_unseen
from cerebro_elastic.training.objects.pristine import (
    NOWHERE,
    Owner,
    Pristine,
    Variable,
    is_constant,
    pristine,
    tree_of,
)
from cerebro_elastic.training.objects.tensor_kinds import cloned
from cerebro_elastic.training.spoiled import spoil

_CPU = torch.device("cpu")


_PRISTINE: WeakKeyDictionary[ModuleType, Pristine] = WeakKeyDictionary()


class UserFiles:
    """The user's files that have been imported: those below the folder ``root``, and the modules
    ``names``."""

    def __init__(self, root: Path, names: Sequence[str] = ()) -> None:
        self._imported = _imported_below(root.resolve(), frozenset(names))
        self._files: Sequence[Pristine] = ()
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
        return {name_of(owner.thing): owner.thing for owner in self.owners if isinstance(owner.thing, type)}

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
            refuse_unseen(file.watched)
            for owner in file.owners:
                own = owner.own(file.fixed[owner.name])
                _encoded(encoder, owner, own, file.variables[owner.name])
            for path, function in file.functions.items():
                encoder.index.meet(function, path)

    def restore(self, decoder: Decoder, changed: Mapping[str, Tree]) -> None:
        """Set the values that ``changed`` has in the files, which are as they were imported."""
        for owner in self.owners:
            if owner.name in changed:
                _restore(decoder, owner, changed[owner.name])

    def refuse_lost(self, encoder: Encoder) -> None:
        """Raise ``TaskError`` for an object in a variable that the next unit could not make."""
        for path, value in encoder.lost:
            if path.startswith(IN_FILES) and path.count("/") > 1:
                raise TaskError(
                    f"{described(path)} was set to a {type(value).__qualname__} during training, "
                    f"which cannot hop to another node: {REMEDY}"
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
        self._places, self._names = users_places(root), names
        self._modules: list[Any] = []
        self._files: list[Pristine] = []

    def files(self) -> list[Pristine]:
        """All that have been imported by now."""
        modules = list(sys.modules.values())
        if len(modules) != len(self._modules) or not all(map(is_, modules, self._modules)):
            self._files = self._find()
            self._modules = modules
        return self._files

    def _find(self) -> list[Pristine]:
        main = sys.modules["__main__"]  # the program that runs: no other process has its variables
        modules = [
            module
            for name, module in sorted(sys.modules.items())
            if isinstance(module, ModuleType)
            and module is not main  # multiprocessing has it under another name, too
            and (name in self._names or self._is_own(vars(module).get("__file__") or ""))
        ]
        encoder = Encoder(strict=False)
        new = {module: pristine(module, encoder) for module in modules if module not in _PRISTINE}
        for file in new.values():
            file.watch()
        _PRISTINE.update(new)
        return [_PRISTINE[module] for module in modules]

    def _is_own(self, file: str) -> bool:
        """Whether a file is the user's. It must be fast: a unit asks it of thousands of modules."""
        return bool(file) and not is_library(file) and lies_in(self._places, _paths(file))


_imported_below = functools.lru_cache(maxsize=64)(_Imported)


@functools.lru_cache(maxsize=20_000)
def _paths(file: str) -> Sequence[Path]:
    """Those of a module that has been imported: it asks the disk."""
    return users_paths(Path(file))


def _encoded(
    encoder: Encoder, owner: Owner, own: Mapping[str, Any], before: Mapping[str, Variable]
) -> dict[str, Tree]:
    """The trees of the variables that are not certainly as ``before``. ``encoder`` meets them all."""
    trees = {}
    for name, value in own.items():
        variable = before.get(name)
        if variable is not None and _is_as_before(encoder, value, variable):
            encoder.index.add(variable.met)
        else:
            trees[name] = tree_of(encoder, owner, name, value)
    return trees


def _is_as_before(encoder: Encoder, value: Any, variable: Variable) -> bool:
    """Whether ``encoder`` would make the same tree, and meet the same objects, as right after the import."""
    if (snapshot := variable.snapshot) is None:
        return False
    return snapshot.shows(value) and encoder.meets_at(snapshot.paths)


def _changes(encoder: Encoder, owner: Owner, file: Pristine) -> dict[str, Any]:
    """The variables of ``owner`` that have changed. Those that cannot be carried, or are too large to be
    kept, count as constant. One that is carried elsewhere, too, has changed only if it is another object."""
    before, fixed = file.variables[owner.name], file.fixed[owner.name]
    own, bound_now = owner.own(fixed), vars(owner.thing)
    changed = {}
    for name, tree in _encoded(encoder, owner, own, before).items():
        bound = file.index.objects.get(f"{owner.name}/{name}", NOWHERE) is own[name]
        if bound and type(tree) is dict and tree.get(TAG) in REFERENCES:
            continue
        if not bound and isinstance(own[name], FunctionType):
            continue  # it was patched, as torch does with the step of an optimizer's class
        was = before[name].tree if name in before else NOWHERE
        if is_constant(tree):
            if not bound:
                file.rebound[f"{owner.name}/{name}"] = own[name]
        elif not values_equal(tree, was):
            changed[name] = tree
    gone = [
        n for n in before.keys() - own.keys() if n not in fixed or bound_now.get(n, NOWHERE) is not fixed[n]
    ]
    return {"plain": changed, "gone": sorted(gone)}


def _restore(decoder: Decoder, owner: Owner, tree: Tree) -> None:
    """Set the variables ``tree["plain"]``, and remove those in ``tree["gone"]``."""
    gone = {name: vars(owner.thing).get(name) for name in tree["gone"]}
    decoder.attributes(owner.thing, gone, tree["plain"], owner.name)


def _put_back(file: Pristine, encoder: Encoder) -> None:
    decoder = Decoder(file.index, _CPU, as_new=True)
    for owner in file.owners:
        before = file.variables[owner.name]
        changed = _changes(encoder, owner, file)
        names = [name for name in (*changed["plain"], *changed["gone"]) if name in before]
        back = {
            "plain": cloned({name: before[name].tree for name in names}),
            "gone": [name for name in changed["plain"] if name not in before],
        }
        _restore(decoder, owner, back)
    carried = file.index.paths
    stories = changes(file.watched, carried)
    stories += rebindings(file.watched, file.rebound, carried)
    file.spoiled.extend(stories)
    for story in stories:
        spoil(story)
    file.rebound.clear()
