"""Torch's settings of the process (``process_settings.py``)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import backends

from cerebro_elastic.training import _torch_internals as internals
from cerebro_elastic.training.process_settings import Setting, attributes

_TINY = 5e-324


def _matmul_precision() -> str | None:
    """``None`` while the newer settings below say something else: then torch refuses to say one word."""
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:
        return None


def _put_matmul_precision(precision: str | None) -> None:
    if precision is not None:
        torch.set_float32_matmul_precision(precision)


def _deterministic() -> list[bool]:
    return [
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    ]


def _anomaly() -> list[bool]:
    return [torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()]


def _flushes_denormal() -> bool:
    """Torch does not say it. It holds for all numbers of this thread, Python's too."""
    return _TINY * 1.0 == 0.0


def _put_default_dtype(name: str) -> None:
    torch.set_default_dtype(getattr(torch, name))


_attributes = partial(attributes, carried=True)


def _precisions() -> Iterator[Setting]:
    """The general ones first: the others inherit from them."""
    for path in (
        "",
        "cudnn",
        "mkldnn",
        "cuda.matmul",
        "cudnn.conv",
        "cudnn.rnn",
        "mkldnn.matmul",
        "mkldnn.conv",
    ):
        owner: Any = backends
        for name in path.split(".") if path else ():
            owner = getattr(owner, name, None)
        yield from _attributes(owner, f"torch.backends.{path}".rstrip("."), "fp32_precision")


def _sdp(kind: str) -> Setting:
    get: Callable[[], Any] = getattr(backends.cuda, f"{kind}_sdp_enabled")
    return Setting(f"{kind}_sdp_enabled", get, getattr(backends.cuda, f"enable_{kind}_sdp"), carried=True)


def _preferred(library: str) -> Setting:
    """Which of CUDA's libraries multiplies matrices, or solves."""
    prefer: Callable[..., Any] = getattr(backends.cuda, f"preferred_{library}_library")
    return Setting(
        f"torch.backends.cuda.preferred_{library}_library",
        lambda: prefer().name,
        lambda name: prefer(getattr(type(prefer()), name)),
        carried=True,
    )


def _autocast(device: str) -> Iterator[Setting]:
    yield Setting(
        f"autocast on {device}",
        partial(torch.is_autocast_enabled, device),
        partial(torch.set_autocast_enabled, device),
        carried=True,
    )
    yield Setting(
        f"autocast's dtype on {device}",
        lambda: internals.name_of_dtype(torch.get_autocast_dtype(device)),
        lambda name: torch.set_autocast_dtype(device, getattr(torch, name)),
        carried=True,
    )


SETTINGS = (
    Setting("torch.set_default_dtype", internals.default_dtype, _put_default_dtype, carried=True),
    Setting("torch.set_default_device", internals.default_device, torch.set_default_device),
    Setting("torch.set_float32_matmul_precision", _matmul_precision, _put_matmul_precision, carried=True),
    *_precisions(),
    Setting(
        "torch.use_deterministic_algorithms",
        _deterministic,
        lambda value: torch.use_deterministic_algorithms(value[0], warn_only=value[1]),
        carried=True,
    ),
    *_attributes(torch.utils.deterministic, "torch.utils.deterministic", "fill_uninitialized_memory"),
    Setting("torch.set_grad_enabled", torch.is_grad_enabled, torch.set_grad_enabled, carried=True),
    Setting(
        "torch.autograd.set_detect_anomaly",
        _anomaly,
        lambda value: torch.autograd.set_detect_anomaly(*value),
    ),
    Setting("torch.set_flush_denormal", _flushes_denormal, torch.set_flush_denormal, carried=True),
    Setting("torch.set_num_threads", torch.get_num_threads, torch.set_num_threads, carried=True),
    Setting("torch.set_warn_always", torch.is_warn_always_enabled, torch.set_warn_always),
    Setting("torch.set_printoptions", internals.print_options, internals.put_print_options),
    Setting(
        "torch.multiprocessing.set_sharing_strategy",
        torch.multiprocessing.get_sharing_strategy,
        torch.multiprocessing.set_sharing_strategy,
    ),
    *_attributes(
        backends.cudnn, "torch.backends.cudnn", "enabled", "benchmark", "benchmark_limit", "deterministic"
    ),
    *_attributes(
        backends.cuda.matmul,
        "torch.backends.cuda.matmul",
        "allow_fp16_reduced_precision_reduction",
        "allow_bf16_reduced_precision_reduction",
        "allow_fp16_accumulation",
    ),
    *_attributes(backends.mkldnn, "torch.backends.mkldnn", "enabled", "deterministic"),
    *_attributes(backends.opt_einsum, "torch.backends.opt_einsum", "enabled", "strategy"),
    Setting(
        "torch.backends.mha.set_fastpath_enabled",
        backends.mha.get_fastpath_enabled,
        backends.mha.set_fastpath_enabled,
        carried=True,
    ),
    *map(_sdp, ("flash", "mem_efficient", "math", "cudnn")),
    Setting(
        "torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp",
        backends.cuda.fp16_bf16_reduction_math_sdp_allowed,
        backends.cuda.allow_fp16_bf16_reduction_math_sdp,
        carried=True,
    ),
    *map(_preferred, ("blas", "linalg")),
    *_autocast("cpu"),
    *_autocast("cuda"),
    *_autocast("xpu"),
    *_autocast("mps"),
    *(
        Setting(name, partial(internals.compiler_config, name), partial(internals.put_compiler_config, name))
        for name in internals.COMPILER_CONFIGS
    ),
    Setting("global hooks of modules and optimizers", internals.global_hooks, internals.put_global_hooks),
)
