"""Torch's settings of the process (``process_settings.py``)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import backends

from cerebro_elastic.system.setting import Setting
from cerebro_elastic.system.torch_internals import default_device


def _matmul_precision() -> str | None:
    """``None`` while the newer ``fp32_precision`` says something else: then torch refuses to say one word."""
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:
        return None


def _put_matmul_precision(precision: str | None) -> None:
    if precision is not None:
        torch.set_float32_matmul_precision(precision)


_CUDNN: tuple[Any, ...] = (backends.cudnn.conv, backends.cudnn.rnn)  # type: ignore[attr-defined]


def _cudnn_precision() -> tuple[str, ...]:
    """The settings ``allow_tf32``, and the newer ``fp32_precision`` of either."""
    return tuple(part.fp32_precision for part in _CUDNN)


def _put_cudnn_precision(precision: tuple[str, ...]) -> None:
    backends.cudnn.allow_tf32 = precision[0] == "tf32"  # torch compares it with the newer ones
    for part, value in zip(_CUDNN, precision, strict=True):
        if part.fp32_precision != value:
            part.fp32_precision = value


def _deterministic() -> tuple[bool, bool]:
    return (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )


def _attributes(owner: Any, where: str, *names: str) -> Iterator[Setting]:
    for name in names:
        yield Setting(f"{where}.{name}", partial(getattr, owner, name), partial(setattr, owner, name))


def _preferred(library: str) -> Setting:
    """The CUDA library that multiplies matrices, or solves."""
    prefer: Callable[..., Any] = getattr(backends.cuda, f"preferred_{library}_library")
    return Setting(
        f"torch.backends.cuda.preferred_{library}_library",
        lambda: prefer().name,
        lambda name: prefer(getattr(type(prefer()), name)),
    )


SETTINGS = (
    Setting("torch.set_default_dtype", torch.get_default_dtype, torch.set_default_dtype),
    Setting("torch.set_default_device", default_device, torch.set_default_device, sent=False),
    Setting("torch.set_float32_matmul_precision", _matmul_precision, _put_matmul_precision),
    Setting(
        "torch.use_deterministic_algorithms",
        _deterministic,
        lambda value: torch.use_deterministic_algorithms(value[0], warn_only=value[1]),
    ),
    Setting("torch.set_grad_enabled", torch.is_grad_enabled, torch.set_grad_enabled, sent=False),
    Setting("torch.set_num_threads", torch.get_num_threads, torch.set_num_threads, sent=False),
    Setting("torch.autograd.set_detect_anomaly", torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly),
    *_attributes(backends.cudnn, "torch.backends.cudnn", "enabled", "benchmark", "deterministic"),
    Setting("torch.backends.cudnn.allow_tf32", _cudnn_precision, _put_cudnn_precision),
    *_attributes(
        backends.cuda.matmul,
        "torch.backends.cuda.matmul",
        "allow_bf16_reduced_precision_reduction",
        "allow_fp16_reduced_precision_reduction",
        "allow_fp16_accumulation",
    ),
    Setting(
        "torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp",
        backends.cuda.fp16_bf16_reduction_math_sdp_allowed,
        backends.cuda.allow_fp16_bf16_reduction_math_sdp,
    ),
    *map(_preferred, ("blas", "linalg")),
    *_attributes(backends.mkldnn, "torch.backends.mkldnn", "enabled"),
)
