"""Columns of encoded values that stay where they are until they are written: files, or parts of files such as
members of a tar archive."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from io import BytesIO
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cerebro_elastic.data.kinds.kind import suffix_of
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
    """By row, its name in messages."""
    kind: Kind = "bytes"
    whole: bool = False
    """Whether each value is all of its file: one that has become longer is noticed, too."""

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
    def missing(self) -> Mapping[int, str]:
        return {row: self.keys[row] for row in np.flatnonzero(self.file_of < 0).tolist()}

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
        """The values of ``rows``. Raises ``DataError`` if a file has become shorter or, of whole files,
        longer."""
        ends = (self.starts + self.sizes + self.whole)[rows].tolist()
        files = [self.files[file] for file in self.file_of[rows].tolist()]
        values = read_ranges(files, self.starts[rows].tolist(), ends)
        for row, value in zip(rows.tolist(), values, strict=True):
            if len(value) != self.sizes[row]:
                raise DataError(
                    f"{self.keys[row]} is no longer the file of {self.sizes[row]} bytes that was listed: let "
                    "nobody write there, and prepare the data or start the run again"
                )
        return values

    @classmethod
    def joined(cls, columns: Sequence[FileRanges]) -> FileRanges:
        """The rows of all ``columns``, one below the other."""
        first = np.cumsum([0, *(len(column.files) for column in columns)]).tolist()
        file_of = [
            np.where(column.file_of < 0, -1, column.file_of + at)
            for column, at in zip(columns, first, strict=False)
        ]
        return cls(
            [file for column in columns for file in column.files],
            np.concatenate(file_of),
            np.concatenate([column.starts for column in columns]),
            np.concatenate([column.sizes for column in columns]),
            [key for column in columns for key in column.keys],
        )

    def bad_pictures(self) -> dict[int, str]:
        """The rows of pictures that Pillow cannot open, and why. Without Pillow none is looked at."""
        try:
            from PIL import Image
        except ImportError:
            return {}
        pictures = np.array([is_image(key) for key in self.keys])
        rows = np.flatnonzero(pictures & (self.file_of >= 0))

        def fault(value: bytes) -> str | None:
            try:
                with Image.open(BytesIO(value)) as image:
                    image.load()
            except Exception as exc:  # a broken file may raise anything in its reader
                return re.sub(r" <_io\.BytesIO object at \w+>", "", f"{type(exc).__name__}: {exc}")
            return None

        bad = {}
        with ThreadPoolExecutor(_THREADS) as threads:
            for part in parts(self.sizes[rows]):
                faults = zip(rows[part].tolist(), threads.map(fault, self.values(rows[part])), strict=True)
                bad.update({row: why for row, why in faults if why is not None})
        return bad


def is_image(path: str) -> bool:
    """Whether the name is that of a picture."""
    return suffix_of(path) in IMAGES
