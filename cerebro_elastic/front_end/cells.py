"""Classes and functions that are defined in the cells of a notebook, in a file that others can import."""

from __future__ import annotations
import __future__ as future

import ast
import builtins
import hashlib
import linecache
import pickle
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from symtable import SymbolTable, symtable
from types import CodeType, FunctionType, ModuleType
from typing import Any, TypeAlias

from cerebro_elastic.errors import MissingExtra, TaskError
from cerebro_elastic.front_end.expressions import expression
from cerebro_elastic.registry import install_extra, is_library
from cerebro_elastic.system.files import make_folder, translated, write_text

FOLDER = "cerebro_cells"
"""The package of the modules that are written from cells."""
_MAIN = "__main__"
_OR_PICKLE = "; or let cells='cloudpickle' take it"
_Definition: TypeAlias = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef | ast.Assign


def is_in_cell(thing: Any) -> bool:
    """Whether a class or function is defined in a cell: in the main module, which is no file."""
    if not (isinstance(thing, type | FunctionType) or hasattr(thing, "__wrapped__")):
        return False
    return getattr(thing, "__module__", None) == _MAIN and in_cells()


def in_cells() -> bool:
    """Whether the main module is no file, but what the cells of a notebook have defined so far."""
    return getattr(sys.modules[_MAIN], "__file__", None) is None


def written(name: str, root: Path, *, pickle: bool = False) -> str:
    """Write the definition of a global of the cells, and of all that it uses of other cells, to a file in the
    package ``cerebro_cells`` of the folder ``root``.

    The file is named after its content, so that another definition is another module.

    Args:
        name: The name that the cells know it by.
        root: The folder of the package, from which others import.
        pickle: Whether what cannot be written as source is pickled, by cloudpickle.

    Returns:
        The name of the module.

    Raises:
        TaskError: Something that it uses cannot be written down; the message names it. Or the folder cannot.
        MissingExtra: cloudpickle is needed, and not installed.
    """
    source = _Source(vars(sys.modules[_MAIN]), pickle=pickle)
    source.add(name, name)
    return _write(source, root)


def forwarded(module: str, name: str, folder: Path, root: Path) -> str:
    """Write a module to the package ``cerebro_cells`` of ``root`` that imports ``name`` of a user's module in
    another ``folder``, and return the module's name."""
    source = _Source({})
    source.import_name(module, name, name, folder)
    return _write(source, root)


def import_folder(module: str) -> Path | None:
    """The folder from which a user's module was imported; ``None`` for one that is installed."""
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
    """The parts of a module; each comes behind those that it uses."""

    def __init__(self, namespace: Mapping[str, Any], *, pickle: bool = False) -> None:
        self.files: dict[str, bytes] = {}
        """The files beside the module, by name."""
        self._namespace = namespace
        self._pickle = pickle
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
            self._add(f"{name} = {self._reference(value)}")
        elif is_in_cell(value) and (definition := _definition(value, name)) is not None:
            for earlier in _earlier_of_its_name(value):
                if (before := _definition(earlier, name)) is not None:
                    self._define(name, *before)
            self._define(name, *definition)
        elif (origin := _origin(value)) is not None:
            self.import_name(*origin, name, import_folder(origin[0]))
        elif not is_in_cell(value) and (text := expression(value, self._reference)) is not None:
            self._add(f"{name} = {text}")
        elif self._pickle:
            self._add_pickled(name, value)
        elif is_in_cell(value):
            raise TaskError(
                f"the source of {name} cannot be seen here: define it by `class` or `def` at the top level "
                f"of a cell without %% commands, or in a .py file, and import it from there{_OR_PICKLE}"
            )
        else:
            raise TaskError(
                f"{user} uses {name}, a {type(value).__name__} of the notebook, which cannot be written to a "
                f"file for the nodes: make it inside {user}, or give it as an argument{_OR_PICKLE}"
            )

    def import_name(self, module: str, name: str, alias: str, folder: Path | None) -> None:
        """Import what a module has under a name. ``folder`` is that of a user's module."""
        if folder is not None:
            self._folders[str(folder)] = None
        self._add(f"from {module} import {name} as {alias}")

    def _import_module(self, module: str, alias: str) -> None:
        if (folder := import_folder(module)) is not None:
            self._folders[str(folder)] = None
        self._add(f"import {module} as {alias}")

    def _add(self, part: str) -> None:
        self._parts[part] = None

    def _add_pickled(self, name: str, value: Any) -> None:
        content = pickled(name, value)
        digest = hashlib.sha256(content).hexdigest()
        self.files[f"{digest[:12]}.pickle"] = content
        self._add("from cerebro_elastic.front_end.cells import unpickled as _unpickled")
        self._add(f"{name} = _unpickled(__file__, {digest!r})")

    def _define(self, name: str, text: str, is_future: bool) -> None:
        """Add the text of a definition, and what it uses."""
        self._future |= is_future
        for used in _globals(symtable(text, name, "exec")):
            if used in self._namespace and used != name and not self._is_builtin(used):
                self.add(used, name)
        for module in _submodules(text):
            if isinstance(self._namespace.get(module.partition(".")[0]), ModuleType):
                self._add(f"import {module}")
        self._add(text)

    def _reference(self, value: Any) -> str | None:
        """The expression of a module, class or function within this module."""
        if isinstance(value, ModuleType):
            alias = f"_{value.__name__.replace('.', '_')}"
            self._import_module(value.__name__, alias)
            return alias
        if is_in_cell(value) and (own := self._own_name(value)) is not None:
            self.add(own, own)
            return own
        origin = _origin(value)
        if origin is None:
            return None
        module, name = origin
        return name if module == "builtins" else f"{self._reference(sys.modules[module])}.{name}"

    def _own_name(self, value: Any) -> str | None:
        """The name by which a class or function of a cell is defined, as long as it has not another value."""
        name = str(getattr(value, "__name__", ""))
        return name if self._namespace.get(name) is value else None

    def _is_builtin(self, name: str) -> bool:
        """Whether a name is that of a builtin which no cell defines. (IPython has an ``open`` of its own.)"""
        return hasattr(builtins, name) and not is_in_cell(self._namespace[name])


def _globals(table: SymbolTable) -> Iterator[str]:
    """The global names that a definition reads, as the compiler sees them."""
    top = table.get_type() == "module"
    yield from (s.get_name() for s in table.get_symbols() if s.is_referenced() and (top or s.is_global()))
    for inner in table.get_children():
        yield from _globals(inner)


def _submodules(text: str) -> Iterator[str]:
    """The modules that a definition reads as attributes of others: ``xml.etree`` of ``xml.etree.ElementTree``
    is none of those that ``import xml`` gives."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Attribute) and (name := ast.unparse(node)) in sys.modules:
            yield name


def _definition(thing: Any, name: str) -> tuple[str, bool] | None:
    """The text of the last definition of a class or function in a cell, and whether its annotations are texts
    (``from __future__ import annotations``). ``None`` if it cannot be seen."""
    codes = list(_codes(thing))
    for cell in _cells_of(codes, anywhere=isinstance(thing, type)):
        try:
            body = ast.parse(cell).body
        except SyntaxError:  # of another language, by a magic command
            continue
        for node in reversed(body):
            if isinstance(node, _Definition) and _defines(node, name):
                first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
                text = "\n".join(cell.splitlines()[first - 1 : node.end_lineno]).rstrip()
                return text, any(map(_is_future, codes)) or any(map(_imports_future, body))
    return None


def _earlier_of_its_name(thing: Any) -> Iterator[type]:
    """The classes that a class of a cell derives from and has the name of, the first one first: as by
    ``class Net(Net)`` in a later cell."""
    for base in reversed(getattr(thing, "__mro__", ())[1:]):
        if is_in_cell(base) and base.__name__ == thing.__name__:
            yield base


def _defines(node: _Definition, name: str) -> bool:
    if isinstance(node, ast.Assign):
        target = node.targets[0]
        return isinstance(node.value, ast.Lambda) and isinstance(target, ast.Name) and target.id == name
    return node.name == name


def _codes(thing: Any) -> Iterator[CodeType]:
    """The code of a function, or of a class's methods, but for what libraries have generated or inherited."""
    functions = [thing, *vars(thing).values()] if isinstance(thing, type) else [thing]
    for function in functions:
        code = getattr(getattr(function, "__wrapped__", function), "__code__", None)
        file = code.co_filename if isinstance(code, CodeType) else "<string>"
        if isinstance(code, CodeType) and file != "<string>" and not Path(file).exists():
            yield code


def _cells_of(codes: list[CodeType], *, anywhere: bool) -> Iterator[str]:
    """The texts of the cells that have this code. A class does not know where it was defined, its methods do:
    one without methods may be ``anywhere``, in the latest cell first."""
    for file in dict.fromkeys(code.co_filename for code in codes):
        yield "".join(linecache.getlines(file))
    if anywhere and not codes:
        yield from reversed(vars(sys.modules[_MAIN]).get("_ih", []))  # as they were run, again and again
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


def pickled(name: str, value: Any) -> bytes:
    """The value of a global of the cells that has no source, by cloudpickle. Only a module that was written
    from cells reads it; nothing of a checkpoint is unpickled.

    Raises:
        TaskError: It cannot be pickled.
        MissingExtra: cloudpickle is not installed.
    """
    try:
        import cloudpickle
    except ImportError as exc:
        raise MissingExtra(
            f"{name} has no source that can be written, and to pickle it needs cloudpickle: "
            f"{install_extra('cloudpickle')}"
        ) from exc
    try:
        content: bytes = cloudpickle.dumps(value)
    except Exception as exc:  # of a class of anybody's
        raise TaskError(
            f"{name}, a {type(value).__name__} of the notebook, cannot be pickled: {exc}; make it inside "
            "what uses it"
        ) from exc
    return content


def unpickled(module: str, digest: str) -> Any:
    """The value with this SHA-256, from the file beside the ``module`` that was written from cells.

    Raises:
        TaskError: The file is missing, or is another.
    """
    file = Path(module).with_name(f"{digest[:12]}.pickle")
    try:
        content = file.read_bytes()
    except OSError as exc:
        raise TaskError(f"{file}, which the notebook has written, cannot be read: {exc.strerror}") from exc
    if hashlib.sha256(content).hexdigest() != digest:
        raise TaskError(f"{file} is not as the notebook has written it: run the cell with `fit` again")
    return pickle.loads(content)
