"""How are the losses of the rows of an evaluation kept in the record?

A race compares configs row by row, so the record has a loss for each row. To stay small, it has at most
``MOST`` numbers for a partition: the means of blocks of neighbouring rows. Each is a share of the range
between the bounds, 0 for the best value and ``TOP`` for the worst, in 2 bytes, packed as text.
"""

from __future__ import annotations

import base64
import binascii
import math
import sys
import zlib
from array import array
from collections.abc import Sequence
from itertools import pairwise

MOST = 512
"""The most numbers of a partition."""
TOP = 65535
"""The worst loss."""


def packed(values: Sequence[float], bounds: tuple[float, float], mode: str) -> str:
    """The losses of rows with these ``values`` of a metric, small if ``mode`` is ``min``. A value outside
    the bounds counts as the bound, one that is not finite as the worst."""
    low, high = bounds
    shares = [_share(value, low, high, mode) for value in values]
    count = min(len(shares), MOST)
    edges = [number * len(shares) // count for number in range(count + 1)] if count else []
    means = [math.fsum(shares[a:b]) / (b - a) for a, b in pairwise(edges)]
    return base64.b64encode(
        zlib.compress(_little(array("H", (round(mean * TOP) for mean in means))))
    ).decode()


def _share(value: float, low: float, high: float, mode: str) -> float:
    if not math.isfinite(value):
        return 1.0
    share = (min(max(value, low), high) - low) / (high - low)
    return 1 - share if mode == "max" else share


def unpacked(text: str) -> tuple[int, ...]:
    """The losses, from 0 to ``TOP``; none of a text that cannot be read."""
    losses = array("H")
    try:
        losses.frombytes(zlib.decompress(base64.b64decode(text, validate=True)))
    except (binascii.Error, ValueError, zlib.error):
        return ()
    return tuple(array("H", _little(losses)))


def _little(numbers: array[int]) -> bytes:
    """The bytes of ``numbers``, which are the same on all machines."""
    if sys.byteorder == "big":
        numbers = array("H", numbers)
        numbers.byteswap()
    return numbers.tobytes()
