"""Functions and classes that stand for their names in a recipe."""

from __future__ import annotations

import functools
import sys
from collections.abc import Mapping
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

from cerebro_elastic.errors import TaskError
from cerebro_elastic.front_end.cells import (
    forwarded,
    import_folder,
    in_cells,
    is_in_cell,
    written,
)

_SECTIONS = ("task", "data", "loggers")
_VALUES = "args"
"""The arguments of users' functions, in any section."""


class References:
    """``module:name`` of functions and classes, for processes that import them from the folder ``root``.

    Definitions of a notebook's cells are written to a module there; those of another folder are imported by
    such a module.
    """

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()

    def in_recipe(self, recipe: Mapping[str, Any]) -> dict[str, Any]:
        """The recipe with names instead of functions and classes."""
        return {key: self._named(value) if key in _SECTIONS else value for key, value in recipe.items()}

    def _named(self, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: part if key == _VALUES else self._named(part) for key, part in value.items()}
        if isinstance(value, list | tuple):
            return [self._named(part) for part in value]
        kinds = (type, FunctionType, BuiltinFunctionType, MethodType, functools.partial)
        is_object = isinstance(value, kinds)
        return self.of(value) if is_object or is_in_cell(value) else value

    def of(self, thing: Any) -> str:
        """The reference of a function, a class or its method. Raises ``TaskError`` if others cannot import
        it."""
        if (owner := _class_of(thing)) is not None:
            return f"{self.of(owner)}.{thing.__name__}"
        if in_cells() and (known := _name_in_cells(thing)) is not None:
            return f"{written(known, self._root)}:{known}"
        module, name = getattr(thing, "__module__", ""), getattr(thing, "__qualname__", repr(thing))
        file = getattr(sys.modules.get(module), "__file__", None)
        if module not in sys.modules or "<" in name or (module == "__main__" and file is None):
            raise TaskError(  # inside a function, or a lambda
                f"{name} cannot be imported by the nodes, which are processes of their own: "
                "define it at the top level of a .py file and import it from there (in a "
                "notebook: in a cell, and a lambda under a name)"
            )
        folder = import_folder(module)
        if module == "__main__":
            module = Path(str(file)).stem
        if folder is None or folder == self._root:
            return f"{module}:{name}"
        return f"{forwarded(module, name.partition('.')[0], folder, self._root)}:{name}"


def root_of(thing: Any) -> Path:
    """The folder of users' modules for a run of ``thing``: its own; the working directory for a cell's
    definitions and for installed modules."""
    module = getattr(_class_of(thing) or thing, "__module__", None)
    return (import_folder(module) if module in sys.modules else None) or Path.cwd()


def _class_of(thing: Any) -> type | None:
    """The class of a class method."""
    owner = thing.__self__ if isinstance(thing, MethodType) else None
    return owner if isinstance(owner, type) else None


def _name_in_cells(thing: Any) -> str | None:
    """The name of a global of the cells; ``None`` for things that others can import directly."""
    module = getattr(thing, "__module__", None)
    if module not in (None, "__main__") and not isinstance(thing, functools.partial):
        return None
    names = vars(sys.modules["__main__"])
    own = getattr(thing, "__name__", "")
    if names.get(own) is thing:
        return str(own)
    return next((name for name, value in names.items() if value is thing and not name.startswith("_")), None)
