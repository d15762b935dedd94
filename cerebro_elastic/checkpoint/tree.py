"""State trees as JSON and a flat dict of tensors; nothing is ever pickled or unpickled.

A state may hold:

- dict, OrderedDict (with its attributes, such as a state dict's ``_metadata``), defaultdict (of a plain type;
  with any other factory it comes back as dict), Counter (``MultiStepLR`` has one), list, tuple, deque, set,
  frozenset;
- str, bytes, bool, int, float, complex, ``None``, ``torch.dtype``, ``torch.device``, ``torch.Size``;
- strided and sparse tensors, numpy arrays and scalars;
- ``DTensor``s that are divided by rows, of which each rank has its part.

The round trip keeps types and bits, the order of dicts, and tensors' dense memory layouts (``channels_last``
stays so). Tensors that are the same memory with the same shape (tied weights) are stored once and stay tied;
other sharing between objects is not kept. Tensors come back on the CPU.

In JSON, an object with one key that begins with ``$`` is a tagged value, any other object a dict.
"""

from __future__ import annotations

import base64
import json
import math
import struct
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NoReturn, TypeAlias

import numpy as np
import torch
from torch import Tensor

from cerebro_elastic.errors import CheckpointError
from cerebro_elastic.torch_internals import SPARSE_PARTS

Json: TypeAlias = Any
Path: TypeAlias = tuple[Any, ...]

_KEYS = {str, int, float, bool, type(None), tuple, bytes, frozenset}
_FACTORIES: dict[str, type] = {kind.__name__: kind for kind in (list, dict, set, int, float, str)}
"""The factories that a stored defaultdict keeps."""
_NATIVE_INT = 1 << 63  # beyond it JSON readers of other languages, and Python's digit limit, give way


def flatten(state: Mapping[str, Any]) -> tuple[Json, dict[str, Tensor]]:
    """The tree as JSON values, and its tensors by path name: contiguous and on the CPU, if no ``DTensor``s.

    Raises ``CheckpointError`` naming the path of what cannot be stored.
    """
    encoder = _Encoder()
    try:
        return encoder.encode(state, ()), encoder.tensors
    except RecursionError as exc:
        raise CheckpointError("the state is nested too deeply: does a list or dict hold itself?") from exc


def unflatten(tree: Json, tensors: Mapping[str, Tensor]) -> Any:
    """The state that ``flatten`` took apart; its tensors are those given, not copies."""
    if isinstance(tree, list):
        return [unflatten(item, tensors) for item in tree]
    if not isinstance(tree, dict):
        return tree
    tag = next(iter(tree), "")
    if not tag.startswith("$"):
        return {key: unflatten(item, tensors) for key, item in tree.items()}
    if tag == "$tensor":
        return _tensor(tensors[tree[tag]], tree)
    if tag == "$array":
        return _tensor(tensors[tree[tag]], tree).numpy()
    return _DECODE[tag](unflatten(tree[tag], tensors))


def tensors_in(value: Any) -> Iterator[Tensor]:
    """The tensors in dicts, lists and tuples, as they are."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from tensors_in(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from tensors_in(item)


def is_divided(tensor: Tensor) -> bool:
    """Whether it is a ``DTensor``, whose module takes long to import, so that only its users do."""
    return hasattr(tensor, "placements")


class _Encoder:
    """One walk over a state."""

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}
        self._tied: dict[Any, Json] = {}

    def encode(self, value: Any, path: Path) -> Json:
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
        if kind is Tensor:
            return self._add_tensor(value, path)
        if isinstance(value, Tensor) and is_divided(value):
            return self._add_divided(value, path)
        if kind is np.ndarray:
            return self._add_array(value, path)
        if isinstance(value, np.generic) and value.dtype.kind in "biufc":
            return {"$scalar": [value.dtype.str, value.tobytes().hex()]}
        hint = "detach() it" if isinstance(value, Tensor) else "keep state in plain values and tensors"
        return _refuse(path, f"a {kind.__module__}.{kind.__qualname__}", hint)

    def _items(self, values: Iterable[Any], path: Path) -> list[Json]:
        return [self.encode(item, (*path, at)) for at, item in enumerate(values)]

    def _dict(self, value: Mapping[Any, Any], path: Path) -> Json:
        if all(type(key) is str and not key.startswith("$") for key in value):
            return {key: self.encode(item, (*path, key)) for key, item in value.items()}
        return {"$dict": self._pairs(value, path)}

    def _pairs(self, value: Mapping[Any, Any], path: Path) -> list[Json]:
        for key in value:
            if type(key) not in _KEYS:
                _refuse(path, f"a dict with a key of type {type(key).__qualname__}", "use str or int keys")
        return [
            [self.encode(key, (*path, key)), self.encode(item, (*path, key))] for key, item in value.items()
        ]

    def _add_tensor(self, tensor: Tensor, path: Path) -> Json:
        if tensor.requires_grad:
            return _refuse(path, f"a tensor ({tensor.layout}) that requires grad", "detach() it")
        if tensor.layout in _PARTS:
            return self._add_sparse(tensor, path)
        if tensor.layout is not torch.strided or tensor.is_quantized or tensor.device.type == "meta":
            kind = f"a tensor with layout {tensor.layout} on {tensor.device}"
            return _refuse(path, kind, "store a dense tensor")
        memory = (tensor.device, tensor.data_ptr(), tensor.shape, tensor.stride())
        same = (*memory, tensor.dtype, tensor.is_conj(), tensor.is_neg())
        if not tensor.numel():
            return self._place(tensor, path, "$tensor")
        if same not in self._tied:
            self._tied[same] = self._place(tensor.resolve_conj().resolve_neg(), path, "$tensor")
        return self._tied[same]

    def _add_sparse(self, tensor: Tensor, path: Path) -> Json:
        parts = [
            self.encode(getattr(tensor, part)(), (*path, part.strip("_"))) for part in _PARTS[tensor.layout]
        ]
        whole = tensor.layout is not torch.sparse_coo or tensor.is_coalesced()
        layout = str(tensor.layout).removeprefix("torch.")
        return {"$sparse": [layout, list(tensor.shape), whole, *parts]}

    def _add_divided(self, tensor: Any, path: Path) -> Json:
        """Ties are seen by the object: an empty part has no memory."""
        if [placement.is_shard(0) for placement in tensor.placements] != [True]:
            return _refuse(path, f"a DTensor placed as {tensor.placements}", "divide it by rows, Shard(0)")
        if id(tensor) not in self._tied:
            name = self._free_name(path)
            self.tensors[name] = tensor
            self._tied[id(tensor)] = {"$tensor": name}
        return self._tied[id(tensor)]

    def _add_array(self, array: np.ndarray[Any, Any], path: Path) -> Json:
        try:  # a copy: a write to the array while it is saved would not be noticed
            tensor = torch.from_numpy(np.array(array, order="C", copy=True).reshape(array.shape))
        except (TypeError, ValueError) as exc:
            raise CheckpointError(
                f"{_name(path)} is a numpy array of dtype {array.dtype}, which a checkpoint cannot hold: "
                "use a numeric or boolean dtype in native byte order"
            ) from exc
        return self._place(tensor, path, "$array")

    def _place(self, tensor: Tensor, path: Path, tag: str) -> Json:
        name = self._free_name(path)
        leaf: dict[str, Json] = {tag: name}
        if not tensor.is_contiguous():
            order = sorted(range(tensor.dim()), key=tensor.stride, reverse=True)
            if tensor.permute(order).is_contiguous():
                leaf["order"] = order
                tensor = tensor.permute(order)
        self.tensors[name] = tensor.cpu().contiguous()
        return leaf

    def _free_name(self, path: Path) -> str:
        name = "/".join(map(str, path)) or "state"
        while name in self.tensors or name == "__metadata__":  # the format's reserved name
            name += "~"
        return name


def _tensor(stored: Tensor, leaf: Mapping[str, Any]) -> Tensor:
    """``stored`` with its axes back in place; the memory stays as it is."""
    order = leaf.get("order")
    return stored if order is None else stored.permute(np.argsort(order).tolist())


_COMPRESSED = ("crow_indices", "col_indices", "values"), ("ccol_indices", "row_indices", "values")

_PARTS: dict[torch.layout, tuple[str, ...]] = {
    torch.sparse_coo: SPARSE_PARTS,
    **dict.fromkeys((torch.sparse_csr, torch.sparse_bsr), _COMPRESSED[0]),
    **dict.fromkeys((torch.sparse_csc, torch.sparse_bsc), _COMPRESSED[1]),
}
"""The dense tensors that a sparse one consists of."""


def _from_sparse(parts: list[Any]) -> Tensor:
    """What is not coalesced stays so: gradients that are added up later add up in the same order."""
    name, shape, whole, *tensors = parts
    layout = getattr(torch, name)
    # Checked, for a checkpoint may be a stranger's: wrong indices would read other memory.
    if layout is torch.sparse_coo:
        return torch.sparse_coo_tensor(
            tensors[0], tensors[1], size=shape, is_coalesced=whole, check_invariants=True
        )
    return torch.sparse_compressed_tensor(
        tensors[0], tensors[1], tensors[2], size=shape, layout=layout, check_invariants=True
    )


def _name(path: Path) -> str:
    return "state" + "".join(f"[{key!r}]" for key in path)


def _refuse(path: Path, what: str, hint: str) -> NoReturn:
    raise CheckpointError(
        f"{_name(path)} is {what}, which a checkpoint cannot hold: {hint}; it takes dict, list, tuple, set, "
        "str, bytes, numbers, bool, None, dense tensors and numeric numpy arrays"
    )


def _int(value: int) -> Json:
    return value if -_NATIVE_INT <= value < _NATIVE_INT else {"$int": hex(value)}


def _float(value: float) -> Json:
    return value if math.isfinite(value) else {"$float": struct.pack("<d", value).hex()}


def _from_float(text: str) -> float:
    number: float = struct.unpack("<d", bytes.fromhex(text))[0]
    return number


def _from_scalar(parts: list[str]) -> Any:
    return np.frombuffer(bytes.fromhex(parts[1]), dtype=parts[0])[0]


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
    torch.dtype: lambda value: {"$dtype": str(value).removeprefix("torch.")},
    torch.device: lambda value: {"$device": str(value)},
    torch.Size: lambda value: {"$size": list(value)},
}

_DECODE: dict[str, Callable[[Any], Any]] = {
    "$int": lambda text: int(text, 16),
    "$float": _from_float,
    "$complex": lambda parts: complex(*parts),
    "$bytes": base64.b64decode,
    "$dtype": lambda name: getattr(torch, name),
    "$device": torch.device,
    "$size": torch.Size,
    "$scalar": _from_scalar,
    "$dict": lambda pairs: {key: item for key, item in pairs},  # noqa: C416 - pairs are lists
    "$counter": _from_counter,
    "$ordered": _from_ordered,
    "$default": lambda parts: defaultdict(_FACTORIES[parts[0]], ((key, item) for key, item in parts[1])),
    "$deque": lambda parts: deque(parts[0], parts[1]),
    "$sparse": _from_sparse,
    "$tuple": tuple,
    "$set": set,
    "$frozenset": frozenset,
}
