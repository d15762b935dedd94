"""What the user's files keep: a unit that changes it is refused by name, and the change is undone.

All configs of a process share the global variables of the user's files, the attributes of their classes, and
what their functions keep. None of it hops. One table says how to read what may change, and how to put it
back: containers, small arrays and tensors, generators, functions, and objects of the user's classes. Objects
of libraries, iterators and large arrays are not looked into. Nothing here imports torch.
"""

from __future__ import annotations

import hashlib
import sys
import types
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from functools import partial
from operator import is_
from pathlib import Path
from types import FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

import numpy as np

from cerebro_elastic.data.user_state import in_cell
from cerebro_elastic.errors import TaskError
from cerebro_elastic.registry import is_library, is_users, lies_in, users_paths, users_places
from cerebro_elastic.training.equality import values_equal
from cerebro_elastic.training.instances import attributes_of, set_attributes
from cerebro_elastic.training.objects.container_kinds import fill_dict, fill_list
from cerebro_elastic.training.objects.kinds import Kind, torchs
from cerebro_elastic.training.objects.value_kinds import GENERATORS
from cerebro_elastic.training.spoiled import spoil

_PLAIN = (type(None), bool, int, float, complex, str, bytes, np.generic)
_LARGEST = 1 << 20
"""In bytes: an array or a tensor that is larger is not looked into."""
_MOST, _LONGEST = 5_000, 100_000
"""The objects that are looked into, for each file, and the items of one."""
_NOWHERE = object()


def digest(value: Any) -> str:
    """Equal, as a rule, while ``value`` does not change."""
    walk = _Digest()
    walk.add(value)
    return walk.hash.hexdigest()


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
        """The block is a unit. Raises ``TaskError`` at its end for what has changed in it. A file that the
        block imports is looked at from the next one on."""
        if len(sys.modules) != self._modules:
            self._find()
        changed: list[str] = []
        try:
            yield
        finally:
            for kept in self._kept.values():
                changed += kept.put_back()
        if changed:
            spoil(changed[0])
            raise TaskError(
                f"{', '.join(changed[:3])} changed in training: what is kept in a global variable, a class "
                "or a function does not hop with a config, and all configs of a rank share it. Keep what "
                "changes in an attribute of the model; make what stays when the file is imported, or in a "
                "function behind functools.cache"
            )

    def mention(self, text: str) -> bool:
        """Whether this text stands in one of the files."""
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
    """What a file keeps right now."""

    def __init__(self, module: ModuleType) -> None:
        self._owners = [(name, owner, _variables(owner)) for name, owner in _owners(module)]
        self._contents: list[tuple[str, Any, _Row, Any]] = []
        seen: set[int] = set()
        for name, _, variables in self._owners:
            for variable, value in variables.items():
                self._look_into(f"{name}.{variable}", value, seen)

    def put_back(self) -> list[str]:
        """Undo what has changed. Returns the names of the variables."""
        changed = dict[str, None]()
        for name, value, row, before in self._contents:
            if not (_unchanged if row.refers else values_equal)(row.read(value), before):
                row.put(value, before)
                changed[name] = None
        for prefix, owner, before in self._owners:
            now = _variables(owner)
            for name in {**before, **now}:
                was, value = before.get(name, _NOWHERE), now.get(name, _NOWHERE)
                if not _same(value, was) and not _is_torchs(value):
                    _bind(owner, name, was)
                    changed[f"{prefix}.{name}"] = None
        return list(changed)

    def _look_into(self, name: str, value: Any, seen: set[int]) -> None:
        left = [value]
        while left and len(self._contents) < _MOST:
            item = left.pop()
            if isinstance(item, _PLAIN) or id(item) in seen:
                continue
            seen.add(id(item))
            row = _row_of(item)
            if row is not None and (content := row.read(item)) is not None:
                self._contents.append((name, item, row, content))
                left += reversed(row.items(content))


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
    """What of a file or a class is data, or a function, by name."""
    code = (type, ModuleType, property, classmethod, staticmethod)
    return {
        name: value
        for name, value in vars(owner).items()
        if not name.startswith(("__", "_abc_")) and not isinstance(value, code)
    }


def _is_torchs(value: Any) -> bool:
    """Whether torch has patched a method: it does so with the ``step`` of an optimizer's class."""
    return isinstance(value, FunctionType) and hasattr(value, "hooked")


def _bind(owner: Any, name: str, value: Any) -> None:
    if value is not _NOWHERE:
        (type.__setattr__ if isinstance(owner, type) else setattr)(owner, name, value)
    else:
        (type.__delattr__ if isinstance(owner, type) else delattr)(owner, name)


class _Row(NamedTuple):
    fits: Callable[[Any], bool]
    read: Callable[[Any], Any]
    """What a value holds, as a copy that is one level deep; ``None``: it is not looked into."""
    put: Callable[[Any, Any], object] = lambda *_: None
    """Puts back what was read."""
    refers: bool = True
    """Whether what was read are objects that may change, too."""

    def items(self, content: Any) -> list[Any]:
        if not self.refers:
            return []
        return [*content, *content.values()] if isinstance(content, dict) else list(content)


def _row_of(value: Any) -> _Row | None:
    row = next((row for row in _ROWS if row.fits(value)), None)
    container = isinstance(value, dict | list | deque | set | tuple | frozenset)
    return None if container and len(value) > _LONGEST else row


def _unchanged(now: Any, before: Any) -> bool:
    if len(now) != len(before) if isinstance(before, dict | list) else type(now) is not type(before):
        return False
    if isinstance(before, dict):
        return all(map(is_, now, before)) and _unchanged([*now.values()], [*before.values()])
    if isinstance(before, list):
        return all(map(is_, now, before)) or all(map(_same, now, before))
    return values_equal(now, before)


def _same(one: Any, other: Any) -> bool:
    return one is other or (isinstance(one, _PLAIN) and values_equal(one, other))


def _put_set(value: set[Any], content: set[Any]) -> None:
    value.clear()
    value.update(content)


def _of_function(function: FunctionType) -> dict[str | int, Any]:
    """Its attributes, its defaults, and the contents of its cells by number."""
    kept: dict[str | int, Any] = {
        "__defaults__": function.__defaults__,
        "__kwdefaults__": function.__kwdefaults__,
    }
    for at, cell in enumerate(function.__closure__ or ()):
        kept.update((at, item) for item in in_cell(cell))
    kept.update((name, item) for name, item in vars(function).items() if not name.startswith("_torchdynamo"))
    return kept


def _put_function(function: FunctionType, content: Mapping[str | int, Any]) -> None:
    for new in _of_function(function).keys() - content.keys():
        function.__dict__.pop(str(new), None)
    for name, value in content.items():
        if isinstance(name, int):
            (function.__closure__ or ())[name].cell_contents = value
        else:
            setattr(function, name, value)


def _array(value: Any) -> Any:
    """A copy of an array, or of what can be one."""
    sizes = (getattr(value, "nbytes", 0), getattr(value, "size", 0))
    if any(isinstance(size, int) and size > _LARGEST for size in sizes):
        return None
    try:
        array = np.array(value)
    except (RuntimeError, TypeError, ValueError):  # on no host, or with a gradient
        return None
    return array.ravel().tolist() if array.dtype.hasobject else array


def _put_array(array: Any, content: Any) -> None:
    if isinstance(array, np.ndarray):
        array[...] = np.array(content, array.dtype).reshape(array.shape) if array.dtype.hasobject else content


def _is_users_object(value: Any) -> bool:
    return is_users(type(value)) or isinstance(value, types.SimpleNamespace)


def _is_of(kind: Kind, value: Any) -> bool:
    return kind.matches(type(value))


def _tensor(tensor: Any) -> Any:
    plain = str(tensor.layout) == "torch.strided" and tensor.device.type != "meta"
    return tensor.detach().clone() if plain and tensor.nbytes <= _LARGEST else None


_ROWS = (
    _Row(lambda v: isinstance(v, dict), lambda v: dict(v), fill_dict),
    _Row(lambda v: isinstance(v, list | deque), list, fill_list),
    _Row(lambda v: isinstance(v, set), set, _put_set),
    _Row(lambda v: isinstance(v, tuple | frozenset), list),
    _Row(lambda v: isinstance(v, np.ndarray), _array, _put_array, refers=False),
    _Row(
        lambda v: isinstance(v, torchs("Tensor")),
        _tensor,
        lambda v, held: v.detach().copy_(held),
        refers=False,
    ),
    *(_Row(partial(_is_of, kind), kind.parts, kind.put, refers=False) for kind in GENERATORS),
    _Row(
        lambda v: isinstance(v, torchs("Generator")),
        lambda v: v.get_state(),
        lambda v, state: v.set_state(state),
        refers=False,
    ),
    _Row(lambda v: isinstance(v, FunctionType) and is_users(v), _of_function, _put_function),
    _Row(lambda v: isinstance(v, MethodType), lambda v: [v.__func__, v.__self__]),
    _Row(lambda v: isinstance(v, partial), lambda v: [v.func, v.args, v.keywords]),
    _Row(lambda v: isinstance(v, torchs("nn.Module")), attributes_of, set_attributes),
    _Row(lambda v: not isinstance(v, type) and _is_users_object(v), attributes_of, set_attributes),
    _Row(lambda v: isinstance(getattr(v, "variables", None), list), lambda v: list(v.variables)),
    _Row(lambda v: hasattr(type(v), "__array__"), _array, refers=False),
)


class _Digest:
    """One walk over a value and all that it holds."""

    def __init__(self) -> None:
        self.hash = hashlib.blake2b(digest_size=16)
        self._seen: dict[int, Any] = {}

    def add(self, value: Any) -> None:
        if isinstance(value, _PLAIN):
            self._say(f"{type(value).__qualname__} {value!r}")
        elif id(value) in self._seen:
            self._say(f"same {list(self._seen).index(id(value))}")
        else:
            self._seen[id(value)] = value
            self._say(type(value).__qualname__)
            self._add_parts(value)

    def _add_parts(self, value: Any) -> None:
        row = _row_of(value)
        content = row and row.read(value)
        if row is None or content is None:
            self._say(id(value))
        elif isinstance(content, set):
            self._say(sorted(map(repr, content)))
        elif isinstance(content, torchs("Tensor")):
            self._say((content.dtype, content.shape, content.cpu().reshape(-1).tolist()))
        elif isinstance(content, np.ndarray):
            self._say((content.dtype, content.shape))
            self.hash.update(content.tobytes())
        elif row.refers:
            for item in row.items(content):
                self.add(item)
        else:
            self._say(content)

    def _say(self, text: object) -> None:
        self.hash.update(f"{text!r};".encode())
