"""What does a file of Python say, without its comments? And what does it read besides, as far as it says so?

Two files that differ in comments, docstrings and layout alone do the same, so they have one digest.
"""

from __future__ import annotations

import ast
import hashlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

OF_VARIABLE, OF_FILE = "$", "<"
"""How the names of environment variables and of files that code reads begin, among the names of code."""
_READING = {
    *("open", "read_text", "read_bytes", "read_csv", "read_parquet", "read_json", "read_table", "read_excel"),
    *("read_pickle", "read_feather", "loadtxt", "genfromtxt", "fromfile", "memmap", "imread", "safe_open"),
    *("load_file", "from_pretrained", "hf_hub_download", "snapshot_download", "urlopen", "urlretrieve"),
    *("load_state_dict_from_url", "load_from_checkpoint", "load_dataset", "check_output", "Popen"),
}
"""Functions and methods that read files, the network or other programs, by their names."""
_LOADERS = frozenset({"np", "numpy", "torch", "joblib"})
"""Whose ``load`` reads a file. (That of ``pickle`` and ``json`` takes an open one.)"""

_LARGE = 1 << 28
"""A file of more bytes than this that code names counts by its size and last change: a run shall not begin by
reading all of its source data."""


def code_digest(file: Path) -> str:
    """The digest of what a file says: of Python's, without comments, docstrings and layout; of others, of all
    bytes."""
    if file.suffix == ".py" and (tree := _parsed(file, file.stat().st_mtime_ns)) is not None:
        return hashlib.sha256(tree[0].encode()).hexdigest()
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


@dataclass(frozen=True, slots=True)
class Outside:
    """What a file of Python reads that is not in it, as far as it can be seen."""

    imports: frozenset[str] = frozenset()
    """The packages that it imports, by their first names."""
    variables: frozenset[str] = frozenset()
    """Environment variables whose names it says."""
    files: frozenset[str] = frozenset()
    """Files whose names it says."""
    unknown: tuple[str, ...] = ()
    """What it reads without saying the name: line and function of each."""


def outside(file: Path, without: str = "") -> Outside:
    """What the code in this file reads that is not in it; ``without`` what the function of this name does."""
    known = _parsed(file, file.stat().st_mtime_ns, without) if file.suffix == ".py" else None
    return Outside() if known is None else known[1]


@lru_cache(256)
def _parsed(file: Path, _changed: int, without: str = "") -> tuple[str, Outside] | None:
    """The tree of a file as text, and what it reads; ``None`` if it is no Python of this version."""
    try:
        source = file.read_bytes()
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return None
    tree.body = [node for node in tree.body if not without or getattr(node, "name", None) != without]
    found = _outside(tree)
    if b"__doc__" not in source:  # else it may use them
        _drop_docstrings(tree)
    return ast.dump(tree), found


def _drop_docstrings(tree: ast.AST) -> None:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and _text(first.value) is not None:
                node.body = node.body[1:] or [ast.Pass()]


def _outside(tree: ast.AST) -> Outside:
    imports: set[str] = set()
    variables: set[str] = set()
    files: set[str] = set()
    unknown: list[str] = []
    seen: set[int] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                imports |= {alias.name.partition(".")[0] for alias in names}
            case ast.ImportFrom(module=str(module), level=0, names=names):
                imports.add(module.partition(".")[0])
            case ast.Subscript(value=place, slice=key) if _is_environ(place):
                _note(_text(key), variables, unknown, place, "environ", seen)
            case ast.Compare(left=key, comparators=[place]) if _is_environ(place):
                _note(_text(key), variables, unknown, place, "environ", seen)
            case ast.Call(func=ast.Attribute(value=place), args=[key, *_]) if _is_environ(place):
                _note(_text(key), variables, unknown, place, "environ", seen)
            case ast.Call(args=[key, *_]) if _called(node) == "getenv":
                _note(_text(key), variables, unknown, node, "getenv", seen)
            case ast.Call() if _reads(node):
                _note(_file_of(node), files, unknown, node, _called(node), seen)
            case ast.Name(id="environ") | ast.Attribute(attr="environ") if id(node) not in seen:
                unknown.append(f"line {node.lineno}: environ")
    return Outside(frozenset(imports), frozenset(variables), frozenset(files), tuple(unknown))


def _note(
    name: str | None, names: set[str], unknown: list[str], node: ast.expr, what: str, seen: set[int]
) -> None:
    seen.add(id(node))
    if name is not None:
        names.add(name)
    else:
        unknown.append(f"line {node.lineno}: {what}")


def _is_environ(node: ast.expr) -> bool:
    return (isinstance(node, ast.Attribute) and node.attr == "environ") or _name(node) == "environ"


def _called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else _name(call.func)


def _reads(call: ast.Call) -> bool:
    name, func = _called(call), call.func
    owner = _name(func.value) if isinstance(func, ast.Attribute) else ""
    if name == "load":
        return owner in _LOADERS
    if name == "open":
        modes = [*call.args[1:2], *(word.value for word in call.keywords if word.arg == "mode")]
        written = any(set(_text(mode) or "") & set("wax") for mode in modes)
        return not written and not _opens_memory(call)
    return name in _READING


def _opens_memory(call: ast.Call) -> bool:
    """Whether it is given bytes, as an image of a row is: ``Image.open(io.BytesIO(row))``."""
    return any(isinstance(arg, ast.Call) and _called(arg) in ("BytesIO", "StringIO") for arg in call.args[:1])


def _file_of(call: ast.Call) -> str | None:
    """The name of the file that a call reads, if it is written there."""
    if call.args and (name := _text(call.args[0])) is not None:
        return name
    place = call.func.value if isinstance(call.func, ast.Attribute) else None
    for made in (place, *call.args[:1]):  # Path("labels.txt").read_text(), open(Path("labels.txt"))
        if isinstance(made, ast.Call) and _called(made) == "Path" and len(made.args) == 1:
            return _text(made.args[0])
    return None


def _name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else ""


def _text(node: ast.expr) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def read_by(files: Iterable[Path], root: Path) -> Iterator[tuple[str, str]]:
    """What the code in these files reads and names: environment variables and files, each with a digest of
    what is there now. Files are looked for below ``root`` and in the working directory."""
    for file in files:
        found = outside(file)
        for name in found.variables:
            yield OF_VARIABLE + name, hashlib.sha256(os.environ.get(name, "").encode()).hexdigest()
        for name in found.files:
            place = _place(name, root)
            yield OF_FILE + name, "" if place is None else _file_digest(place)


def _file_digest(file: Path) -> str:
    status = file.stat()
    if status.st_size <= _LARGE:
        return code_digest(file)
    return hashlib.sha256(f"{status.st_size} {status.st_mtime_ns}".encode()).hexdigest()


def _place(name: str, root: Path) -> Path | None:
    places = (root / name, Path.cwd() / name)
    return next((place for place in places if os.access(place, os.R_OK) and place.is_file()), None)
