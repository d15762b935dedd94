"""Values of torch in a state: strided and sparse tensors, ``DTensor``s that are divided by rows (each rank
has its part), ``torch.dtype``, ``torch.device`` and ``torch.Size``.

Tensors keep their dense memory layouts (``channels_last`` stays so). Tensors that are the same memory with
the same shape (tied weights) are stored once and stay tied; other sharing between objects is not kept.
Tensors come back on the CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cerebro_elastic.hop.checkpoint.on_device import on_host
from cerebro_elastic.hop.checkpoint.tensors import Json, Leaves, Path, is_divided, refuse
from cerebro_elastic.system.torch_internals import SPARSE_PARTS, version_of

_SCALARS: dict[type, Callable[[Any], Json]] = {
    torch.dtype: lambda value: {"$dtype": str(value).removeprefix("torch.")},
    torch.device: lambda value: {"$device": str(value)},
    torch.Size: lambda value: {"$size": list(value)},
}
_COMPRESSED = ("crow_indices", "col_indices", "values"), ("ccol_indices", "row_indices", "values")

_PARTS: dict[torch.layout, tuple[str, ...]] = {
    torch.sparse_coo: SPARSE_PARTS,
    **dict.fromkeys((torch.sparse_csr, torch.sparse_bsr), _COMPRESSED[0]),
    **dict.fromkeys((torch.sparse_csc, torch.sparse_bsc), _COMPRESSED[1]),
}
"""The dense tensors that a sparse one consists of."""


def is_torch(value: Any) -> bool:
    """Whether the value is torch's."""
    return isinstance(value, Tensor) or type(value) in _SCALARS


def encode(leaves: Leaves, value: Any, path: Path) -> Json:
    """A value of torch as JSON; its tensors are added to ``leaves``."""
    if scalar := _SCALARS.get(type(value)):
        return scalar(value)
    if type(value) is Tensor:
        return _add_tensor(leaves, value, path)
    if is_divided(value):
        return _add_divided(leaves, value, path)
    kind = type(value)
    return refuse(path, f"a {kind.__module__}.{kind.__qualname__}", "detach() it")


def placed(stored: Tensor, order: Sequence[int] | None) -> Tensor:
    """``stored`` with its axes back in place; the memory stays as it is."""
    return stored if order is None else stored.permute(np.argsort(order).tolist())


def version(tensor: Tensor) -> int:
    """How often its memory was written to; 0 (unknown) for a tensor that inference mode has made."""
    return 0 if tensor.is_inference() else version_of(tensor)


def local_rows(tensor: Any) -> Tensor:
    """The rows of a ``DTensor`` that this rank has, on the CPU."""
    rows: Tensor = tensor.to_local().detach().cpu().contiguous()
    return rows


def _add_tensor(leaves: Leaves, tensor: Tensor, path: Path) -> Json:
    if tensor.requires_grad:
        return refuse(path, f"a tensor ({tensor.layout}) that requires grad", "detach() it")
    if tensor.layout in _PARTS:
        return _add_sparse(leaves, tensor, path)
    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.device.type == "meta":
        kind = f"a tensor with layout {tensor.layout} on {tensor.device}"
        return refuse(path, kind, "store a dense tensor")
    memory = (tensor.device, tensor.data_ptr(), tensor.shape, tensor.stride())
    same = (*memory, tensor.dtype, tensor.is_conj(), tensor.is_neg())
    if not tensor.numel():
        return _place(leaves, tensor, path)
    if same not in leaves.tied:
        leaves.tied[same] = _place(leaves, tensor.resolve_conj().resolve_neg(), path)
    return leaves.tied[same]


def _add_sparse(leaves: Leaves, tensor: Tensor, path: Path) -> Json:
    parts = [
        _add_tensor(leaves, getattr(tensor, part)(), (*path, part.strip("_")))
        for part in _PARTS[tensor.layout]
    ]
    whole = tensor.layout is not torch.sparse_coo or tensor.is_coalesced()
    layout = str(tensor.layout).removeprefix("torch.")
    return {"$sparse": [layout, list(tensor.shape), whole, *parts]}


def _add_divided(leaves: Leaves, tensor: Any, path: Path) -> Json:
    """Ties are seen by the object: an empty part has no memory."""
    if [placement.is_shard(0) for placement in tensor.placements] != [True]:
        return refuse(path, f"a DTensor placed as {tensor.placements}", "divide it by rows, Shard(0)")
    if id(tensor) not in leaves.tied:
        leaves.tied[id(tensor)] = {"$tensor": leaves.add(tensor, path)}
    return leaves.tied[id(tensor)]


def _place(leaves: Leaves, tensor: Tensor, path: Path) -> Json:
    ordered: dict[str, Json] = {}
    if not tensor.is_contiguous():
        order = sorted(range(tensor.dim()), key=tensor.stride, reverse=True)
        if tensor.permute(order).is_contiguous():
            ordered["order"] = order
            tensor = tensor.permute(order)
    return {"$tensor": leaves.add(on_host(tensor).contiguous(), path), **ordered}


def _from_sparse(parts: list[Any]) -> Tensor:
    """Uncoalesced tensors stay so: gradients that are added up later add up in the same order."""
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


DECODE: dict[str, Callable[[Any], Any]] = {
    "$dtype": lambda name: getattr(torch, name),
    "$device": torch.device,
    "$size": torch.Size,
    "$sparse": _from_sparse,
}
"""By tag: the function that makes the value again."""
