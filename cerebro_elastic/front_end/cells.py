"""Classes and functions from the cells of a notebook, in a file that others can import.

They are written as source, so that people can read the trained code, and its digest changes with the text
alone. Values that they use are pickled beside it, unless they are plain.
"""

from __future__ import annotations
import __future__ as future

import ast
import builtins
import hashlib
import io
import linecache
import math
import pickle
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from symtable import SymbolTable, symtable
from types import CodeType, FunctionType, ModuleType
from typing import Any, TypeAlias

from cerebro_elastic.errors import TaskError
from cerebro_elastic.registry import install_extra, is_library
from cerebro_elastic.system.files import make_folder, translated, write_text

FOLDER = "cerebro_cells"
"""The package of the modules written from cells."""
_MAIN = "__main__"
_PLAIN = (type(None), bool, int, str, bytes)
"""Values of these types, floats, and lists, tuples and dicts of them are written literally."""
_LONGEST = 20_000
"""The most characters of a literal value. A longer one is data, and pickled."""
_Definition: TypeAlias = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef | ast.Assign


def is_in_cell(thing: Any) -> bool:
    """Whether a class or function is defined in a cell: in the main module, which is not a file."""
    if not (isinstance(thing, type | FunctionType) or hasattr(thing, "__wrapped__")):
        return False
    return getattr(thing, "__module__", None) == _MAIN and in_cells()


def in_cells() -> bool:
    """Whether the main module is not a file, but the definitions of a notebook's cells."""
    return getattr(sys.modules[_MAIN], "__file__", None) is None


def written(name: str, root: Path) -> str:
    """Write the definition of a global of the cells, and of everything that it uses from other cells, to a
    file in the package ``cerebro_cells`` of the folder ``root``.

    The file is named after its content, so that another definition becomes another module.

    Args:
        name: Its name in the cells.
        root: The folder of the package, from which others import.

    Returns:
        The name of the module.

    Raises:
        TaskError: Something that it uses cannot be written down; the message names it. Or the folder cannot
            be written.
    """
    source = _Source(vars(sys.modules[_MAIN]))
    source.add(name, name)
    return _write(source, root)


def forwarded(module: str, name: str, folder: Path, root: Path) -> str:
    """Write a module to the package ``cerebro_cells`` of ``root`` that imports ``name`` of a user's module in
    another ``folder``, and return the module's name."""
    source = _Source({})
    source.import_name(module, name, name, folder)
    return _write(source, root)


def import_folder(module: str) -> Path | None:
    """The folder from which a user's module was imported; ``None`` for an installed one."""
    top = sys.modules[module.partition(".")[0]]
    places = [getattr(top, "__file__", None), *getattr(top, "__path__", ())]
    place = next((place for place in places if place is not None), None)
    if place is None or is_library(place):
        return None
    is_package = hasattr(top, "__path__") and Path(place).is_file()
    return Path(place).resolve().parents[1 if is_package else 0]


def _write(source: _Source, root: Path) -> str:
    text = source.text()
    name = f"cells_{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    folder = root / FOLDER
    with translated(TaskError, f"cannot write the cells to {folder}"):
        make_folder(folder)
        for file, content in source.files.items():
            (folder / file).write_bytes(content)
        write_text(folder / f"{name}.py", text)
    return f"{FOLDER}.{name}"


class _Source:
    """The parts of a module; each comes after those that it uses."""

    def __init__(self, namespace: Mapping[str, Any]) -> None:
        self.files: dict[str, bytes] = {}
        """The files beside the module, by name."""
        self._namespace = namespace
        self._parts: dict[str, None] = {}
        self._folders: dict[str, None] = {}
        self._future = False
        self._seen: set[str] = set()

    def text(self) -> str:
        """The module."""
        head = ['"""Written from the cells of a notebook."""\n']
        if self._future:
            head.append("from __future__ import annotations\n")
        if self._folders:
            head += ["import sys\n", *(f"sys.path.append({folder!r})" for folder in self._folders), ""]
        return "\n".join(head) + "\n" + "\n\n".join(self._parts) + "\n"

    def add(self, name: str, user: str) -> None:
        """Add the definition of a global ``name``, which ``user`` uses."""
        if name in self._seen:
            return
        self._seen.add(name)
        value = self._namespace[name]
        if isinstance(value, ModuleType):
            self._import_module(value.__name__, name)
        elif is_in_cell(value) and self._own_name(value) not in (None, name):
            self._add(f"{name} = {self.reference(value)}")
        elif is_in_cell(value) and (definition := _definition(value, name)) is not None:
            for earlier in _earlier_of_its_name(value):
                if (before := _definition(earlier, name)) is not None:
                    self._define(name, *before)
            self._define(name, *definition)
        elif (origin := _origin(value)) is not None:
            self.import_name(*origin, name, import_folder(origin[0]))
        elif _is_plain(value):
            self._add(f"{name} = {value!r}")
        else:
            self._add_pickled(name, value, user)

    def import_name(self, module: str, name: str, alias: str, folder: Path | None) -> None:
        """Import a module's value of this name. ``folder`` is that of a user's module."""
        if folder is not None:
            self._folders[str(folder)] = None
        self._add(f"from {module} import {name} as {alias}")

    def _import_module(self, module: str, alias: str) -> None:
        if (folder := import_folder(module)) is not None:
            self._folders[str(folder)] = None
        self._add(f"import {module} as {alias}")

    def _add(self, part: str) -> None:
        self._parts[part] = None

    def _add_pickled(self, name: str, value: Any, user: str) -> None:
        content = io.BytesIO()
        try:
            _pickler(content, self, value).dump(value)
        except Exception as exc:  # from any class
            hint = "" if "cloudpickle" in sys.modules else f" ({install_extra('cloudpickle')} takes more)"
            raise TaskError(
                f"{user} uses {name}, a {type(value).__name__} of the notebook, which cannot be pickled for "
                f"the nodes: {exc}{hint}; make it inside {user}, or define it by `class` or `def` at the top "
                "level of a cell without %% commands"
            ) from exc
        digest = hashlib.sha256(content.getvalue()).hexdigest()
        self.files[f"{digest[:12]}.pickle"] = content.getvalue()
        self._add("from cerebro_elastic.front_end.cells import unpickled as _unpickled")
        self._add(f"{name} = _unpickled(globals(), {digest!r})")

    def _define(self, name: str, text: str, is_future: bool) -> None:
        """Add the text of a definition, and everything that it uses."""
        self._future |= is_future
        for used in _globals(symtable(text, name, "exec")):
            if used in self._namespace and used != name and not self._is_builtin(used):
                self.add(used, name)
        for module in _submodules(text):
            if isinstance(self._namespace.get(module.partition(".")[0]), ModuleType):
                self._add(f"import {module}")
        self._add(text)

    def reference(self, value: Any) -> str | None:
        """The name within this module of a cell's definition. Values of users' modules are found there."""
        if isinstance(value, type | FunctionType | ModuleType) and not is_in_cell(value):
            module = value.__name__ if isinstance(value, ModuleType) else value.__module__
            if module in sys.modules and (folder := import_folder(module)) is not None:
                self._folders[str(folder)] = None
        if is_in_cell(value) and (own := self._own_name(value)) is not None:
            self.add(own, own)
            return own
        return None

    def _own_name(self, value: Any) -> str | None:
        """The name of a cell's class or function, as long as no other value has replaced it."""
        name = str(getattr(value, "__name__", ""))
        return name if self._namespace.get(name) is value else None

    def _is_builtin(self, name: str) -> bool:
        """Whether a name is that of a builtin that no cell redefines. (IPython has an ``open`` of its
        own.)"""
        return hasattr(builtins, name) and not is_in_cell(self._namespace[name])


def _globals(table: SymbolTable) -> Iterator[str]:
    """The global names that a definition reads, as the compiler sees them."""
    top = table.get_type() == "module"
    yield from (s.get_name() for s in table.get_symbols() if s.is_referenced() and (top or s.is_global()))
    for inner in table.get_children():
        yield from _globals(inner)


def _submodules(text: str) -> Iterator[str]:
    """The modules that a definition reads as attributes of others: ``xml.etree`` of ``xml.etree.ElementTree``
    does not come with ``import xml``."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Attribute) and (name := ast.unparse(node)) in sys.modules:
            yield name


def _definition(thing: Any, name: str) -> tuple[str, bool] | None:
    """The text of the last definition of a class or function in a cell, and whether its annotations are texts
    (``from __future__ import annotations``). ``None`` if the text is not available."""
    codes = list(_codes(thing))
    for cell in _cells_of(codes, anywhere=isinstance(thing, type)):
        try:
            body = ast.parse(cell).body
        except SyntaxError:  # another language, by a magic command
            continue
        for node in reversed(body):
            if isinstance(node, _Definition) and _defines(node, name):
                first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
                text = "\n".join(cell.splitlines()[first - 1 : node.end_lineno]).rstrip()
                return text, any(map(_is_future, codes)) or any(map(_imports_future, body))
    return None


def _earlier_of_its_name(thing: Any) -> Iterator[type]:
    """The base classes with the same name as a cell's class, the first one first: as by ``class Net(Net)`` in
    a later cell."""
    for base in reversed(getattr(thing, "__mro__", ())[1:]):
        if is_in_cell(base) and base.__name__ == thing.__name__:
            yield base


def _defines(node: _Definition, name: str) -> bool:
    if isinstance(node, ast.Assign):
        target = node.targets[0]
        return isinstance(node.value, ast.Lambda) and isinstance(target, ast.Name) and target.id == name
    return node.name == name


def _codes(thing: Any) -> Iterator[CodeType]:
    """The code of a function, or of a class's methods, except code that libraries generated or inherited."""
    functions = [thing, *vars(thing).values()] if isinstance(thing, type) else [thing]
    for function in functions:
        code = getattr(getattr(function, "__wrapped__", function), "__code__", None)
        file = code.co_filename if isinstance(code, CodeType) else "<string>"
        if isinstance(code, CodeType) and file != "<string>" and not Path(file).exists():
            yield code


def _cells_of(codes: list[CodeType], *, anywhere: bool) -> Iterator[str]:
    """The texts of the cells that have this code. A class does not record where it was defined, its methods
    do: one without methods may be ``anywhere``, in the latest cell first."""
    for file in dict.fromkeys(code.co_filename for code in codes):
        yield "".join(linecache.getlines(file))
    if anywhere and not codes:
        yield from reversed(vars(sys.modules[_MAIN]).get("_ih", []))  # every run, repetitions included
        files = [file for file in linecache.cache if not Path(file).exists()]
        yield from ("".join(linecache.getlines(file)) for file in reversed(files))


def _is_future(code: CodeType) -> bool:
    return bool(code.co_flags & future.annotations.compiler_flag)


def _imports_future(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"


def _origin(value: Any) -> tuple[str, str] | None:
    """The module and the name by which others can import a value; ``None`` if they cannot."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if module in (None, _MAIN) or name is None or "." in name:
        return None
    return (module, name) if getattr(sys.modules.get(module), name, None) is value else None


def _is_plain(value: Any) -> bool:
    kind = type(value)
    with suppress(RecursionError):
        if kind in (list, tuple):
            plain = all(map(_is_plain, value))
        elif kind is dict:
            plain = all(map(_is_plain, (*value, *value.values())))
        else:
            return kind in _PLAIN or (kind is float and math.isfinite(value))
        return plain and len(repr(value)) <= _LONGEST
    return False


def _pickler(file: io.BytesIO, source: _Source, root: Any) -> pickle.Pickler:
    """Pickles ``root``, and by name its other parts that a cell defines. With cloudpickle lambdas, too."""
    try:
        from cloudpickle import Pickler
    except ImportError:
        from pickle import Pickler

    class OfCells(Pickler):  # type: ignore[misc]
        def persistent_id(self, value: Any) -> str | None:
            return None if value is root else source.reference(value)

    pickler: pickle.Pickler = OfCells(file)
    return pickler


class _Unpickler(pickle.Unpickler):
    def __init__(self, content: bytes, names: Mapping[str, Any]) -> None:
        super().__init__(io.BytesIO(content))
        self._names = names

    def persistent_load(self, name: str) -> Any:
        return self._names[name]


def unpickled(module: Mapping[str, Any], digest: str) -> Any:
    """The value with this SHA-256, from the file beside a module written from cells; ``module`` has its
    globals. Nothing from a checkpoint is unpickled.

    Raises:
        TaskError: The file is missing or different.
    """
    file = Path(module["__file__"]).with_name(f"{digest[:12]}.pickle")
    try:
        content = file.read_bytes()
    except OSError as exc:
        raise TaskError(f"{file}, which the notebook has written, cannot be read: {exc.strerror}") from exc
    if hashlib.sha256(content).hexdigest() != digest:
        raise TaskError(f"{file} is not as the notebook has written it: run the cell with `fit` again")
    return _Unpickler(content, module).load()
