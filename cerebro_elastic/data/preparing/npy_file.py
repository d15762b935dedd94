"""A ``.npy`` file that is written a part at a time."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cerebro_elastic.system.files import Chunk


@dataclass(frozen=True)
class NpyFile:
    """The chunks of an array's file, made anew each time it is gone over."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    parts: Callable[[], Iterable[NDArray[Any]]]
    """Makes the array's parts along its first axis, in order."""

    def __iter__(self) -> Iterator[Chunk]:
        header, dtype = io.BytesIO(), self.dtype.newbyteorder("<")
        np.lib.format.write_array_header_1_0(
            header,
            {
                "descr": np.lib.format.dtype_to_descr(dtype),
                "fortran_order": False,
                "shape": self.shape,
            },
        )
        yield header.getvalue()
        for part in self.parts():
            yield np.ascontiguousarray(part, dtype=dtype).reshape(-1).view(np.uint8).data
