"""A column of encoded values that stay where they are until they are written: files, or parts of files such
as members of a tar archive."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cerebro_elastic.data.manifest import Kind
from cerebro_elastic.data.ragged import Index, Varying, parts
from cerebro_elastic.errors import DataError
from cerebro_elastic.system.files import Place, read_ranges

IMAGES = frozenset(
    {".apng", ".avif", ".bmp", ".dib", ".gif", ".j2k", ".jfif", ".jp2", ".jpe", ".jpeg", ".jpg"}
)
IMAGES |= {".mpo", ".pbm", ".pgm", ".png", ".pnm", ".ppm", ".qoi", ".tga", ".tif", ".tiff", ".webp"}
"""The kinds of files that are pictures."""

_THREADS = 8
"""Threads that open pictures; Pillow decodes without the interpreter's lock."""


@dataclass(frozen=True)
class FileRanges(Varying):
    """Encoded values in files of one file system."""

    files: Sequence[Place]
    file_of: Index
    """By row, the number of its file; -1 if the row has no value."""
    starts: Index
    """By row, where in its file its value begins."""
    sizes: Index
    """By row, the bytes of its value."""
    keys: Sequence[str]
    """By row, what messages call it."""
    kind: Kind = "bytes"

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(np.uint8)

    @property
    def value_shape(self) -> tuple[int, ...]:
        return ()

    @property
    def lengths(self) -> Index:
        return self.sizes

    @property
    def missing(self) -> Index:
        """The rows without a value."""
        return np.flatnonzero(self.file_of < 0)

    def of(self, rows: Index) -> FileRanges:
        return replace(
            self,
            file_of=self.file_of[rows],
            starts=self.starts[rows],
            sizes=self.sizes[rows],
            keys=[self.keys[row] for row in rows.tolist()],
        )

    def pieces(self, rows: Index) -> Iterator[NDArray[Any]]:
        for part in parts(self.sizes[rows]):
            yield np.frombuffer(b"".join(self.values(rows[part])), np.uint8)

    def values(self, rows: Index) -> list[bytes]:
        """The values of ``rows``. Raises ``DataError`` if a file has become shorter."""
        ends = (self.starts + self.sizes)[rows].tolist()
        files = [self.files[file] for file in self.file_of[rows].tolist()]
        values = read_ranges(files, self.starts[rows].tolist(), ends)
        for row, value in zip(rows.tolist(), values, strict=True):
            if len(value) != self.sizes[row]:
                raise DataError(
                    f"{self.keys[row]} has {len(value)} bytes, and had {self.sizes[row]} when it was listed: "
                    "let nobody write there, and prepare the data again"
                )
        return values

    def bad_pictures(self) -> dict[int, str]:
        """The rows of pictures that Pillow cannot open, and why. Without Pillow none is looked at."""
        try:
            from PIL import Image
        except ImportError:
            return {}
        pictures = np.array([PurePosixPath(key).suffix.lower() in IMAGES for key in self.keys])
        rows = np.flatnonzero(pictures & (self.file_of >= 0))

        def fault(value: bytes) -> str | None:
            try:
                with Image.open(BytesIO(value)) as image:
                    image.load()
            except Exception as exc:  # whatever a broken file makes of its reader
                return re.sub(r" <_io\.BytesIO object at \w+>", "", f"{type(exc).__name__}: {exc}")
            return None

        bad = {}
        with ThreadPoolExecutor(_THREADS) as threads:
            for part in parts(self.sizes[rows]):
                faults = zip(rows[part].tolist(), threads.map(fault, self.values(rows[part])), strict=True)
                bad.update({row: why for row, why in faults if why is not None})
        return bad
