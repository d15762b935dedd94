"""Objects that cannot be carried: a fingerprint shows whether one has changed.

What of them the user's files keep can be neither carried nor put back, so it may only stay as it is.
"""

from __future__ import annotations

import contextvars
import functools
import gc
import hashlib
import io
import mmap
import pickle
import sqlite3
import threading
import types
import warnings
import weakref
import zlib
from collections.abc import Iterator, Mapping, MappingView
from dataclasses import dataclass
from types import BuiltinFunctionType, CellType, FunctionType, ModuleType
from typing import Any, TypeAlias

import numpy as np
from torch import Tensor, nn

from cerebro_elastic.data.user_state import in_cell
from cerebro_elastic.errors import TaskError
from cerebro_elastic.registry import is_users
from cerebro_elastic.system.torch_internals import version_of
from cerebro_elastic.training.objects.kinds import attributes_of, has_state, name_of
from cerebro_elastic.training.objects.library_kinds import GENERATORS, KEEPERS

_COLUMNS = 4096
"""Of the table in which the words of an array are added up."""
_LARGE_BYTES = 4096
"""The pickle of a larger array would be a copy of it: its checksum stands for it."""

_HARMLESS = frozenset((
    "abc", "asyncio", "concurrent", "inspect", "logging", "re", "selectors", "socket", "ssl", "subprocess",
    "traceback", "typing", "warnings",
    "azure", "boto3", "botocore", "click", "clearml", "comet_ml", "fsspec", "google", "grpc",
    "h5py", "huggingface_hub", "lightning", "lightning_fabric", "lightning_utilities", "lmdb", "matplotlib",
    "mlflow", "neptune", "pytorch_lightning", "requests", "rich", "s3fs", "sqlalchemy", "tensorboard",
    "tensorboardX", "tokenizers", "torch", "torchmetrics", "tqdm", "transformers", "triton", "typer",
    "urllib3", "wandb", "zarr",
))  # fmt: skip
"""Packages whose objects display, log, prepare inputs or reach other machines: their changes do not affect
training."""

_HARMLESS_MODULES = frozenset(("multiprocessing.context", "multiprocessing.pool", "multiprocessing.process"))

_WATCHED_MODULES = ("torch.utils.data",)
"""Parts of such packages whose objects do affect it."""

_HARMLESS_TYPES = (
    type, ModuleType, property, classmethod, staticmethod, functools.cached_property,
    types.CodeType, types.FrameType, types.TracebackType, types.GenericAlias, types.UnionType,
    types.MemberDescriptorType, types.GetSetDescriptorType, types.MethodDescriptorType,
    types.WrapperDescriptorType, types.ClassMethodDescriptorType, types.EllipsisType,
    types.NotImplementedType, type(threading.Lock()), type(threading.RLock()), threading.Thread,
    type(functools.lru_cache(len)), np.ufunc, np.dtype, type(np.sum),
)  # fmt: skip

_SUSPENDED = {
    types.GeneratorType: "gi_frame",
    types.CoroutineType: "cr_frame",
    types.AsyncGeneratorType: "ag_frame",
}


@dataclass(frozen=True)
class Unseen:
    """In place of a fingerprint: the object may change, and nothing would show it."""

    why: str


Fingerprint: TypeAlias = str | Unseen | None
"""A text that stays equal, as a rule, while an object does not change in place; ``None`` for an object whose
changes do not affect training."""


def is_harmless(value: Any) -> bool:
    """Whether ``value`` does not change, or no change of it affects training."""
    if isinstance(value, FunctionType):
        return not (is_users(value) and has_state(value))
    if isinstance(value, BuiltinFunctionType):
        return value.__self__ is None or isinstance(value.__self__, ModuleType | type)
    if isinstance(value, _HARMLESS_TYPES):
        return True
    if isinstance(value, Tensor | nn.Module):
        return False
    module = type(value).__module__
    if module in _HARMLESS_MODULES:
        return True
    return module.partition(".")[0] in _HARMLESS and not module.startswith(_WATCHED_MODULES)


def fingerprint(value: Any, known: Mapping[int, str]) -> Fingerprint:
    """The fingerprint of ``value``. It does not look into other objects that are ``known``, given by id."""
    if is_harmless(value):
        return None
    sink = _Sink()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python is about to take __reduce__ from its iterators
            _Pickler(sink, value, known).dump(value)
    except Exception as exc:  # whatever a library's object raises when it is to be pickled
        return Unseen(str(exc) or type(exc).__name__)
    return sink.digest.hexdigest()


class _Sink:
    """Digests what is written."""

    def __init__(self) -> None:
        self.digest = hashlib.blake2b(digest_size=16)

    def write(self, data: Any) -> int:
        self.digest.update(data)
        return memoryview(data).nbytes


class _Pickler(pickle.Pickler):
    """Only reads: nothing is ever unpickled."""

    def __init__(self, sink: _Sink, root: Any, known: Mapping[int, str]) -> None:
        super().__init__(sink, protocol=4)
        self._root, self._known = root, known

    def persistent_id(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            return "tensor", id(value), version_of(value)
        if isinstance(value, np.ndarray) and value.nbytes > _LARGE_BYTES and not value.dtype.hasobject:
            return "array", id(value), _checksum_of(value)
        if (id(value) in self._known and value is not self._root) or isinstance(value, nn.Module):
            return "known", id(value)
        return None

    def reducer_override(self, value: Any) -> Any:
        if value is _stands_for:
            return NotImplemented
        parts = _parts(value)
        return parts if parts is NotImplemented else (_stands_for, (_name(value),), parts)


def _stands_for(kind: str) -> None:
    """Named by the pickles in place of what makes an object."""


def _name(value: Any) -> str:
    named = value if isinstance(value, type | FunctionType) else type(value)
    return f"{named.__module__}.{named.__qualname__}"


def _parts(value: Any) -> Any:
    """What stands in a pickle for what ``value`` holds; ``NotImplemented`` if its own pickle does."""
    if isinstance(value, FunctionType) and not is_harmless(value):
        return [value.__closure__, value.__defaults__, value.__kwdefaults__, vars(value)]
    for row in (*KEEPERS, *GENERATORS):
        if row.matches(type(value)) and (kept := row.parts(value)) is not None:
            plain = kept.tolist() if isinstance(kept, Tensor) else kept
            return [plain, attributes_of(value) if row.attributes else {}]
    for kind, read in _READ:
        if isinstance(value, kind):
            return read(value)
    if type(value).__module__.startswith("multiprocessing."):
        return _shared(value)
    return [] if is_harmless(value) else NotImplemented


def checksum(array: np.ndarray[Any, Any]) -> str:
    """A text that differs, as good as surely, if a bit of the array, or the order of its items, does."""
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    whole = flat.size // (8 * _COLUMNS) * (8 * _COLUMNS)
    table = flat[:whole].view(np.uint64).reshape(-1, _COLUMNS)
    sums = [table.sum(0, dtype=np.uint64), table.sum(1, dtype=np.uint64)]  # they wrap around
    total = 0
    for part in (*sums, flat[whole:]):
        total = zlib.crc32(np.ascontiguousarray(part).data, total)
    return f"{array.dtype.str}{array.shape}{total:08x}{int(sums[0].sum(dtype=np.uint64)):016x}"


def _checksum_of(array: np.ndarray[Any, Any]) -> str:
    """Of an array that nobody can write to nothing is read: a map of a file may be larger than memory."""
    return "" if isinstance(array, np.memmap) and array.mode == "r" else checksum(array)


def _suspended(value: Any) -> list[Any]:
    """The position of a generator, and its variables. Nothing asks its frame for its variables: that would
    change what it holds."""
    frame = getattr(value, _SUSPENDED[type(value)])
    if frame is None:
        return ["ended"]
    return [
        frame.f_lasti,
        *(item for item in gc.get_referents(value) if not isinstance(item, types.FrameType)),
    ]


def _position(file: io.IOBase) -> list[Any]:
    try:
        return ["closed" if file.closed else file.tell()]
    except (OSError, ValueError):  # it has none
        return []


def _in_map(value: mmap.mmap) -> list[Any]:
    with memoryview(value) as view:
        content = "" if view.readonly else checksum(np.frombuffer(view, np.uint8))
    return [value.tell(), content]


def _in_database(connection: sqlite3.Connection) -> list[Any]:
    try:
        names = [row[1] for row in connection.execute("PRAGMA database_list")]
        contents = [hashlib.blake2b(connection.serialize(name=name)).digest() for name in names]
    except sqlite3.ProgrammingError:
        return ["closed"]
    return [connection.total_changes, connection.in_transaction, *contents]


def _in_view(view: memoryview) -> list[Any]:
    try:
        return [view.tobytes()]
    except ValueError:  # it is released
        return []


def _shared(value: Any) -> Any:
    """What an object of multiprocessing holds; ``TypeError`` if it cannot be read."""
    if hasattr(value, "get_value"):
        return [value.get_value()]
    if type(value).__name__ in ("Lock", "RLock"):
        return []
    raise TypeError("what it holds cannot be read")


_READ: tuple[tuple[Any, Any], ...] = (
    (tuple(_SUSPENDED), _suspended),
    (io.IOBase, _position),
    (mmap.mmap, _in_map),
    (sqlite3.Connection, _in_database),
    (memoryview, _in_view),
    (CellType, in_cell),
    (contextvars.ContextVar, lambda _: []),  # it has no value
    ((types.MappingProxyType, MappingView), gc.get_referents),
    (weakref.ref, lambda value: [id(value())]),
)
"""How to read what has no pickle."""


Watched: TypeAlias = dict[str, tuple[Any, Fingerprint]]
"""By path: an object and its fingerprint."""

_REGISTRIES = (weakref.WeakSet, weakref.WeakKeyDictionary, weakref.WeakValueDictionary)
"""They list objects of the process that are alive: each process, and each unit, has others."""

REMEDY = (
    "keep what changes in plain values, tensors or objects of classes of your own, or as an attribute of the "
    "module, where each config has its own"
)


def watch(objects: Mapping[str, Any], carried: Mapping[int, str]) -> Watched:
    """The objects with their fingerprints, which do not look into what is ``carried``, given by id; without
    those whose changes do not matter."""
    prints = {path: (value, fingerprint(value, carried)) for path, value in objects.items()}
    return {
        path: (value, shown)
        for path, (value, shown) in prints.items()
        if shown is not None and not isinstance(value, _REGISTRIES)
    }


def refuse_unseen(watched: Watched) -> None:
    """Raise ``TaskError`` for an object whose changes nothing would show."""
    for path, (value, shown) in watched.items():
        if isinstance(shown, Unseen):
            raise TaskError(
                f"{described(path)} is a {name_of(type(value))}: whether training changes it cannot be seen "
                f"({shown.why}), and all configs of a process share it. Make it inside a function, or "
                f"{REMEDY}; or, if it does not matter to training, keep it in an object whose class has "
                "state_dict and load_state_dict without it"
            )


def changes(watched: Watched, carried: Mapping[int, str]) -> list[str]:
    """What has changed, as sentences."""
    return [
        f"{described(path)}, a {type(value).__qualname__}, has changed during training. It cannot hop to "
        f"another node, and the other configs of the process would begin with the change: {REMEDY}"
        for path, (value, before) in watched.items()
        if not isinstance(before, Unseen) and fingerprint(value, carried) != before
    ]


def rebindings(watched: Watched, bound: Mapping[str, Any], carried: Mapping[int, str]) -> Iterator[str]:
    """The variables, with what they were bound to in a unit, that this spoils, as sentences: if the object
    took the place of one that is watched, or moves whenever it is used. Another one that is made at its first
    use is watched from now on."""
    for path, value in bound.items():
        shown = fingerprint(value, carried)
        if shown is None or (path in watched and watched[path][0] is value):
            continue
        moves = isinstance(shown, Unseen) or hasattr(value, "__next__") or isinstance(value, io.IOBase)
        if path in watched or moves:
            yield (
                f"{described(path)} was set to a {type(value).__qualname__} during training, which cannot "
                f"hop to another node: {REMEDY}"
            )
        else:
            watched[path] = value, shown


def described(path: str) -> str:
    """A path in the graph of objects as its user calls it."""
    owner, _, name = path.partition("/")
    kind, _, of = owner.partition(" ")
    what = "the variable" if kind == "file" else "the attribute"
    return f"{what} {name.replace('/', '.')} of the {kind} {of}"
