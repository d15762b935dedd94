"""Private names of torch that more than one folder uses. Tried with torch 2.13, 2.14 and 2.15.

``tests/system/test_torch_internals.py`` names the ones that an upgrade of torch takes away. Names that a
single folder uses are in its ``_torch_internals.py``.
"""

from __future__ import annotations

from pickle import PickleBuffer
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.utils.data._utils.pin_memory import pin_memory

from cerebro_elastic.system.devices import CPU, kind_here

MODULE_ATTRIBUTES = frozenset(vars(nn.Module())) - {"training"}
"""The attributes that every module has: none of them was set by a user's code."""

SPARSE_PARTS = ("_indices", "_values")
"""The methods that give the parts of a sparse tensor that is not coalesced."""


def default_device() -> str | None:
    """The device that ``torch.set_default_device`` has set; ``None`` if it was not called."""
    context = getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)
    return None if context is None else str(context.device)


def parameters_of(module: nn.Module) -> dict[str, nn.Parameter | None]:
    """The table of a module's own parameters, ``None`` where one is registered without a value; writable."""
    return module._parameters


def buffers_of(module: nn.Module) -> dict[str, Tensor | None]:
    """The table of a module's own buffers; writable."""
    return module._buffers


def modules_of(module: nn.Module) -> dict[str, nn.Module | None]:
    """The table of the modules right inside a module; writable."""
    return module._modules


def version_of(tensor: Tensor | None) -> int:
    """How often a tensor was written to in place."""
    return 0 if tensor is None else tensor._version


def non_persistent_buffers_of(module: nn.Module) -> set[str]:
    """The names of a module's own buffers that its state dict leaves out; writable."""
    return module._non_persistent_buffers_set


def normalizes(module: nn.Module) -> bool:
    """Whether the module keeps statistics of batches. Torch counts no version for these writes."""
    return isinstance(module, _NormBase)


def stop_workers(iterator: Any) -> None:
    """End the processes of a ``DataLoader``'s iterator."""
    iterator._shutdown_workers()


def pinned(batch: Any) -> Any:
    """The batch in page-locked memory, as a ``DataLoader`` pins it; as it is on machines that have none."""
    return batch if kind_here() in (CPU, "mps") else pin_memory(batch)  # type: ignore[no-untyped-call]


def reduced_in_place(value: Any) -> Any:
    """How ``pickle`` takes a tensor apart so that its memory is not copied; ``NotImplemented`` for a tensor
    that is pickled as usual. Strides are kept. A view takes along no more of its storage than its own values,
    if a copy of it has the same strides."""
    if type(value) is Tensor and value.device.type == "cpu" and value.layout is torch.strided:
        if value.untyped_storage().nbytes() > value.nbytes and not value.requires_grad:
            copy = value.clone()
            value = copy if copy.stride() == value.stride() else value
        return value.__reduce_ex__(5)
    if isinstance(value, torch.storage.TypedStorage) and value._untyped_storage.device.type == "cpu":
        memory: Any = torch.empty(0, dtype=torch.uint8).set_(value._untyped_storage).numpy()
        return _storage, (PickleBuffer(memory), value.dtype)
    return NotImplemented


def _storage(memory: Any, dtype: torch.dtype) -> torch.storage.TypedStorage:
    content = torch.frombuffer(memory, dtype=torch.uint8) if len(memory) else torch.empty(0)
    make: Any = torch.storage.TypedStorage
    storage: torch.storage.TypedStorage = make(
        wrap_storage=content.untyped_storage(), dtype=dtype, _internal=True
    )
    return storage
