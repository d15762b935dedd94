"""The Python half of the pretended device: what torch's own modules of an accelerator ask their driver for.

``as_cuda`` gives ``torch.cuda`` what a CPU build lacks: counting devices without NVML forbids forks, a
fork of a process that has used a device cannot use it, and memory is not counted before it is initialised.
``as_private_use`` makes a module of another maker, ``torch.pretend``, with fewer functions.

Settings, read when a process first uses a device:
    ``PRETENDED_DEVICES``: how many the machine has (2)
    ``PRETENDED_MEMORY``: bytes of each, shared by all processes; without it there is no limit
    ``PRETENDED_FOLDER``: where processes note what they have taken
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from contextlib import contextmanager
from datetime import timedelta
from types import ModuleType, SimpleNamespace
from typing import Any

_NAME = "Pretended GPU"


class _Driver:
    """The state of the driver in this process."""

    def __init__(self, library: Any, visible: str) -> None:
        self.library, self._visible = library, visible
        self.used_in: int | None = None
        """The process that has used the driver; a fork of it cannot."""

    @property
    def visible(self) -> list[int]:
        total, named = int(os.environ.get("PRETENDED_DEVICES", "2")), os.environ.get(self._visible)
        if named is None:
            return list(range(total))
        found: list[int] = []
        for each in named.split(","):  # what comes after a wrong one does not count
            number = each.strip().removeprefix("GPU-")  # a name (UUID) as numbers of GPUs have one
            if not number.isdigit() or not int(number) < total or int(number) in found:
                break
            found.append(int(number))
        return found

    @property
    def in_bad_fork(self) -> bool:
        return self.used_in not in (None, os.getpid())

    def count(self) -> int:
        """As the driver counts: it is used by this."""
        if self.in_bad_fork:
            return 0
        self.used_in = os.getpid()
        return len(self.visible)

    def start(self) -> None:
        if self.in_bad_fork:
            raise RuntimeError("Cannot re-initialize CUDA in forked subprocess")
        if not self.count():
            raise RuntimeError("No CUDA GPUs are available")
        folder = os.environ.get("PRETENDED_FOLDER", tempfile.gettempdir())
        files = [f"{folder}/pretended-{os.getuid()}-{number}" for number in self.visible]
        self.library.start(files, int(os.environ.get("PRETENDED_MEMORY", "0")))

    def stats(self, device: int) -> dict[str, Any]:
        stats = self.library.stats(device)
        return {
            "num_ooms": stats["ooms"],
            "num_alloc_retries": stats["retries"],
            "crossed_bytes": {"in": stats["in"], "out": stats["out"]},
            "allocated_bytes": {"all": {"current": stats["allocated"], "peak": stats["allocated_peak"]}},
            "reserved_bytes": {"all": {"current": stats["reserved"], "peak": stats["reserved_peak"]}},
        }

    def properties(self, device: int) -> Any:
        total = self.library.info(device)[1]
        return SimpleNamespace(
            name=_NAME, major=7, minor=0, total_memory=total, multi_processor_count=8, gcnArchName=""
        )


def as_cuda(library: Any) -> None:
    import torch

    driver, cuda, C = _Driver(library, "CUDA_VISIBLE_DEVICES"), torch.cuda, torch._C

    def init() -> None:
        driver.start()
        cuda.default_generators = tuple(map(library.default_generator, range(driver.count())))

    def exchange(device: int) -> int:
        before = library.current()
        if device >= 0:
            cuda._lazy_init()
            library.use(device)
        return before

    def maybe_exchange(device: int) -> int:  # torch.compile wants another function
        return exchange(device)

    def set_device(device: int) -> None:
        cuda._lazy_init()
        library.use(device)

    def get_device() -> int:
        cuda._lazy_init()
        return int(library.current())

    for name, function in {
        "_cuda_init": init,
        "_cuda_getDeviceCount": driver.count,
        "_cuda_getDevice": get_device,
        "_cuda_setDevice": set_device,
        "_cuda_exchangeDevice": exchange,
        "_cuda_maybeExchangeDevice": maybe_exchange,
        "_cuda_synchronize": lambda: None,
        "_cuda_memoryStats": driver.stats,
        "_cuda_resetPeakMemoryStats": library.reset_peak,
        "_cuda_resetAccumulatedMemoryStats": lambda _device: None,
        "_cuda_emptyCache": library.empty_cache,
        "_cuda_setMemoryFraction": lambda share, device: library.fraction(share, device),
        "_cuda_hostMemoryStats": dict,
        "_cuda_getArchFlags": lambda: "sm_70",
        "_cuda_ipc_collect": lambda: None,
        "_cuda_get_sync_debug_mode": lambda: 0,
        "_cuda_isCurrentStreamCapturing": lambda: False,
        "_cuda_getCurrentRawStream": lambda _device: 0,
    }.items():
        setattr(C, name, function)

    def no_utilization(_device: Any = None) -> int:
        raise ModuleNotFoundError("pynvml does not seem to be installed or it can't be imported.")

    def memory_info(device: Any) -> tuple[int, int]:
        cuda._lazy_init()
        return tuple(library.info(device))  # type: ignore[return-value]

    runtime = SimpleNamespace(cudaMemGetInfo=memory_info, cudaHostRegister=lambda *_: 0)
    cuda._exchange_device, cuda._maybe_exchange_device = exchange, maybe_exchange
    cuda._is_in_bad_fork = lambda: driver.in_bad_fork
    cuda._cudart = runtime
    cuda.cudart = lambda: (cuda._lazy_init(), runtime)[1]
    cuda._device_count_nvml = lambda: len(driver.visible)  # NVML's count leaves forks as they are
    cuda._get_device_properties = driver.properties
    cuda.utilization = no_utilization
    cuda.current_stream = cuda.default_stream = lambda device=None: torch.Stream(_of("cuda", device))
    cuda.Stream = _made_by("Stream", lambda device=None, **_: torch.Stream(_of("cuda", device)))
    torch.serialization.register_package(5, lambda _storage: None, _on_cuda)
    cuda.Event = _made_by("Event", lambda **_: torch.Event("cuda"))
    cuda.stream = _nothing
    torch.UntypedStorage.resize_ = _resizing(library)
    torch.distributed.Logger = _without_timers()
    groups = torch.distributed.distributed_c10d
    groups._NCCL_AVAILABLE, groups.ProcessGroupNCCL = True, _collectives()
    cuda.is_current_stream_capturing = lambda: False


def _made_by(name: str, make: Callable[..., Any]) -> type:
    """A class, since libraries write it into annotations."""
    return type(name, (), {"__new__": lambda _kind, *args, **kwargs: make(*args, **kwargs)})


def _resizing(library: Any) -> Callable[[Any, int], Any]:
    """A CPU build does not resize storages of CUDA."""
    import torch

    otherwise = torch.UntypedStorage.resize_

    def resize(storage: Any, size: int) -> Any:
        if storage.device.type != "cuda":
            return otherwise(storage, size)
        library.resize(torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage), size)
        return storage

    return resize


class _Options:
    def __init__(self) -> None:
        self._timeout, self.is_high_priority_stream = timedelta(minutes=10), False
        self.global_ranks_in_group: list[int] = []
        self.group_name = ""


def _without_timers() -> type:
    """DDP's log of the times of batches: a CPU build has no timers for CUDA."""
    from torch.distributed import Logger

    class Untimed(Logger):  # type: ignore[misc]
        def set_runtime_stats_and_log(self) -> None:
            pass

    return Untimed


def _collectives() -> type:
    """What stands for NCCL: the collectives of the host."""
    from torch.distributed.distributed_c10d import ProcessGroupGloo

    class Collectives(ProcessGroupGloo):  # type: ignore[misc]
        Options = _Options

        def __init__(self, store: Any, rank: int, size: int, options: Any = None) -> None:
            timeout = getattr(options, "_timeout", timedelta(minutes=10))
            super().__init__(store, rank, size, timeout=timeout)

        def eager_connect_single_device(self, _device: Any) -> None:
            pass

        _group_start = _group_end = lambda _self: None

    return Collectives


def as_private_use(library: Any) -> None:
    import torch

    torch.utils.rename_privateuse1_backend("pretend")
    driver, module = _Driver(library, "PRETEND_VISIBLE_DEVICES"), ModuleType("torch.pretend")
    ready: list[bool] = []

    def init() -> None:
        if not ready:
            driver.start()
            ready.append(True)

    def number(device: Any = None) -> int:
        index = device if isinstance(device, int) or device is None else torch.device(device).index
        return library.current() if index is None else index

    def set_device(device: Any) -> None:
        init()
        library.use(number(device))

    def need(device: Any = None) -> int:
        if not ready:
            raise RuntimeError("the device was not initialised")
        return number(device)

    def generator(device: Any) -> Any:
        init()
        return library.default_generator(number(device))

    functions = {
        "init": init,
        "_lazy_init": init,
        "is_initialized": lambda: bool(ready),
        "is_available": lambda: driver.count() > 0,
        "device_count": driver.count,
        "current_device": number,
        "set_device": set_device,
        "_is_in_bad_fork": lambda: driver.in_bad_fork,
        "manual_seed_all": lambda seed: [
            library.default_generator(i).manual_seed(seed) for i in range(len(driver.visible))
        ],
        "get_rng_state": lambda device="pretend": generator(device).get_state(),
        "set_rng_state": lambda state, device="pretend": generator(device).set_state(state),
        "synchronize": need,
        "memory_allocated": lambda device=None: library.stats(need(device))["allocated"],
        "memory_reserved": lambda device=None: library.stats(need(device))["reserved"],
        "max_memory_allocated": lambda device=None: library.stats(need(device))["allocated_peak"],
        "reset_peak_memory_stats": lambda device=None: library.reset_peak(need(device)),
        "mem_get_info": lambda device=None: tuple(library.info(need(device))),
        "empty_cache": library.empty_cache,
        "get_amp_supported_dtype": lambda: [torch.float16, torch.bfloat16],
    }
    for name, function in functions.items():
        setattr(module, name, function)
    torch._register_device_module("pretend", module)
    torch.utils.generate_methods_for_privateuse1_backend()


def _on_cuda(storage: Any, location: str) -> Any:
    """A CPU build's storages know no CUDA."""
    import torch

    if not location.startswith("cuda"):
        return None
    loaded = torch.empty(storage.nbytes(), dtype=torch.uint8, device=location)
    loaded.copy_(torch.empty(0, dtype=torch.uint8).set_(getattr(storage, "_untyped_storage", storage)))
    return loaded.untyped_storage()


def _of(kind: str, device: Any) -> Any:
    import torch

    return torch.device(kind, device) if isinstance(device, int) else torch.device(device or kind)


@contextmanager
def _nothing(_stream: Any) -> Any:
    yield
