"""Arrays as PNG pictures, by zlib alone."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cerebro_elastic.data.description import picture_axes

_COLOUR_TYPES = {1: 0, 3: 2, 4: 6}
"""PNG's number for grey, RGB and RGBA, by the number of channels."""
_MOST_PIXELS = 256
"""A larger image is thinned until its longer side has no more."""


def as_png(image: NDArray[Any]) -> bytes:
    """An image of shape ``HxW``, ``HxWxC`` or ``CxHxW`` as a PNG.

    What is not ``uint8`` is scaled: from 0 to 1 if it lies there, else from its least to its greatest value.
    """
    axes = picture_axes(image.shape)
    assert axes is not None, image.shape
    pixels = image.transpose(axes)
    pixels = pixels[..., None] if pixels.ndim == 2 else pixels
    step = -(-max(pixels.shape[:2]) // _MOST_PIXELS)
    pixels = _bytes(pixels[::step, ::step])
    height, width, channels = pixels.shape
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)  # each begins with the number of its filter
    header = struct.pack(">IIBBBBB", width, height, 8, _COLOUR_TYPES[channels], 0, 0, 0)
    chunks = (_chunk(b"IHDR", header), _chunk(b"IDAT", zlib.compress(rows)), _chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _bytes(pixels: NDArray[Any]) -> NDArray[np.uint8]:
    if pixels.dtype == np.uint8:
        return np.ascontiguousarray(pixels)
    values = np.nan_to_num(pixels.astype(np.float64), posinf=0.0, neginf=0.0)
    low, high = float(values.min()), float(values.max())
    if low >= 0 and high <= 1:
        low, high = 0.0, 1.0
    return np.ascontiguousarray((values - low) / ((high - low) or 1.0) * 255).astype(np.uint8)
