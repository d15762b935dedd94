"""The objects that a walk over a graph has met, and the memory that tensors and arrays share. Torch is
imported on use."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np


@dataclass
class ObjectIndex:
    """The objects that were met."""

    paths: dict[int, str] = field(default_factory=dict)
    """The path of each object that has an identity, by its id."""
    objects: dict[str, Any] = field(default_factory=dict)
    """The objects by path. They are kept, so that no id is used again."""
    opaque: dict[str, Any] = field(default_factory=dict)
    """The tokens of the objects that do not hop, by path."""
    buffers: dict[str, tuple[Any, int]] = field(default_factory=dict)
    """The buffers that a state dict leaves out, by path, with the number of writes to each."""

    def size(self) -> int:
        return len(self.objects)

    def forget(self, size: int) -> None:
        """Forget all but the first ``size`` objects."""
        for path in list(self.objects)[size:]:
            value = self.objects.pop(path)
            if self.paths.get(id(value)) == path:
                del self.paths[id(value)]
            self.opaque.pop(path, None)


Block: TypeAlias = tuple[str, int]
"""A device, and where a storage begins on it."""


class MemoryIndex:
    """The tensors and arrays that were met, by their memory."""

    def __init__(self) -> None:
        self._holders: dict[Block, list[tuple[int, int, str]]] = {}
        self._order: list[Block] = []

    def size(self) -> int:
        return len(self._order)

    def forget(self, size: int) -> None:
        """Forget all but the first ``size`` of them."""
        while len(self._order) > size:
            self._holders[self._order.pop()].pop()

    def add(self, value: Any, where: str) -> None:
        """Add ``value``, which is carried as a whole under the name ``where``. Later values can be views of
        it only if it is contiguous."""
        if (place := _place(value)) is not None and _is_one_piece(value):
            block, start, stop = place
            self._holders.setdefault(block, []).append((start, stop, where))
            self._order.append(block)

    def view(self, value: Any) -> dict[str, Any] | None:
        """How ``value`` is a view of one met before; ``None`` if it is not."""
        if (place := _place(value)) is None:
            return None
        block, start, stop = place
        for first, last, where in self._holders.get(block, ()):
            if first <= start and stop <= last:
                return {"of": where, "offset": start - first, **_geometry(value)}
        return None


def is_array(value: Any) -> bool:
    """Whether ``value`` is an array of numpy's, or a tensor."""
    return isinstance(value, np.ndarray) or _is_tensor(value)


def into(present: Any, value: Any) -> Any:
    """``value``, an array or a tensor, written into the memory of ``present`` if it fits."""
    if type(present) is not type(value) or not fits(present, value):
        return value
    if isinstance(present, np.ndarray):
        present[...] = value
    else:
        present.detach().copy_(value)
    return present


def viewed(holder: Any, view: dict[str, Any]) -> Any:
    """The inverse of ``MemoryIndex.view``."""
    flat = _flat(holder)
    if "strides" in view:
        array = flat.cpu().numpy() if _is_tensor(flat) else flat
        return np.ndarray(
            view["shape"],
            np.dtype(view["dtype"]),
            buffer=array,
            offset=view["offset"],
            strides=view["strides"],
        )
    import torch

    tensor = flat if _is_tensor(flat) else torch.from_numpy(flat)
    dtype = view["dtype"]
    offset = tensor.storage_offset() * tensor.element_size() + view["offset"]
    empty = torch.empty(0, dtype=dtype, device=tensor.device)
    return empty.set_(
        tensor.untyped_storage(), offset // dtype.itemsize, torch.Size(view["shape"]), view["stride"]
    )


def same_memory(one: Any, other: Any) -> bool:
    """Whether two are the same view of the same memory."""
    return type(one) is type(other) and _place(one) == _place(other) and _geometry(one) == _geometry(other)


def fits(present: Any, value: Any) -> bool:
    """Whether ``value`` can be written into ``present``."""
    if isinstance(present, np.ndarray):
        return present.shape == value.shape and present.dtype == value.dtype and present.flags.writeable
    strided = str(present.layout) == str(value.layout) == "torch.strided"
    if present.dtype != value.dtype or not strided or present.is_inference() or present.is_meta:
        return False
    return present.shape == value.shape and all(
        step > 0 or size < 2 for size, step in zip(present.shape, present.stride(), strict=True)
    )


def _place(value: Any) -> tuple[Block, int, int] | None:
    if not isinstance(value, np.ndarray):
        plain = type(value).__qualname__ in ("Tensor", "Parameter") and str(value.layout) == "torch.strided"
        if not plain or value.is_meta or value.is_quantized or not value.numel():
            return None
        begins = value.untyped_storage().data_ptr()
        start = int(value.storage_offset()) * value.element_size()
        steps = sum((n - 1) * int(step) for n, step in zip(value.shape, value.stride(), strict=True))
        return (str(value.device), begins), start, start + (steps + 1) * value.element_size()
    if not value.size or value.dtype.hasobject:
        return None
    low, high = np.lib.array_utils.byte_bounds(value)
    *_, owner = _owners(value)
    if _is_tensor(owner):
        begins = owner.untyped_storage().data_ptr()
    else:
        begins = np.lib.array_utils.byte_bounds(owner)[0]
    return ("cpu", begins), low - begins, high - begins


def _owners(array: np.ndarray[Any, Any]) -> Iterator[Any]:
    """The array and its bases. The last one owns the memory."""
    value: Any = array
    while isinstance(value, np.ndarray):
        yield value
        value = value.base
    if _is_tensor(value):
        yield value


def _is_tensor(value: Any) -> bool:
    return hasattr(type(value), "untyped_storage")


def _is_one_piece(value: Any) -> bool:
    return bool(value.flags.c_contiguous if isinstance(value, np.ndarray) else value.is_contiguous())


def _geometry(value: Any) -> dict[str, Any]:
    if isinstance(value, np.ndarray):
        return {"dtype": value.dtype.str, "shape": value.shape, "strides": value.strides}
    return {"dtype": value.dtype, "shape": tuple(value.shape), "stride": tuple(value.stride())}


def _flat(holder: Any) -> Any:
    """All that a contiguous ``holder`` holds, as bytes."""
    if isinstance(holder, np.ndarray):
        return holder.reshape(-1).view(np.uint8)
    import torch

    return holder.detach().reshape(-1).view(torch.uint8)
