"""Arrays whose memory is aligned alike in every process.

Numpy's alignment differs from run to run, and with it the last bits of some matrix products.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

_BYTES = 64
"""As torch and JAX align theirs."""


def aligned_empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """An array without values."""
    size = math.prod(shape) * dtype.itemsize
    buffer = np.empty(size + _BYTES, np.uint8)
    start = -buffer.ctypes.data % _BYTES
    return buffer[start : start + size].view(dtype).reshape(shape)
