"""How a dataset lies in its folder: ``<split>/<partition>/<column>.npy``, and ``manifest.json``."""

from __future__ import annotations

import io
from typing import Any
from urllib.parse import quote

import numpy as np

from cerebro_elastic.data.manifest import Split


def column_path(split: Split, index: int, column: str) -> str:
    """The file of a partition's column, under the dataset's URL."""
    return f"{split}/{index:05d}/{quote(column, safe='')}.npy"


def npy_header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """What a ``.npy`` file begins with; the array's bytes follow."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    )
    return header.getvalue()
