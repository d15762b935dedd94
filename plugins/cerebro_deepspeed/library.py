"""The deepspeed package: imported on use, kept from building native code, cleaned up after each unit.

DeepSpeed remembers the process group of the first engine, and ZeRO-3 every module that it has seen. This
module resets both to their values after the import, so that the process's next unit may have another group.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch
from pydantic import ValidationError

from cerebro_deepspeed._deepspeed_internals import (
    avoid_shared_memory_collectives,
    forget_backend,
    forget_forward_passes,
    set_accelerator,
    without_a_default_group,
)
from cerebro_elastic.extending.errors import MissingExtra, install_extra
from cerebro_elastic.extending.parallelism import group
from cerebro_elastic.extending.state import rng

MISSING = f"deepspeed is not installed: {install_extra('deepspeed')}"

_globals_after_import: dict[str, Any] = {}
"""The globals of ``deepspeed.utils.groups`` as the import left them."""
_replaced_environment: dict[str, str | None] = {}
"""Values of environment variables that a living engine has replaced."""


def installed() -> bool:
    """Whether the package is installed; it is not imported."""
    try:
        return importlib.util.find_spec("deepspeed") is not None
    except ValueError:
        return False


def deepspeed(device: torch.device) -> ModuleType:
    """The package, set to work on the kind of ``device``."""
    if not installed():
        raise MissingExtra(MISSING)
    with _without_traces(), rng.borrowed(device):  # among its imports, rich draws a number
        package = importlib.import_module("deepspeed")
    package.utils.logger.setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", "`torch.distributed", FutureWarning, "torch.distributed.c10d_logger")
    avoid_shared_memory_collectives(package)
    set_accelerator(package, "CPU" if device.type == "cpu" else "CUDA")
    if not _globals_after_import:
        group.settle()  # tens of thousands of objects
        _globals_after_import.update(_variables(package.utils.groups))
    return package


def complaint(settings: Mapping[str, Any]) -> str | None:
    """DeepSpeed's own error for ``settings``, found before it has seen a model."""
    package = deepspeed(torch.device("cpu"))
    try:
        package.DeepSpeedConfig({**settings, "train_batch_size": 1})
    except ValidationError as exc:
        first = exc.errors()[0]
        place = ".".join(map(str, ("zero_optimization", *first["loc"])))
        return f"deepspeed config: {place} is {first['input']!r}: {first['msg']}"
    except Exception as exc:  # any error that it raises for an unexpected value
        return f"deepspeed config: DeepSpeed does not take it: {type(exc).__name__}: {exc}"
    return None


def engine(package: ModuleType, device: torch.device, **settings: Any) -> Any:
    """``deepspeed.initialize``'s engine on ``device``, with torch's default group.

    All through its life DeepSpeed looks up this rank's device in the environment.
    """
    _replaced_environment["LOCAL_RANK"] = os.environ.get("LOCAL_RANK")
    os.environ["LOCAL_RANK"] = str(device.index or 0)
    initialized, *_ = package.initialize(dist_init_required=False, **settings)
    return initialized


def destroy(engine: Any) -> None:
    """Take ``engine`` apart, and release the group and all objects that refer to it."""
    engine.destroy()
    forget_backend()
    groups = importlib.import_module("deepspeed.utils.groups")
    for name, value in _variables(groups).items():
        setattr(groups, name, _copy(_globals_after_import.get(name, value)))
    forget_forward_passes()
    zero = importlib.import_module("deepspeed.runtime.zero")
    for method in vars(zero.partitioned_param_coordinator.PartitionedParameterCoordinator).values():
        _forget_calls(method)
    local_rank = _replaced_environment.pop("LOCAL_RANK", None)
    if local_rank is None:
        os.environ.pop("LOCAL_RANK", None)
    else:
        os.environ["LOCAL_RANK"] = local_rank


def _forget_calls(function: Any) -> None:
    """Empty the ``lru_cache`` in ``function``, if one is below its decorators: its keys hold engines."""
    if hasattr(function, "cache_clear"):
        function.cache_clear()
    for cell in getattr(function, "__closure__", None) or ():
        if callable(cell.cell_contents):
            _forget_calls(cell.cell_contents)


def _variables(module: ModuleType) -> dict[str, Any]:
    """The module's own variables that hold state."""
    return {
        name: _copy(value)
        for name, value in vars(module).items()
        if not name.startswith("__") and not callable(value) and not isinstance(value, ModuleType)
    }


def _copy(value: Any) -> Any:
    return dict(value) if type(value) is dict else value


@contextmanager
def _without_traces() -> Iterator[None]:
    """The import writes to the environment, keeps the default group, and logs its device."""
    before = dict(os.environ)
    disabled = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with without_a_default_group():
            yield
    finally:
        logging.disable(disabled)
        os.environ.clear()
        os.environ.update(before)
