"""State trees as JSON and a flat dict of tensors; nothing is ever pickled or unpickled.

A state may hold:

- dict, OrderedDict (with its attributes, such as a state dict's ``_metadata``), defaultdict (of a plain type;
  with any other factory it comes back as dict), Counter (``MultiStepLR`` has one), list, tuple, deque, set,
  frozenset;
- str, bytes, bool, int, float, complex, ``None``;
- numpy arrays and scalars, bfloat16 and float8 included;
- arrays of other libraries that follow the array API standard, such as JAX's: they come back as numpy's;
- torch's values (``torch_values.py``): tensors, also sparse and divided ones, dtypes, devices and sizes.

The round trip keeps types and bits, and the order of dicts. Nothing of a framework is imported: a state has
values of torch only if torch is there, and a file names them.

In JSON, an object with one key that begins with ``$`` is a tagged value, any other object a dict.
"""

from __future__ import annotations

import base64
import json
import math
import struct
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cerebro_elastic.errors import CheckpointError
from cerebro_elastic.hop.checkpoint.tensors import (
    Json,
    Leaf,
    Leaves,
    Path,
    in_words,
    is_storable,
    numpy_dtype,
    refuse,
)

_KEYS = {str, int, float, bool, type(None), tuple, bytes, frozenset}
_FACTORIES: dict[str, type] = {kind.__name__: kind for kind in (list, dict, set, int, float, str)}
"""The factories that a stored defaultdict keeps."""
_NATIVE_INT = 1 << 63  # beyond it JSON readers of other languages, and Python's digit limit, give way


def flatten(state: Mapping[str, Any], *, copies: bool = True) -> tuple[Json, dict[str, Leaf]]:
    """The tree as JSON values, and its arrays and tensors by path name: contiguous and on the CPU, if no
    ``DTensor``s. Arrays are ``copies``, or those of the state itself.

    Raises ``CheckpointError`` with the path of a value that cannot be stored.
    """
    encoder = Encoder(copies=copies)
    try:
        return encoder.encode(state, ()), encoder.leaves.by_name
    except RecursionError as exc:
        raise CheckpointError("the state is nested too deeply: does a list or dict hold itself?") from exc


def unflatten(tree: Json, leaves: Mapping[str, Leaf]) -> Any:
    """The state that ``flatten`` took apart; its arrays and tensors are those given, not copies."""
    if isinstance(tree, list):
        return [unflatten(item, leaves) for item in tree]
    if not isinstance(tree, dict):
        return tree
    tag = next(iter(tree), "")
    if not tag.startswith("$"):
        return {key: unflatten(item, leaves) for key, item in tree.items()}
    if tag == "$array":
        return leaves[tree[tag]]
    if tag == "$tensor":
        return _torch_values().placed(leaves[tree[tag]], tree.get("order"))
    decode = _DECODE.get(tag) or _torch_values().DECODE[tag]
    return decode(unflatten(tree[tag], leaves))


def arrays_in(tree: Json) -> Iterator[str]:
    """The names of numpy's arrays in a tree that ``flatten`` gave; all others are tensors."""
    if isinstance(tree, list):
        for item in tree:
            yield from arrays_in(item)
    elif isinstance(tree, dict):
        if "$array" in tree:
            yield tree["$array"]
        else:
            yield from arrays_in(list(tree.values()))


def leaves_in(value: Any) -> Iterator[Any]:
    """The members of dicts, lists, tuples and sets, as they are."""
    if isinstance(value, Mapping):
        for item in value.values():
            yield from leaves_in(item)
    elif isinstance(value, list | tuple | set):
        for item in value:
            yield from leaves_in(item)
    else:
        yield value


def is_tensor(leaf: Any) -> bool:
    """Whether it is a tensor of torch; the test does not import torch."""
    return "torch" in sys.modules and isinstance(leaf, sys.modules["torch"].Tensor)


class Encoder:
    """One walk over a state."""

    def __init__(self, *, copies: bool = True) -> None:
        self.leaves = Leaves()
        self._copies = copies

    def encode(self, value: Any, path: Path) -> Json:
        """``value`` at ``path`` as JSON. Raises ``CheckpointError``."""
        kind = type(value)
        if kind in (str, bool, type(None)):
            return value
        if encode := _SCALARS.get(kind):
            return encode(value)
        if kind is defaultdict and value.default_factory in _FACTORIES.values():
            return {"$default": [value.default_factory.__name__, self._pairs(value, path)]}
        if kind in (dict, defaultdict):
            return self._dict(value, path)
        if kind is Counter:
            return {"$counter": self._pairs(value, path)}
        if kind is OrderedDict:
            parts = (self._pairs(value, path), self.encode(vars(value), (*path, "__dict__")))
            return {"$ordered": list(parts)}
        if kind is list:
            return self._items(value, path)
        if kind is tuple:
            return {"$tuple": self._items(value, path)}
        if kind is deque:
            return {"$deque": [self._items(value, path), value.maxlen]}
        if kind in (set, frozenset):  # hash order differs between processes, the digest must not
            return {f"${kind.__name__}": sorted(self._items(value, path), key=json.dumps)}
        if kind is np.ndarray:
            return self._add_array(value, path)
        if isinstance(value, np.generic) and (value.dtype.kind in "biufc" or is_storable(value.dtype)):
            code = value.dtype.str if type(value).__module__ == "numpy" else value.dtype.name
            return {"$scalar": [code, value.tobytes().hex()]}
        if "torch" in sys.modules and _torch_values().is_torch(value):
            return _torch_values().encode(self.leaves, value, path)
        if hasattr(value, "__array_namespace__"):
            return self._add_array(_as_numpy(value, path), path)
        hint = "keep state in plain values and tensors"
        return refuse(path, f"a {kind.__module__}.{kind.__qualname__}", hint)

    def _items(self, values: Iterable[Any], path: Path) -> list[Json]:
        return [self.encode(item, (*path, at)) for at, item in enumerate(values)]

    def _dict(self, value: Mapping[Any, Any], path: Path) -> Json:
        if all(type(key) is str and not key.startswith("$") for key in value):
            return {key: self.encode(item, (*path, key)) for key, item in value.items()}
        return {"$dict": self._pairs(value, path)}

    def _pairs(self, value: Mapping[Any, Any], path: Path) -> list[Json]:
        for key in value:
            if type(key) not in _KEYS:
                refuse(path, f"a dict with a key of type {type(key).__qualname__}", "use str or int keys")
        return [
            [self.encode(key, (*path, key)), self.encode(item, (*path, key))] for key, item in value.items()
        ]

    def _add_array(self, array: NDArray[Any], path: Path) -> Json:
        if not is_storable(array.dtype):
            raise CheckpointError(
                f"{in_words(path)} is a numpy array of dtype {array.dtype}, which a checkpoint cannot store: "
                "use a numeric or boolean dtype in native byte order"
            )
        # A copy: a write to the array while it is saved would not be noticed.
        own = np.array(array, copy=True, order="C") if self._copies else np.ascontiguousarray(array)
        return {"$array": self.leaves.add(own.reshape(array.shape), path)}


def _torch_values() -> ModuleType:
    """Torch's values; the module is imported with a state's first value of torch."""
    from cerebro_elastic.hop.checkpoint import torch_values

    return torch_values


def _as_numpy(array: Any, path: Path) -> NDArray[Any]:
    try:
        return np.asarray(array)
    except (TypeError, ValueError, RuntimeError) as exc:
        kind = f"a {type(array).__module__}.{type(array).__qualname__}"
        return refuse(path, kind, f"it is no numeric array ({exc}), so store the numbers it is made of")


def _int(value: int) -> Json:
    return value if -_NATIVE_INT <= value < _NATIVE_INT else {"$int": hex(value)}


def _float(value: float) -> Json:
    return value if math.isfinite(value) else {"$float": struct.pack("<d", value).hex()}


def _from_float(text: str) -> float:
    number: float = struct.unpack("<d", bytes.fromhex(text))[0]
    return number


def _from_scalar(parts: list[str]) -> Any:
    return np.frombuffer(bytes.fromhex(parts[1]), dtype=numpy_dtype(parts[0]))[0]


def _from_counter(pairs: list[Any]) -> Counter[Any]:
    return Counter({key: count for key, count in pairs})  # noqa: C416 - pairs are lists


def _from_ordered(parts: list[Any]) -> OrderedDict[Any, Any]:
    result = OrderedDict((key, item) for key, item in parts[0])
    vars(result).update(parts[1])
    return result


_SCALARS: dict[type, Callable[[Any], Json]] = {
    int: _int,
    float: _float,
    complex: lambda value: {"$complex": [_float(value.real), _float(value.imag)]},
    bytes: lambda value: {"$bytes": base64.b64encode(value).decode()},
}

_DECODE: dict[str, Callable[[Any], Any]] = {
    "$int": lambda text: int(text, 16),
    "$float": _from_float,
    "$complex": lambda parts: complex(*parts),
    "$bytes": base64.b64decode,
    "$scalar": _from_scalar,
    "$dict": lambda pairs: {key: item for key, item in pairs},  # noqa: C416 - pairs are lists
    "$counter": _from_counter,
    "$ordered": _from_ordered,
    "$default": lambda parts: defaultdict(_FACTORIES[parts[0]], ((key, item) for key, item in parts[1])),
    "$deque": lambda parts: deque(parts[0], parts[1]),
    "$tuple": tuple,
    "$set": set,
    "$frozenset": frozenset,
}
