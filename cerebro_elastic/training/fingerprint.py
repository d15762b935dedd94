"""Values as short texts: equal texts, equal bits. ``cerebro check`` compares them.

It has its own walk through objects, deeper than that of the code that carries state, so that the two share no
blind spot: also into objects with ``__slots__``, and into objects that do not describe their state.
"""

from __future__ import annotations

import random
import zlib
from collections import deque
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

_LEAVES = (type(None), bool, int, float, complex, str, bytes, Enum, torch.dtype, torch.Size, torch.device)
_LONGEST = 60
"""Characters of a value that is shown as it is."""
_MOST = 200
"""A tree with more leaves than this becomes one."""
_DEEPEST = 8
_LIBRARIES = {"builtins", "lightning", "lightning_fabric", "logging", "pytorch_lightning", "torch", "weakref"}
"""Packages whose objects are passed over: they are compared elsewhere, or do not matter."""


def fingerprints(values: Mapping[str, Any]) -> dict[str, str]:
    """The leaves of trees as texts, by kind and path (``weight layers.0.bias``). Objects that are no data,
    such as functions, are represented by their type."""
    return {f"{kind} {path}".rstrip(): text for kind, tree in values.items() for path, text in _named(tree)}


def _named(tree: Any) -> Iterator[tuple[str, str]]:
    """The first two levels keep their names whatever their size: messages name them."""
    if not isinstance(tree, Mapping):
        yield from _leaves(tree, "", (), 0)
        return
    for name, item in tree.items():
        leaves = list(_leaves(item, str(name), (), 1))
        yield from leaves if len(leaves) <= _MOST else [(str(name), digest_of(repr(leaves).encode()))]


def _leaves(value: Any, path: str, above: tuple[int, ...], depth: int) -> Iterator[tuple[str, str]]:
    if isinstance(value, _LEAVES):
        yield path, _short(repr(value))
    elif isinstance(value, Tensor):
        yield path, _tensor(value)
    elif isinstance(value, np.ndarray | np.generic):
        yield path, _array(np.asarray(value))
    elif isinstance(value, set | frozenset):
        yield path, _short(repr(sorted(map(repr, list(value)))))
    elif id(value) in above or depth > _DEEPEST:
        return
    elif (parts := _parts(value)) is None:
        yield path, f"<{type(value).__qualname__}>"
    else:
        yield f"{path}:".removeprefix(":"), f"{type(value).__qualname__} of {len(parts)}"
        for name, item in parts.items():
            yield from _leaves(item, f"{path}.{name}".lstrip("."), (*above, id(value)), depth + 1)


def _parts(value: Any) -> Mapping[Any, Any] | None:
    """The parts of a value by name; ``None`` if it is no data."""
    if isinstance(value, Mapping):
        return value
    if isinstance(value, list | tuple | deque):
        return dict(enumerate(value))
    if isinstance(value, random.Random):
        return {"state": value.getstate()}
    if isinstance(value, np.random.Generator):
        return {"state": value.bit_generator.state}
    if isinstance(value, np.random.RandomState):
        return {"state": value.get_state()}
    if isinstance(value, torch.Generator):
        return {"state": value.get_state()}
    if isinstance(value, nn.Module):
        return value.state_dict()
    kind = type(value)
    library = kind.__module__.partition(".")[0]
    if library == "pandas" and hasattr(value, "__array__"):  # not its caches
        return {"values": np.asarray(value).tolist(), "axes": getattr(value, "axes", None)}
    if library in _LIBRARIES or isinstance(value, type) or callable(value):
        return None
    slots = {name for base in kind.__mro__ for name in _slots(base) if hasattr(value, name)}
    return {**getattr(value, "__dict__", {}), **{name: getattr(value, name) for name in sorted(slots)}}


def _slots(kind: type) -> tuple[str, ...]:
    slots = vars(kind).get("__slots__", ())
    names = (slots,) if isinstance(slots, str) else tuple(slots)
    return tuple(name for name in names if not name.startswith("__"))


def _tensor(tensor: Tensor) -> str:
    if is_lazy(tensor):  # it has no shape yet
        return "uninitialized"
    shown = f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
    try:
        plain = tensor.detach().to_dense() if tensor.layout is not torch.strided else tensor.detach()
        plain = plain.resolve_conj().resolve_neg().cpu()
        if plain.numel() == 1 and plain.isfinite():
            return f"{shown} {plain.item()!r}"
        return f"{shown} {digest_of(_bytes_of(plain))}"
    except (RuntimeError, NotImplementedError):  # on no device, or quantized
        return shown


def _bytes_of(tensor: Tensor) -> memoryview:
    if not tensor.numel():  # numpy would fix the size of its memory, which observers of quantization change
        return memoryview(b"")
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data


def _array(array: np.ndarray[Any, Any]) -> str:
    shown = f"{array.dtype}{list(array.shape)}"
    if array.dtype.kind == "O":
        return shown
    if array.size == 1:
        return f"{shown} {array.item()!r}"
    return f"{shown} {digest_of(np.ascontiguousarray(array).tobytes())}"


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 20]}... {digest_of(text.encode())}"


def digest_of(data: bytes | memoryview) -> str:
    """The text of a value that is too large to be shown. With large models a check spends most of its time
    here, so it is a CRC and no cryptographic hash: another value has the same one by a chance of 2**-32."""
    return f"#{zlib.crc32(data):08x}"
