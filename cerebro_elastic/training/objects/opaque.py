"""Fingerprints of objects that cannot be carried: they show whether one has changed."""

from __future__ import annotations

import hashlib
import io
import pickle
from collections.abc import Mapping
from types import AsyncGeneratorType, CoroutineType, FunctionType, GeneratorType, ModuleType
from typing import Any

import numpy as np
from torch import Tensor, nn

from cerebro_elastic.torch_internals import version_of

_MOST_BYTES = 4 << 20
_MOST_OBJECTS = 20_000
_CHANGE_AT_WILL = {
    "_thread", "abc", "functools", "inspect", "logging", "re", "threading", "typing", "weakref",
    "huggingface_hub", "lightning", "matplotlib", "rich", "tokenizers", "torch", "torchmetrics", "tqdm",
    "transformers", "wandb",
}  # fmt: skip
"""Packages whose objects display, prepare inputs or lock: their changes do not affect training."""


def fingerprint(value: Any, known: Mapping[int, str]) -> str | None:
    """A text that stays equal, as a rule, while ``value`` does not change in place; ``None`` if none can be
    made. It does not look into ``known`` objects, given by id."""
    if isinstance(value, GeneratorType):
        return _frame("gi", value)
    if isinstance(value, CoroutineType):
        return _frame("cr", value)
    if isinstance(value, AsyncGeneratorType):
        return _frame("ag", value)
    if isinstance(value, io.IOBase):
        return _position(value)
    package = type(value).__module__.partition(".")[0]
    if isinstance(value, type | FunctionType | ModuleType) or package in _CHANGE_AT_WILL:
        return None
    return _pickled(value, known)


def _frame(prefix: str, generator: Any) -> str:
    frame = getattr(generator, f"{prefix}_frame")
    return "ended" if frame is None else f"{frame.f_lasti} {sorted(map(_short, frame.f_locals.items()))}"


def _short(item: tuple[str, Any]) -> str:
    name, value = item
    return f"{name}={value!r}" if isinstance(value, int | float | str) else name


def _position(file: io.IOBase) -> str | None:
    try:
        return "closed" if file.closed else str(file.tell())
    except (OSError, ValueError):  # it has none
        return None


def _pickled(value: Any, known: Mapping[int, str]) -> str | None:
    sink = _Sink()
    try:
        _Pickler(sink, known).dump(value)
    except Exception:  # what cannot be pickled, or is too large
        return None
    return sink.digest.hexdigest()


class _TooLarge(Exception):
    """The value gets no fingerprint."""


class _Sink:
    """Digests what is written."""

    def __init__(self) -> None:
        self.digest = hashlib.blake2b(digest_size=16)
        self._left = _MOST_BYTES

    def write(self, data: Any) -> int:
        size = memoryview(data).nbytes
        self._left -= size
        if self._left < 0:
            raise _TooLarge
        self.digest.update(data)
        return size


class _Pickler(pickle.Pickler):
    """Only reads: nothing is ever unpickled."""

    def __init__(self, sink: _Sink, known: Mapping[int, str]) -> None:
        super().__init__(sink, protocol=4)
        self._known = known
        self._left = _MOST_OBJECTS

    def persistent_id(self, value: Any) -> Any:
        self._left -= 1
        if self._left < 0:
            raise _TooLarge
        if isinstance(value, Tensor):
            return "tensor", id(value), version_of(value)
        if isinstance(value, np.ndarray) and value.nbytes > _MOST_BYTES:
            return "array", id(value)
        if id(value) in self._known or isinstance(value, nn.Module):
            return "known", id(value)
        return None
