"""The layout of ``tensors.safetensors``, such that tensors stream from and into their own memory.

The safetensors format (https://github.com/huggingface/safetensors) is an 8-byte little-endian header
length, a JSON header, then the tensors' bytes without gaps. It is written here and not by the
library because the library takes three passes over the data where one does, which also hashes.
The header is a function of the tensors' names, dtypes and shapes alone, in a fixed order: equal
tensors are equal bytes. The library reads these files.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

_CODES = {
    torch.bool: "BOOL",
    torch.uint8: "U8",
    torch.int8: "I8",
    torch.uint16: "U16",
    torch.int16: "I16",
    torch.uint32: "U32",
    torch.int32: "I32",
    torch.uint64: "U64",
    torch.int64: "I64",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float32: "F32",
    torch.float64: "F64",
    torch.complex64: "C64",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
}
"""The format's dtypes; a tensor of any other dtype is stored as its bytes (U8)."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part of tensors that are divided by rows, as by ``torch.chunk``."""

    index: int
    """Its number, from 0."""
    count: int
    """How many parts there are."""

    def rows(self, total: int) -> slice:
        """The part's rows of ``total``; the last parts may have fewer than the others, or none."""
        size = -(-total // self.count)
        start = min(self.index * size, total)
        return slice(start, min(start + size, total))


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A stored tensor."""

    name: str
    """Its path in the state, such as ``model/0.weight``."""
    dtype: torch.dtype
    """Its dtype."""
    shape: tuple[int, ...]
    """Its shape."""

    def of(self, part: Part) -> TensorSpec:
        """The same of one part of the tensor."""
        rows = part.rows(self.shape[0])
        return replace(self, shape=(rows.stop - rows.start, *self.shape[1:]))

    @property
    def bytes(self) -> int:
        """Its size in the file."""
        return math.prod(self.shape) * self.dtype.itemsize


def specs(tensors: Mapping[str, Tensor]) -> list[TensorSpec]:
    """The tensors in file order: wide elements first, as the library has it, so that each is aligned."""
    unsorted = (TensorSpec(name, tensor.dtype, tuple(tensor.shape)) for name, tensor in tensors.items())
    return sorted(unsorted, key=lambda spec: (-spec.dtype.itemsize, spec.name))


def header(layout: Iterable[TensorSpec]) -> bytes:
    """The file's bytes before the first tensor."""
    entries, start = {}, 0
    for spec in layout:
        code = _CODES.get(spec.dtype)
        entries[spec.name] = {
            "dtype": code or "U8",
            "shape": list(spec.shape) if code else [spec.bytes],
            "data_offsets": [start, start + spec.bytes],
        }
        start += spec.bytes
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def empty(layout: Iterable[TensorSpec]) -> dict[str, Tensor]:
    """Fresh tensors to read into. Each has memory of its own: none keeps the others alive."""
    return {spec.name: torch.empty(spec.shape, dtype=spec.dtype) for spec in layout}


def memory(layout: Iterable[TensorSpec], tensors: Mapping[str, Tensor]) -> Iterator[memoryview]:
    """The tensors' own bytes in file order: writable views, nothing is copied."""
    for spec in layout:
        if spec.bytes:
            yield tensors[spec.name].reshape(-1).view(torch.uint8).numpy().data
