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
    """Part ``index`` of ``count``, of tensors that are divided by rows as ``torch.chunk`` does it."""

    index: int
    count: int

    def rows(self, total: int) -> slice:
        """The part's rows of so many; the last parts may have fewer, or none."""
        each = -(-total // self.count)
        start = min(self.index * each, total)
        return slice(start, min(start + each, total))


@dataclass(frozen=True, slots=True)
class Spec:
    """A stored tensor's name, dtype and shape."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]

    def of(self, part: Part) -> Spec:
        """The same of one part of the tensor."""
        rows = part.rows(self.shape[0])
        return replace(self, shape=(rows.stop - rows.start, *self.shape[1:]))

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


def specs(tensors: Mapping[str, Tensor]) -> list[Spec]:
    """In file order: wide elements first, as the library has it, so that each tensor is aligned."""
    found = (Spec(name, tensor.dtype, tuple(tensor.shape)) for name, tensor in tensors.items())
    return sorted(found, key=lambda spec: (-spec.dtype.itemsize, spec.name))


def header(layout: Iterable[Spec]) -> bytes:
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


def empty(layout: Iterable[Spec]) -> dict[str, Tensor]:
    """Fresh tensors to read into. Each has memory of its own: none keeps the others alive."""
    return {spec.name: torch.empty(spec.shape, dtype=spec.dtype) for spec in layout}


def memory(layout: Iterable[Spec], tensors: Mapping[str, Tensor]) -> Iterator[memoryview]:
    """The tensors' own bytes in file order: writable views, nothing is copied."""
    for spec in layout:
        if spec.bytes:
            yield tensors[spec.name].reshape(-1).view(torch.uint8).numpy().data
