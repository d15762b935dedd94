"""Classes and functions that are defined in the cells of a notebook, in a file that others can import."""

from __future__ import annotations

import ast
import builtins
import hashlib
import linecache
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from symtable import SymbolTable, symtable
from types import FunctionType, ModuleType
from typing import Any

from cerebro_elastic.errors import TaskError
from cerebro_elastic.files import make_folder, translated, write_text

_MAIN = "__main__"


def is_in_cell(thing: Any) -> bool:
    """Whether a class or function is defined in a cell: in the main module, which is no file."""
    if not isinstance(thing, type | FunctionType):
        return False
    return thing.__module__ == _MAIN and getattr(sys.modules[_MAIN], "__file__", None) is None


def written(thing: Any, folder: Path) -> str:
    """Write the source of a class or function, and of all that it uses of other cells, to a file in a folder.

    The file is named after its content, so that another definition is another module.

    Returns:
        The name of the module.

    Raises:
        TaskError: Something that it uses cannot be written down; the message names it. Or the folder cannot.
    """
    source = _Source(vars(sys.modules[_MAIN]))
    source.add(thing.__name__, thing.__name__)
    text = '"""Written from the cells of a notebook."""\n\n' + "\n\n".join(source.parts) + "\n"
    name = f"cells_{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    with translated(TaskError, f"cannot write the cells to {folder}"):
        make_folder(folder)
        write_text(folder / f"{name}.py", text)
    return name


class _Source:
    """The parts of a module; each comes behind those that it uses."""

    def __init__(self, namespace: Mapping[str, Any]) -> None:
        self.parts: list[str] = []
        self._namespace = namespace
        self._seen: set[str] = set()

    def add(self, name: str, user: str) -> None:
        """Add the definition of a global ``name``, which ``user`` uses."""
        if name in self._seen:
            return
        self._seen.add(name)
        value = self._namespace[name]
        if isinstance(value, ModuleType):
            self.parts.append(f"import {value.__name__} as {name}")
        elif is_in_cell(value) and self._namespace.get(own := value.__name__) is value and own != name:
            self.add(own, name)
            self.parts.append(f"{name} = {own}")
        elif is_in_cell(value) and value.__name__ == name:
            text = _definition(value)
            for used in _globals(symtable(text, name, "exec")):
                if used in self._namespace and used != name and not self._is_builtin(used):
                    self.add(used, name)
            self.parts.append(text)
        elif (origin := _origin(value)) is not None:
            self.parts.append(f"from {origin[0]} import {origin[1]} as {name}")
        elif _is_literal(value):
            self.parts.append(f"{name} = {value!r}")
        else:
            raise TaskError(
                f"{user} uses {name}, a {type(value).__name__} of the notebook, which cannot be written to "
                f"a file for the nodes: make it inside {user}, or give it as an argument"
            )

    def _is_builtin(self, name: str) -> bool:
        """Whether a name is that of a builtin which no cell defines. (IPython has an ``open`` of its own.)"""
        return hasattr(builtins, name) and not is_in_cell(self._namespace[name])


def _globals(table: SymbolTable) -> Iterator[str]:
    """The global names that a definition reads, as the compiler sees them."""
    top = table.get_type() == "module"
    yield from (s.get_name() for s in table.get_symbols() if s.is_referenced() and (top or s.is_global()))
    for inner in table.get_children():
        yield from _globals(inner)


def _definition(thing: Any) -> str:
    """The text of the last definition of a class or function in a cell."""
    for file in _files(thing):
        lines = linecache.getlines(file)
        try:
            body = ast.parse("".join(lines)).body
        except SyntaxError:  # a cell with magic words of IPython
            continue
        for node in reversed(body):
            if (
                isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
                and node.name == thing.__name__
            ):
                first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
                return "".join(lines[first - 1 : node.end_lineno]).rstrip()
    raise TaskError(
        f"the source of {thing.__name__} cannot be seen here: define it by `class` or `def` at the top level "
        "of a cell without magic commands, or in a .py file, and import it from there"
    )


def _files(thing: Any) -> Iterator[str]:
    """The cells that may define it. A class does not know where it was defined, its methods do; one without
    methods may be in any cell, the latest first."""
    functions = [thing, *vars(thing).values()] if isinstance(thing, type) else [thing]
    codes = (getattr(getattr(function, "__wrapped__", function), "__code__", None) for function in functions)
    own = [code.co_filename for code in codes if code is not None]
    yield from dict.fromkeys(own)
    if not own:
        yield from (name for name in reversed(list(linecache.cache)) if not Path(name).exists())


def _origin(value: Any) -> tuple[str, str] | None:
    """The module and the name by which others can import a value; ``None`` if they cannot."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if module in (None, _MAIN) or name is None or "." in name:
        return None
    return (module, name) if getattr(sys.modules.get(module), name, None) is value else None


def _is_literal(value: Any) -> bool:
    try:
        return bool(ast.literal_eval(repr(value)) == value)
    except (ValueError, SyntaxError, TypeError):
        return False
