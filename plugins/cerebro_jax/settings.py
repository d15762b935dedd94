"""JAX's settings of the process: those of ``jax.config``."""

from __future__ import annotations

from enum import Enum
from functools import partial
from typing import Any

import jax

from cerebro_elastic.extending.tasks import process_settings

_CARRIED = frozenset(
    (
        "jax_debug_infs",
        "jax_debug_nans",
        "jax_default_matmul_precision",
        "jax_default_prng_impl",
        "jax_disable_jit",
        "jax_enable_custom_prng",
        "jax_enable_x64",
        "jax_numpy_dtype_promotion",
        "jax_numpy_rank_promotion",
        "jax_random_seed_offset",
        "jax_softmax_custom_jvp",
        "jax_threefry_partitionable",
    )
)
"""Settings that may change the result of training."""


def _value(name: str) -> Any:
    value = getattr(jax.config, name)
    return value.value if isinstance(value, Enum) else value


SETTINGS = tuple(
    process_settings.Setting(
        f"jax.config.{name}", partial(_value, name), partial(jax.config.update, name), name in _CARRIED
    )
    for name in sorted(jax.config.values)
    if hasattr(jax.config, name)
)
