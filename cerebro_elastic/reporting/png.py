"""Pictures for a page: arrays as PNG, by zlib alone, and encoded ones as they are."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

_COLOUR_TYPES = {1: 0, 3: 2, 4: 6}
"""PNG's number for grey, RGB and RGBA, by the number of channels."""
_MOST_PIXELS = 256
"""A larger image is thinned until its longer side has no more."""


_ENCODED = {
    b"\x89PNG\r\n": "png",
    b"\xff\xd8\xff": "jpeg",
    b"GIF8": "gif",
    b"RIFF": "webp",
    b"BM": "bmp",
}
"""How files of pictures begin, and the types that a browser knows them by."""
_MOST_BYTES = 1_000_000
"""A larger encoded picture is not shown."""


def picture_url(value: NDArray[Any] | bytes) -> str | None:
    """The picture that a value of a column is, as a ``data:`` URL; ``None`` if it looks like none."""
    if isinstance(value, bytes):
        kind = next((kind for head, kind in _ENCODED.items() if value.startswith(head)), None)
        shown = kind is not None and len(value) <= _MOST_BYTES
        return f"data:image/{kind};base64,{base64.b64encode(value).decode()}" if shown else None
    if _axes(value.shape) is None or value.dtype.kind not in "biuf":
        return None
    return f"data:image/png;base64,{base64.b64encode(as_png(value)).decode()}"


def as_png(image: NDArray[Any]) -> bytes:
    """An image of shape ``HxW``, ``HxWxC`` or ``CxHxW`` as a PNG.

    What is not ``uint8`` is scaled: from 0 to 1 if it lies there, else from its least to its greatest value.
    """
    axes = _axes(image.shape)
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


def _axes(shape: Sequence[int]) -> tuple[int, ...] | None:
    """The axes of an image of this shape in the order height, width, channels; ``None`` if it is none."""
    channels, smallest = (1, 3, 4), 8
    match tuple(shape):
        case (height, width) if min(height, width) >= smallest:
            return (0, 1)
        case (height, width, last) if last in channels and min(height, width) >= smallest:
            return (0, 1, 2)
        case (first, height, width) if first in channels and min(height, width) >= smallest:
            return (1, 2, 0)
        case _:
            return None


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
