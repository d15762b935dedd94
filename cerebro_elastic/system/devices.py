"""The devices of this machine as torch names them: ``cpu``, or an accelerator of any maker (``cuda:1``).

The package uses accelerators through this module alone. Each maker's module in torch (``torch.cuda``,
``torch.xpu``, ...) has functions of the same names; a figure that a maker's module lacks counts as 0. Torch
is imported on use. Looking for devices may forbid later forks to use them: a process that forks looks in a
child.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from cerebro_elastic.errors import RunError
from cerebro_elastic.system.words import counted

CPU = "cpu"

SHARED = "CEREBRO_SHARED_DEVICE"
"""The variable of a node that shares its device with others: it gives memory back after each unit."""

VISIBLE: Mapping[str, str] = {
    "cuda": "CUDA_VISIBLE_DEVICES",  # ROCm reads it, too
    "xpu": "ZE_AFFINITY_MASK",
    "npu": "ASCEND_RT_VISIBLE_DEVICES",
    "hpu": "HABANA_VISIBLE_MODULES",
    "mlu": "MLU_VISIBLE_DEVICES",
    "musa": "MUSA_VISIBLE_DEVICES",
}
"""By kind of device: the variable that restricts a process to some of the machine's."""


def kind_here() -> str:
    """The kind of accelerator that torch can use in this process (``cuda``, ``xpu``, ``mps``, ...), else
    ``cpu``."""
    import torch

    found = torch.accelerator.current_accelerator()
    kind = "cuda" if found is None else found.type  # torch.cuda is there in every build
    return kind if torch.get_device_module(kind).is_available() else CPU


def count_here() -> int:
    """How many accelerators this process may use."""
    kind = kind_here()
    return 0 if kind == CPU else int(_module(kind).device_count())


def device_of(kind: str, rank: int) -> str:
    """The device of one of the ranks that a process's devices of this ``kind`` are for."""
    return CPU if kind == CPU else f"{kind}:{rank}"


def kind_of(device: str) -> str:
    """``cuda`` of ``cuda:1``."""
    return device.partition(":")[0]


def use(device: str) -> None:
    """Make the device ready, before any other use of it. Code that names no number, such as
    ``tensor.cuda()``, means this one from now on. Raises ``RunError`` if no device has its number."""
    if not is_accelerator(device):
        return
    kind, _, number = device.partition(":")
    module = _module(kind)
    if int(number) >= (count := module.device_count()):
        more = f"; {VISIBLE[kind]} may name more" if kind in VISIBLE else ""
        raise RunError(
            f"no {device} exists: torch sees {counted(count, 'device')} of kind {kind} here, and each rank "
            f"needs one: start fewer ranks (`node.ranks`, torchrun's --nproc-per-node){more}"
        )
    # Without its own workspace cuBLAS may sum in another order each time; it reads this when it begins.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    if hasattr(module, "set_device"):  # Apple has one device
        module.set_device(device)
    if hasattr(module, "init"):
        module.init()


def hardware_here() -> str:
    """The name of this machine's accelerators, by which results are compared; ``cpu`` without any."""
    kind = kind_here()
    if kind == CPU:
        return CPU
    name = getattr(_module(kind), "get_device_name", None)
    return kind if name is None else str(name(0))


def is_accelerator(device: str) -> bool:
    """Whether the device is not the CPU."""
    return not device.startswith(CPU)


def allocated_bytes(device: str) -> int:
    """Bytes of the process's tensors on the device; 0 for the CPU."""
    return _bytes(device, "memory_allocated", "current_allocated_memory")


def peak_bytes(device: str) -> int:
    """The most of them since ``forget_peak``."""
    return _bytes(device, "max_memory_allocated", "current_allocated_memory")


def forget_peak(device: str) -> None:
    """Reset ``peak_bytes``."""
    if is_accelerator(device) and hasattr(_module(device), "reset_peak_memory_stats"):
        _module(device).reset_peak_memory_stats(device)


def free_bytes(device: str) -> int | None:
    """Bytes of the device that the process can get; ``None`` if it does not say."""
    if (memory := _memory(device)) is None:
        return None
    return memory[0] + _bytes(device, "memory_reserved") - allocated_bytes(device)


def give_back(device: str) -> None:
    """Give the memory back that torch keeps for later tensors: others on the device can use it."""
    if is_accelerator(device) and hasattr(_module(device), "empty_cache"):
        _module(device).empty_cache()


def limit(device: str, most_bytes: int) -> None:
    """Let the process's tensors take ``most_bytes`` of the device: more is out of memory. A device without
    such a limit, or without a known size, is not limited."""
    module = _module(device)
    if hasattr(module, "set_per_process_memory_fraction") and (memory := _memory(device)) is not None:
        module.set_per_process_memory_fraction(min(1.0, most_bytes / memory[1]), device)


def synchronize(device: str) -> None:
    """Wait until the device has done its queued work."""
    if is_accelerator(device) and hasattr(_module(device), "synchronize"):
        _module(device).synchronize(*_which(device))


def utilization(device: str) -> float:
    """The device's utilisation in the last moment, as a share. Raises any error of the driver's library, or
    ``AttributeError``."""
    return float(_module(device).utilization(device)) / 100


def generator_state(device: str) -> Any:
    """The state of the device's random generator, as a tensor on the host."""
    return _module(device).get_rng_state(*_which(device))


def put_generator_state(state: Any, device: str) -> None:
    """Put the device's random generator where ``generator_state`` found it."""
    _module(device).set_rng_state(state, *_which(device))


def _which(device: str) -> Sequence[str]:
    """The argument that names the device; Apple has one device, and no such argument."""
    return () if device.startswith("mps") else (device,)


def _memory(device: str) -> tuple[int, int] | None:
    """The free bytes of the device, and all of them. Some of XPU's raise ``RuntimeError`` instead."""
    try:
        free, total = _module(device).mem_get_info(device)
    except (AttributeError, RuntimeError):
        return None
    return int(free), int(total)


def _bytes(device: str, *names: str) -> int:
    """The result of the first of these functions that the maker's module has."""
    if not is_accelerator(device):
        return 0
    module = _module(device)
    name = next((name for name in names if hasattr(module, name)), None)
    if name is None:
        return 0
    return int(getattr(module, name)(*_which(device)))


def _module(device: str) -> Any:
    import torch

    return torch.get_device_module(device)
