"""What the user's files keep: a unit that changes it is refused by name, and its process ends.

All configs of a process share the global variables of the user's files, the attributes of their classes, and
what their functions keep. None of it hops. Each variable has a digest of all that it leads to: containers,
small arrays and tensors, generators, functions, and objects of the user's classes. Objects of libraries,
iterators and large arrays are not looked into. Nothing here imports torch.
"""

from __future__ import annotations

import hashlib
import marshal
import sys
import types
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from enum import Enum
from functools import partial
from pathlib import Path
from types import FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from cerebro_elastic.data.user_state import in_cell
from cerebro_elastic.errors import TaskError
from cerebro_elastic.registry import is_library, is_users, lies_in, users_paths, users_places
from cerebro_elastic.training.instances import attributes_of, made_by_compiler
from cerebro_elastic.training.objects.kinds import torchs
from cerebro_elastic.training.objects.value_kinds import GENERATORS
from cerebro_elastic.training.spoiled import spoil

_PLAIN = (type(None), bool, int, float, complex, str, bytes, np.generic)
_MARSHALLED = {type(None), bool, int, float, complex, str, bytes}
_LARGEST = 1 << 20
"""In bytes: an array or a tensor that is larger is not looked into."""
_MOST, _LONGEST = 5_000, 100_000
"""The objects that are looked into, for each file, and the items of one."""


def digest(value: Any) -> str:
    """Equal, as a rule, while ``value`` does not change."""
    return _Walk().digest(value)


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
                changed += kept.changed()
            if changed:
                spoil(changed[0])
        if changed:
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
        self._module = module
        self._look()

    def changed(self) -> list[str]:
        """The names of the variables that have changed since the last look."""
        before, walk = self._digests, self._walk  # the walk keeps what it met: no address is used again
        self._look()
        del walk
        return [name for name in {**before, **self._digests} if before.get(name) != self._digests.get(name)]

    def _look(self) -> None:
        self._walk = _Walk(_MOST)
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
    """What of a file or a class is data, or a function, by name. Torch patches the ``step`` of an optimizer's
    class; that is none of the user's changes."""
    code = (type, ModuleType, property, classmethod, staticmethod)
    return {
        name: getattr(value, "__wrapped__", value) if hasattr(value, "hooked") else value
        for name, value in vars(owner).items()
        if not name.startswith(("__", "_abc_")) and not isinstance(value, code)
    }


class _Walk:
    """A walk over values and all that they lead to, up to a number of objects."""

    def __init__(self, most: float = float("inf")) -> None:
        self._left = most
        self._seen: dict[int, tuple[str, Any]] = {}

    def digest(self, value: Any, name: str = "") -> str:
        """That of a value of this name. What was met under another one counts there."""
        self._hash, self._name, self._first = hashlib.blake2b(digest_size=16), name, len(self._seen)
        self._add(value)
        return self._hash.hexdigest()

    def _add(self, value: Any) -> None:
        if isinstance(value, _PLAIN):
            self._say(type(value).__qualname__, value)
        elif (met := self._seen.get(id(value))) is not None:
            self._say("same", met[0])
        else:
            self._seen[id(value)] = f"{self._name} {len(self._seen) - self._first}", value
            self._add_parts(value)

    def _add_parts(self, value: Any) -> None:
        self._left -= 1
        parts = _parts(value) if self._left >= 0 else None
        self._say(type(value).__qualname__)
        if isinstance(parts, bytes):
            self._hash.update(parts)
        elif parts is None:
            self._say(id(value))
        elif _MARSHALLED.issuperset(map(type, parts)):
            self._hash.update(marshal.dumps(parts, 2))  # of version 2: equal values have equal bytes
        else:
            for part in parts:
                self._add(part)

    def _say(self, *words: object) -> None:
        self._hash.update(f"{words!r};".encode())


def _parts(value: Any) -> list[Any] | bytes | None:
    """What a value consists of; ``None``: it is not looked into."""
    if isinstance(value, dict | list | deque | set | tuple | frozenset) and len(value) > _LONGEST:
        return None
    return next((parts(value) for fits, parts in _ROWS if fits(value)), None)


def _of_mapping(value: dict[Any, Any]) -> list[Any]:
    return [*value, *value.values()]


def _of_instance(value: Any) -> list[Any]:
    return _of_mapping(attributes_of(value))


def _of_function(function: FunctionType) -> list[Any]:
    """Its code, defaults, attributes, and what its closure holds."""
    own = {name: item for name, item in vars(function).items() if not made_by_compiler(name)}
    cells = [item for cell in function.__closure__ or () for item in in_cell(cell)]
    kept = (function.__defaults__, function.__kwdefaults__, own)
    return [id(function.__code__), *(part for part in kept if part), *cells]


def _of_array(value: Any) -> list[Any] | bytes | None:
    """The content of an array, or of what can be one."""
    sizes = (getattr(value, "nbytes", 0), getattr(value, "size", 0))
    if any(isinstance(size, int) and size > _LARGEST for size in sizes):
        return None
    try:
        array = np.asarray(value)
    except (RuntimeError, TypeError, ValueError):  # on no host, or with a gradient
        return None
    kind = f"{array.dtype} {array.shape}"
    return [kind, *array.flat] if array.dtype.hasobject else kind.encode() + array.tobytes()


def _of_tensor(tensor: Any) -> list[Any] | bytes | None:
    plain = str(tensor.layout) == "torch.strided" and tensor.device.type != "meta"
    if not plain or tensor.nbytes > _LARGEST:
        return None
    return [str(tensor.dtype), tuple(tensor.shape), tensor.detach().cpu().reshape(-1).tolist()]


def _is_generator(value: Any) -> bool:
    return any(kind.matches(type(value)) for kind in GENERATORS)


def _of_generator(value: Any) -> list[Any]:
    return [kind.parts(value) for kind in GENERATORS if kind.matches(type(value))]


def _is_users_object(value: Any) -> bool:
    return not isinstance(value, type) and (is_users(type(value)) or isinstance(value, types.SimpleNamespace))


_ROWS: tuple[tuple[Callable[[Any], bool], Callable[[Any], list[Any] | bytes | None]], ...] = (
    (lambda v: isinstance(v, dict), _of_mapping),
    (lambda v: isinstance(v, list | deque | tuple), list),
    (lambda v: isinstance(v, set | frozenset), lambda v: sorted(v, key=repr)),
    (lambda v: isinstance(v, np.ndarray), _of_array),
    (lambda v: isinstance(v, torchs("Tensor")), _of_tensor),
    (_is_generator, _of_generator),
    (lambda v: isinstance(v, torchs("Generator")), lambda v: v.get_state().tolist()),
    (lambda v: isinstance(v, FunctionType) and is_users(v), _of_function),
    (lambda v: isinstance(v, MethodType), lambda v: [v.__func__, v.__self__]),
    (lambda v: isinstance(v, partial), lambda v: [v.func, v.args, v.keywords]),
    (lambda v: isinstance(v, torchs("nn.Module")) or _is_users_object(v), _of_instance),
    (lambda v: isinstance(getattr(v, "variables", None), list), lambda v: list(v.variables)),
    (lambda v: hasattr(type(v), "__array__"), _of_array),
)
"""How values are looked into, tried in this order."""
