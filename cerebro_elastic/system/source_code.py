"""What does a file of Python say, without its comments? And what does it read besides, as far as it says so?

Two files that differ in comments, docstrings and layout alone do the same, so they have one digest.
"""

from __future__ import annotations

import ast
import hashlib
import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from cerebro_elastic.registry import folder_named

OF_VARIABLE, OF_FILE = "$", "<"
"""How the names of environment variables and of files that code reads begin, among the names of code."""
_READING = {
    *("open", "read_text", "read_bytes", "read_csv", "read_parquet", "read_json", "read_table", "read_excel"),
    *("read_pickle", "read_feather", "read_hdf", "read_sql", "scan_csv", "scan_parquet", "loadtxt"),
    *("genfromtxt", "fromfile", "memmap", "open_memmap", "imread", "loadmat", "ZipFile", "safe_open"),
    *("load_file", "load_weights", "LoadLibrary", "CDLL"),
    *("from_pretrained", "hf_hub_download", "snapshot_download", "urlopen", "urlretrieve"),
    *("load_state_dict_from_url", "load_from_checkpoint", "load_dataset", "check_output", "Popen"),
}
"""Functions and methods that read files, the network or other programs, by their names."""
_READING_OF = {
    "load": {"numpy", "torch", "joblib"},
    "load_model": {"keras", "tensorflow", "mlflow"},
    "load_library": {"torch"},
    "get_data": {"pkgutil"},
    "File": {"h5py"},
    "connect": {"sqlite3"},
    "get": {"requests", "httpx"},
    "run": {"subprocess"},
    "call": {"subprocess"},
    "system": {"os"},
    "popen": {"os"},
}
"""The same of which the package decides: ``load`` of ``pickle`` and ``json`` takes an open file."""
_HIDING = {"exec", "eval", "import_module", "__import__", "run_path", "run_module"}
"""Functions that run code which the file may not show."""

_OF_THE_MACHINE = ("/proc/", "/sys/")
"""Where the kernel describes the machine and its processes: what a file there says changes by itself."""

_LARGE = 1 << 28
"""A file of more bytes than this that code names counts by its size and last change, as all files of a folder
do: a run shall not begin by reading all of its source data."""


def code_digest(file: Path) -> str:
    """The digest of what a file says: of Python's, without comments, docstrings and layout; of others, of all
    bytes."""
    if file.suffix == ".py" and (tree := _parsed(file, file.stat().st_mtime_ns, frozenset())) is not None:
        return tree[0]
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


@dataclass(frozen=True, slots=True)
class Outside:
    """What a file of Python reads that is not in it, as far as it can be seen."""

    modules: frozenset[str] = frozenset()
    """The modules that it imports, also within functions, and what may be modules: of ``from . import net``
    it is ``.net``."""
    variables: frozenset[str] = frozenset()
    """Environment variables whose names it says."""
    files: frozenset[str] = frozenset()
    """Files and folders whose names it says, but for those in which the kernel describes the machine."""
    unknown: tuple[str, ...] = ()
    """What it reads or runs without saying the name: line and function of each."""

    @property
    def imports(self) -> set[str]:
        """The packages that it imports, by their first names."""
        return {name.partition(".")[0] for name in self.modules if not name.startswith(".")}


def outside(file: Path, without: frozenset[str] = frozenset()) -> Outside:
    """What the code in this file reads that is not in it; but for the functions that ``without`` names."""
    known = _parsed(file, file.stat().st_mtime_ns, without) if file.suffix == ".py" else None
    return Outside() if known is None else known[1]


@lru_cache(10_000)  # a project has some hundred files, each asked for several times in a row
def _parsed(file: Path, _changed: int, without: frozenset[str]) -> tuple[str, Outside] | None:
    """The digest of a file's tree, and what it reads; ``None`` if it is no Python of this version."""
    source = file.read_bytes()
    try:
        return _seen(source, without)
    except (SyntaxError, ValueError):
        return None
    except RecursionError:  # as by a sum of a thousand terms, which Python itself can run
        unseen = Outside(unknown=("its expressions are nested too deeply",))
        return hashlib.sha256(source).hexdigest(), unseen


def _seen(source: bytes, without: frozenset[str]) -> tuple[str, Outside]:
    tree = ast.parse(source)
    tree.body = [node for node in tree.body if getattr(node, "name", None) not in without]
    found = _outside(tree)
    if b"__doc__" not in source:  # else it may use them
        _drop_docstrings(tree)
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest(), found


def _drop_docstrings(tree: ast.AST) -> None:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and _text(first.value) is not None:
                node.body = node.body[1:] or [ast.Pass()]


def _outside(tree: ast.AST) -> Outside:
    modules: set[str] = set()
    variables: set[str] = set()
    files: set[str] = set()
    unknown: list[str] = []
    seen: set[int] = set()
    imported = _imported(tree)
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                modules |= {alias.name for alias in names}
            case ast.ImportFrom(level=level, names=names):
                module = "." * level + (node.module or "")
                dot = "." if node.module else ""
                modules |= {module if alias.name == "*" else f"{module}{dot}{alias.name}" for alias in names}
            case ast.Subscript(value=place, slice=key) if _is_environ(place):
                _note(_text(key), variables, unknown, place, "environ", seen)
            case ast.Compare(left=key, comparators=[place]) if _is_environ(place):
                _note(_text(key), variables, unknown, place, "environ", seen)
            case ast.Call(func=ast.Attribute(value=place), args=[key, *_]) if _is_environ(place):
                _note(_text(key), variables, unknown, place, "environ", seen)
            case ast.Call(args=[key, *_]) if _called(node, imported)[1] == "getenv":
                _note(_text(key), variables, unknown, node, "getenv", seen)
            case ast.Call() if _hides(node, *_called(node, imported)):
                _note(_module_of(node), modules, unknown, node, _called(node, imported)[1], seen)
            case ast.Call() if _reads(node, *_called(node, imported)):
                _note(_file_of(node), files, unknown, node, _called(node, imported)[1], seen)
            case ast.Name(id="environ") | ast.Attribute(attr="environ") if id(node) not in seen:
                unknown.append(f"line {node.lineno}: environ")
    files = {name for name in files if not name.startswith(_OF_THE_MACHINE)}
    return Outside(frozenset(modules), frozenset(variables), frozenset(files), tuple(unknown))


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


def _imported(tree: ast.AST) -> dict[str, tuple[str, str]]:
    """By the name that it has in the file: the package from which a name is imported, and its name there; ""
    for a module."""
    names: dict[str, tuple[str, str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                package = alias.name.partition(".")[0]
                names[alias.asname or package] = package, ""
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                names[alias.asname or alias.name] = node.module.partition(".")[0], alias.name
    return names


def _called(call: ast.Call, imported: Mapping[str, tuple[str, str]]) -> tuple[str, str]:
    """The package that a called function is of, as far as it can be seen, and the function's name."""
    func = call.func
    if isinstance(func, ast.Name):
        package, name = imported.get(func.id, ("", ""))
        return package, name or func.id
    owner = func
    while isinstance(owner, ast.Attribute):
        owner = owner.value
    package, _ = imported.get(_name(owner), ("", ""))
    return package, func.attr if isinstance(func, ast.Attribute) else ""


def _reads(call: ast.Call, package: str, name: str) -> bool:
    if name == "open":
        modes = [*call.args[1:2], *(word.value for word in call.keywords if word.arg == "mode")]
        written = any(set(_text(mode) or "") & set("wax") for mode in modes)
        return not written and not _opens_memory(call)
    return name in _READING or package in _READING_OF.get(name, ())


def _hides(call: ast.Call, package: str, name: str) -> bool:
    """Whether it runs code that the file does not show. (``model.eval()`` does not.)"""
    return name in _HIDING and (isinstance(call.func, ast.Name) or package in ("importlib", "runpy"))


def _module_of(call: ast.Call) -> str | None:
    """The name of the module that a call imports, if it is written there."""
    alone = len(call.args) == 1 and not call.keywords
    return _text(call.args[0]) if alone and _called(call, {})[1] in ("import_module", "__import__") else None


def _opens_memory(call: ast.Call) -> bool:
    """Whether it is given bytes, as an image of a row is: ``Image.open(io.BytesIO(row))``."""
    return any(
        isinstance(arg, ast.Call) and _called(arg, {})[1] in ("BytesIO", "StringIO") for arg in call.args[:1]
    )


def _file_of(call: ast.Call) -> str | None:
    """The name of the file that a call reads, if it is written there."""
    if call.args and (name := _text(call.args[0])) is not None:
        return name
    place = call.func.value if isinstance(call.func, ast.Attribute) else None
    for made in (place, *call.args[:1]):  # Path("labels.txt").read_text(), open(Path("labels.txt"))
        if isinstance(made, ast.Call) and _called(made, {})[1] == "Path" and len(made.args) == 1:
            return _text(made.args[0])
    return None


def _name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else ""


def _text(node: ast.expr) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def read_by(files: Iterable[Path], root: Path) -> Iterator[tuple[str, str]]:
    """What the code in these files reads and names: environment variables, files and folders, each with a
    digest of what is there now: "" if it is neither a file nor a folder, cannot be read, or is removed
    meanwhile. They are looked for below ``root`` and in the working directory."""
    for file in files:
        found = outside(file)
        for name in filter(_can_be_named, found.variables):
            yield OF_VARIABLE + name, hashlib.sha256(os.fsencode(os.environ.get(name, ""))).hexdigest()
        for name in filter(_can_be_named, found.files):
            yield OF_FILE + name, _digest_there(name, root)


def digests_in(folders: Mapping[str, Sequence[str]], root: Path) -> dict[str, str]:
    """The digests of the files in ``folders``, as a recipe in ``root`` names them, whose names have these
    patterns. A folder's own name, which ends with a slash, has the patterns instead."""
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


def _can_be_named(name: str) -> bool:
    """Whether there can be a variable or a file of this name."""
    try:
        return "\0" not in name and bool(os.fsencode(name))
    except UnicodeEncodeError:  # half of a character
        return False


def _digest_there(name: str, root: Path) -> str:
    places = (Path(folder, name) for folder in (root, Path.cwd()))
    try:
        place = next((place for place in places if place.is_file() or place.is_dir()), None)
        return "" if place is None else _digest_of(place)
    except OSError:
        return ""


def _digest_of(place: Path) -> str:
    if place.is_file() and place.stat().st_size <= _LARGE:
        return code_digest(place)
    files = [place] if place.is_file() else _files_below(place)
    found = [(str(file.relative_to(place)), _status(file)) for file in files]
    return hashlib.sha256(str([(name, *status) for name, status in found if status]).encode()).hexdigest()


def _files_below(folder: Path) -> Iterator[Path]:
    """In the order of their names, also behind links; each folder once, though links may lead in circles."""
    seen: set[str] = set()
    for path, folders, names in os.walk(folder, onerror=_raise, followlinks=True):
        folders.sort()
        if (real := os.path.realpath(path)) in seen:
            folders.clear()
            continue
        seen.add(real)
        yield from (Path(path, name) for name in sorted(names))


def _raise(error: OSError) -> None:
    raise error


def _status(file: Path) -> tuple[int, int] | None:
    """The size and the last change of a file; ``None`` for a link to nothing, or what is no file."""
    try:
        status = file.stat()
    except OSError:
        return None
    return (status.st_size, status.st_mtime_ns) if stat.S_ISREG(status.st_mode) else None
