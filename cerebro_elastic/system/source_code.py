"""The meaning of a file of Python without its comments, and the modules that it imports.

Two files that differ in comments, docstrings and layout alone do the same, so they have one digest.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from cerebro_elastic.registry import folder_named

_IMPORTS = {"import_module", "__import__"}
"""Functions that import the module of a name."""


def code_digest(file: Path) -> str:
    """The digest of a file's meaning: of Python's, without comments, docstrings and layout; of others, of all
    bytes."""
    if (seen := _seen(file)) is not None:
        return seen[0]
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def imported_by(file: Path) -> frozenset[str]:
    """The modules that a file of Python imports, also within functions, and possible ones: for
    ``from . import net`` that is ``.net``. Empty if it is no Python of this version."""
    seen = _seen(file)
    return frozenset() if seen is None else seen[1]


def packages_imported(file: Path) -> set[str]:
    """The packages that a file of Python imports, by their first names."""
    return {name.partition(".")[0] for name in imported_by(file) if not name.startswith(".")}


def _seen(file: Path) -> tuple[str, frozenset[str]] | None:
    return _parsed(file, file.stat().st_mtime_ns) if file.suffix == ".py" else None


@lru_cache(10_000)  # a project has some hundred files, each read several times in a row
def _parsed(file: Path, _changed: int) -> tuple[str, frozenset[str]] | None:
    source = file.read_bytes()
    try:
        tree = ast.parse(source)
        modules = frozenset(_imported(tree))
        if b"__doc__" not in source:  # else it may use them
            _drop_docstrings(tree)
        return hashlib.sha256(ast.dump(tree).encode()).hexdigest(), modules
    except (
        SyntaxError,
        ValueError,
        RecursionError,
    ):  # a sum of a thousand terms, which Python itself can run
        return None


def _drop_docstrings(tree: ast.AST) -> None:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and _text(first.value) is not None:
                node.body = node.body[1:] or [ast.Pass()]


def _imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(level=level, names=names):
                module = "." * level + (node.module or "")
                dot = "." if node.module else ""
                yield from (module if alias.name == "*" else f"{module}{dot}{alias.name}" for alias in names)
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=[given]) if (
                name in _IMPORTS and (text := _text(given)) is not None
            ):
                yield text


def _text(node: ast.expr) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def digests_in(folders: Mapping[str, Sequence[str]], root: Path) -> dict[str, str]:
    """The digests of the files in ``folders``, as a recipe in ``root`` names them, whose names match these
    patterns; and for each folder, under its name with a slash at the end, the patterns."""
    found: dict[str, str] = {}
    for folder, patterns in folders.items():
        name = f"{folder.rstrip('/')}/"
        found[name] = " ".join(patterns)
        found |= {each: code_digest(file) for each, file in files_in(name, found[name], root)}
    return found


def files_in(name: str, patterns: str, root: Path) -> Iterator[tuple[str, Path]]:
    """The files that count of the folder of this ``name``, as ``digests_in`` names it."""
    folder = folder_named(name.rstrip("/"), root)
    for file in sorted(file for each in patterns.split() for file in (folder.glob(each) if folder else ())):
        if folder and file.is_file():
            yield f"{name}{file.relative_to(folder)}", file
