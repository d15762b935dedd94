"""The variables of the user's files: a unit that changes one is refused by name, and its process ends.

All configs of a process share the global variables of the user's files, the attributes of their classes, and
the state of their functions. None of it hops.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any

from cerebro_elastic.errors import TaskError
from cerebro_elastic.hop.objects.unchanged import Walk
from cerebro_elastic.hop.spoiled import spoil
from cerebro_elastic.registry import is_library, is_users, lies_in, users_paths, users_places

_MOST = 5_000
"""The objects that are looked into, for each file."""


class UserGlobals:
    """The global variables of the user's files, and the attributes of their classes.

    Args:
        functions: The user's functions and classes: the files of their modules count.
        root: The files below this folder count, too; if none is given, those beside the ``functions``.
    """

    def __init__(self, functions: Iterable[Any], root: Path | None = None) -> None:
        self._names = {each.__module__ for each in functions if is_users(each)}
        files = [(name, getattr(sys.modules[name], "__file__", None)) for name in self._names]
        beside = [Path(file).parents[name.count(".")] for name, file in files if file]
        self._places = users_places((root or next(iter(beside), Path("/nowhere"))).resolve())
        self._modules = 0
        self._kept: dict[str, _Kept] = {}

    @contextmanager
    def borrowed(self) -> Iterator[None]:
        """The block is a unit. Raises ``TaskError`` at its end for changes in it. A file that the block
        imports is looked at from the next one on."""
        if len(sys.modules) != self._modules:
            self._find()
        changed: list[str] = []
        try:
            yield
        finally:
            for kept in self._kept.values():
                changed += kept.changed()
            if changed:
                spoil(changed[0])
        if changed:
            raise TaskError(
                f"{', '.join(changed[:3])} changed in training: a value kept in a global variable, a class "
                "or a function does not hop with a config, and all configs of a rank share it. Keep what "
                "changes in an attribute of the model; make constants when the file is imported, or in a "
                "function behind functools.cache"
            )

    def mention(self, text: str) -> bool:
        """Whether one of the files contains this text."""
        files = (getattr(sys.modules.get(name), "__file__", None) for name in self._kept)
        return any(text in Path(file).read_text(errors="replace") for file in files if file)

    def _find(self) -> None:
        for name, module in sorted(sys.modules.items()):
            if name not in self._kept and isinstance(module, ModuleType) and self._is_own(name, module):
                self._kept[name] = _Kept(module)
        self._modules = len(sys.modules)

    def _is_own(self, name: str, module: ModuleType) -> bool:
        file = vars(module).get("__file__") or ""
        if name == "__main__" or module is sys.modules["__main__"]:  # no other process has its variables
            return False
        own = file and not is_library(file) and lies_in(self._places, users_paths(Path(file)))
        return name in self._names or bool(own)


class _Kept:
    """A file's present values."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module
        self._look()

    def changed(self) -> list[str]:
        """The names of the variables that have changed since the last look."""
        before, walk = self._digests, self._walk  # the walk keeps its objects: no address is used again
        self._look()
        del walk
        return [name for name in {**before, **self._digests} if before.get(name) != self._digests.get(name)]

    def _look(self) -> None:
        self._walk = Walk(_MOST)
        self._digests = {
            f"{owner}.{name}": self._walk.digest(value, f"{owner}.{name}")
            for owner, kept in _owners(self._module)
            for name, value in _variables(kept).items()
        }


def _owners(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """A file and its classes, each once, by name."""
    left: list[tuple[str, Any]] = [(module.__name__, module)]
    seen: set[Any] = set()
    while left:
        name, owner = left.pop()
        yield name, owner
        for inner, value in vars(owner).items():
            own = isinstance(value, type) and value.__module__ == module.__name__ and value not in seen
            if own and not issubclass(value, Enum):
                seen.add(value)
                left.append((f"{name}.{inner}", value))


def _variables(owner: Any) -> dict[str, Any]:
    """The data and functions of a file or a class, by name. Torch patches the ``step`` of an optimizer's
    class; that is not a change by the user."""
    code = (type, ModuleType, property, classmethod, staticmethod)
    return {
        name: getattr(value, "__wrapped__", value) if hasattr(value, "hooked") else value
        for name, value in vars(owner).items()
        if not name.startswith(("__", "_abc_")) and not isinstance(value, code)
    }
