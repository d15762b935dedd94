"""The layout of ``tensors.safetensors``, such that arrays stream from and into their own memory.

The safetensors format (https://github.com/huggingface/safetensors) is an 8-byte little-endian header
length, a JSON header, then the arrays' bytes without gaps. It is written here and not by the
library because the library takes three passes over the data where one does, which also hashes.
The header is a function of the arrays' names, dtypes and shapes alone, in a fixed order: equal
arrays are equal bytes. The library reads these files.

An array is numpy's, or a tensor of torch. Both name their dtypes alike, as the file has them. Torch is not
imported for numpy's.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cerebro_elastic.errors import CheckpointError
from cerebro_elastic.system.aligned import aligned_empty
from cerebro_elastic.system.files import Chunk, Content, Sha256

if TYPE_CHECKING:
    from torch import Tensor


Leaf: TypeAlias = "NDArray[Any] | Tensor"
"""An array of numpy, or a tensor of torch."""

_FORMAT = {
    "bool": ("BOOL", 1),
    "uint8": ("U8", 1),
    "int8": ("I8", 1),
    "uint16": ("U16", 2),
    "int16": ("I16", 2),
    "uint32": ("U32", 4),
    "int32": ("I32", 4),
    "uint64": ("U64", 8),
    "int64": ("I64", 8),
    "float16": ("F16", 2),
    "bfloat16": ("BF16", 2),
    "float32": ("F32", 4),
    "float64": ("F64", 8),
    "complex64": ("C64", 8),
    "float8_e4m3fn": ("F8_E4M3", 1),
    "float8_e5m2": ("F8_E5M2", 1),
}
"""The format's dtypes and their bytes; an array of any other dtype is stored as its bytes (U8)."""
_OTHERS = {"complex128": 16}
"""The bytes of dtypes that numpy has, too. Other bytes are torch's."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part of tensors that are divided by rows, as by ``torch.chunk``."""

    index: int
    """Its number, from 0."""
    count: int
    """The number of parts."""

    def rows(self, total: int) -> slice:
        """The part's rows of ``total``; the last parts may have fewer than the others, or none."""
        size = -(-total // self.count)
        start = min(self.index * size, total)
        return slice(start, min(start + size, total))


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A stored array."""

    name: str
    """Its path in the state, such as ``model/0.weight``."""
    dtype: str
    """The name of its dtype, such as ``float32``."""
    shape: tuple[int, ...]

    def of(self, part: Part) -> TensorSpec:
        """The same of one part of the tensor."""
        rows = part.rows(self.shape[0])
        return replace(self, shape=(rows.stop - rows.start, *self.shape[1:]))

    @property
    def bytes(self) -> int:
        """Its size in the file."""
        return math.prod(self.shape) * _item_bytes(self.dtype)


def is_storable(dtype: np.dtype[Any]) -> bool:
    """Whether an array of this dtype can be stored: a number or bool in native byte order."""
    return dtype.isnative and (dtype.name in _FORMAT or dtype.name in _OTHERS)


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The dtype of this name. Numpy gets bfloat16 and the like from the package ``ml_dtypes``."""
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes

        dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
        return dtype


def specs(leaves: Mapping[str, Leaf]) -> list[TensorSpec]:
    """The arrays in file order: wide elements first, as the library has it, so that each is aligned."""
    unsorted = (TensorSpec(name, _dtype_name(leaf), tuple(leaf.shape)) for name, leaf in leaves.items())
    return sorted(unsorted, key=lambda spec: (-_item_bytes(spec.dtype), spec.name))


def header(layout: Iterable[TensorSpec]) -> bytes:
    """The file's bytes before the first array."""
    entries, start = {}, 0
    for spec in layout:
        code = _FORMAT[spec.dtype][0] if spec.dtype in _FORMAT else None
        entries[spec.name] = {
            "dtype": code or "U8",
            "shape": list(spec.shape) if code else [spec.bytes],
            "data_offsets": [start, start + spec.bytes],
        }
        start += spec.bytes
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def empty(layout: Iterable[TensorSpec], arrays: Collection[str]) -> dict[str, Leaf]:
    """Fresh memory to read into: numpy's for ``arrays``, torch's for all others. Each has its own memory:
    none keeps the others alive."""
    return {spec.name: _empty_array(spec) if spec.name in arrays else _empty_tensor(spec) for spec in layout}


def memory(layout: Iterable[TensorSpec], leaves: Mapping[str, Leaf]) -> Iterator[memoryview]:
    """The arrays' own bytes in file order: writable views, nothing is copied."""
    for spec in layout:
        if spec.bytes:
            yield _bytes_of(leaves[spec.name])


def over(memory: memoryview, spec: TensorSpec, *, array: bool) -> Leaf:
    """A leaf in this ``memory``: numpy's, or torch's."""
    if array:
        return np.frombuffer(memory, numpy_dtype(spec.dtype)).reshape(spec.shape)
    import torch

    return torch.frombuffer(memory, dtype=getattr(torch, spec.dtype)).reshape(spec.shape)


def _empty_array(spec: TensorSpec) -> NDArray[Any]:
    return aligned_empty(spec.shape, numpy_dtype(spec.dtype))


def _empty_tensor(spec: TensorSpec) -> Tensor:
    import torch

    return torch.empty(spec.shape, dtype=getattr(torch, spec.dtype))


def _bytes_of(leaf: Leaf) -> memoryview:
    if isinstance(leaf, np.ndarray):
        return leaf.reshape(-1).view(np.uint8).data
    import torch

    return leaf.reshape(-1).view(torch.uint8).numpy().data


def _dtype_name(leaf: Leaf) -> str:
    return leaf.dtype.name if isinstance(leaf, np.ndarray) else str(leaf.dtype).removeprefix("torch.")


@cache
def _item_bytes(dtype: str) -> int:
    if dtype in _FORMAT:
        return _FORMAT[dtype][1]
    if dtype in _OTHERS:
        return _OTHERS[dtype]
    import torch

    item_bytes: int = getattr(torch, dtype).itemsize
    return item_bytes


Json: TypeAlias = Any
Path: TypeAlias = tuple[Any, ...]
"""Where a value is in a state: keys and indices."""


class Leaves:
    """Collects the arrays and tensors of one walk over a state."""

    def __init__(self) -> None:
        self.by_name: dict[str, Leaf] = {}
        self.tied: dict[Any, Json] = {}
        """The JSON of values stored already, by their identity: none is stored twice."""

    def add(self, leaf: Leaf, path: Path) -> str:
        """Store a leaf. Returns its name."""
        name = "/".join(map(str, path)) or "state"
        while name in self.by_name or name == "__metadata__":  # the format's reserved name
            name += "~"
        self.by_name[name] = leaf
        return name


def is_divided(leaf: Any) -> bool:
    """Whether it is a ``DTensor``. Its module takes long to import, so only its users import it."""
    return hasattr(leaf, "placements")


def refuse(path: Path, what: str, hint: str) -> NoReturn:
    """Raise ``CheckpointError`` for a value that cannot be stored."""
    raise CheckpointError(
        f"{in_words(path)} is {what}, which a checkpoint cannot store: {hint}; it takes dict, list, tuple, "
        "set, str, bytes, numbers, bool, None, dense tensors and numeric numpy arrays"
    )


def in_words(path: Path) -> str:
    """The path as an expression of Python."""
    return "state" + "".join(f"[{key!r}]" for key in path)


class TensorsDigest(Sha256):
    """The digest of a state's tensors: a function of their bytes, wherever these lie.

    It is the sha256 of the tensors' own sha256, in file order. So a tensor that lies in a base (``bases.py``)
    counts as one in the checkpoint's file does. It is computed while a file with the tensors of ``layout``
    passes, except for those whose digests ``elsewhere`` has.
    """

    def __init__(self, layout: Sequence[TensorSpec], elsewhere: Mapping[str, Content]) -> None:
        super().__init__()
        here = [spec for spec in layout if spec.name not in elsewhere]
        self._header = header(here)
        self._layout = [spec.name for spec in layout if spec.bytes]
        self._elsewhere = elsewhere
        self._here = [spec.name for spec in here if spec.bytes]
        self._left = [spec.bytes for spec in reversed(here) if spec.bytes]
        self._room = len(self._header)
        self._sections = [self._hash]

    def update(self, chunk: Chunk) -> None:
        """Take ``chunk``, which may begin and end anywhere."""
        view = memoryview(chunk)
        while len(view):
            if not self._room:
                self._wait()
                self._hash = hashlib.sha256()
                self._sections.append(self._hash)
                self._room = self._left.pop() if self._left else len(view)
            size = min(self._room, len(view))
            super().update(view[:size])
            self._room -= size
            view = view[size:]

    def content(self) -> Content:
        """The bytes of all tensors, and their digest."""
        self._wait()
        first, *own = (section.hexdigest() for section in self._sections)
        digests = {name: content.sha256 for name, content in self._elsewhere.items()}
        digests |= dict(zip(self._here, own, strict=False))
        sound = first == hashlib.sha256(self._header).hexdigest() and len(own) == len(self._here)
        parts = [digests.get(name, "") for name in self._layout] if sound else [first, *own]
        size = self._bytes - len(self._header) + sum(content.bytes for content in self._elsewhere.values())
        return Content(size, hashlib.sha256("".join(parts).encode()).hexdigest())
