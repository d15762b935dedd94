"""Columns of encoded values that stay where they are until they are written: files, or parts of files such as
members of a tar archive. Of a folder of pictures, each sub-folder is a class."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cerebro_elastic.data.manifest import Kind
from cerebro_elastic.data.preparing.categories import canonical, coded
from cerebro_elastic.data.ragged import Index, Varying, parts
from cerebro_elastic.errors import DataError
from cerebro_elastic.system.files import Place, folders, is_hidden, read_ranges, sizes_through_links
from cerebro_elastic.system.words import counted

_IMAGES = frozenset(
    {".apng", ".avif", ".bmp", ".dib", ".gif", ".j2k", ".jfif", ".jp2", ".jpe", ".jpeg", ".jpg"}
)
_IMAGES |= {".mpo", ".pbm", ".pgm", ".png", ".pnm", ".ppm", ".qoi", ".tga", ".tif", ".tiff", ".webp"}
"""The kinds of files that are pictures."""

_BESIDE = {".csv", ".db", ".htm", ".html", ".ini", ".json", ".jsonl", ".lnk", ".log", ".md", ".tsv", ".txt"}
_BESIDE |= {".url", ".xml", ".yaml", ".yml"}
"""The kinds of files that may lie beside pictures: notes, and what systems put there."""
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
        pictures = np.array([_is_image(key) for key in self.keys])
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


def has_images(folder: Place) -> bool:
    """Whether there are pictures in sub-folders."""
    return any(_is_image(path) and "/" in _inside(folder, path) for path in _listed(folder))


def read_images(folder: Place) -> dict[str, NDArray[Any] | Varying]:
    """The columns ``image``, of encoded pictures, and ``label``, of the sub-folders' numbers in the order of
    their names. Raises ``DataError`` if a sub-folder has no picture, or a file that may be one of another
    kind."""
    listed = _listed(folder)
    pictures = {path: size for path, size in sorted(listed.items()) if _is_image(path)}
    names = [_inside(folder, path) for path in pictures]
    if outside := [name for name in names if "/" not in name]:
        raise DataError(
            f"{folder} has {counted(len(outside), 'picture')} in no sub-folder, such as {outside[0]}: each "
            "picture lies in the folder of its class"
        )
    _check_kinds(folder, [_inside(folder, path) for path in listed])
    labels = [name.split("/", 1)[0] for name in names]
    classes = set(map(canonical, labels))
    if empty := sorted(
        name for name in folders(folder) if not is_hidden(name) and canonical(name) not in classes
    ):
        raise DataError(
            f"the class folder {folder / empty[0]} has no picture ({', '.join(sorted(_IMAGES))}): remove it, "
            "or put pictures into it"
        )
    rows = np.arange(len(pictures), dtype=np.int64)
    image = FileRanges(
        [Place(folder.fs, path) for path in pictures],
        rows,
        np.zeros_like(rows),
        np.array(list(pictures.values()), np.int64),
        names,
    )
    return {"image": image, "label": coded(labels, f"the names of the folders in {folder}")}


def _check_kinds(folder: Place, names: list[str]) -> None:
    """Raise ``DataError`` for files in the folders of classes that are no pictures, and no notes either."""
    kinds = [_suffix(name) for name in names if "/" in name]
    odd = Counter(kind for kind in kinds if kind and kind not in _IMAGES | _BESIDE)
    if odd:
        counts = ", ".join(f"{count} {kind}" for kind, count in odd.most_common())
        raise DataError(
            f"{folder} has files that are not known as pictures ({counts}), beside pictures: convert them to "
            f"one of {', '.join(sorted(_IMAGES))}, or remove them"
        )


def _listed(folder: Place) -> Mapping[str, int]:
    """The sizes of all files below the folder, without hidden ones; a local link to a folder is one, too."""
    files = sizes_through_links(folder)
    return {path: size for path, size in files.items() if not is_hidden(_inside(folder, path))}


def _inside(folder: Place, path: str) -> str:
    return path.removeprefix(folder.path.rstrip("/")).lstrip("/")


def _is_image(path: str) -> bool:
    return _suffix(path) in _IMAGES


def _suffix(path: str) -> str:
    return PurePosixPath(path).suffix.lower()
