"""Folders of pictures: each sub-folder is a class."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cerebro_elastic.data.coded import Coded
from cerebro_elastic.data.file_ranges import IMAGES, FileRanges
from cerebro_elastic.data.ragged import Varying
from cerebro_elastic.errors import DataError
from cerebro_elastic.files import Place, folders, sizes
from cerebro_elastic.words import counted


def has_images(folder: Place) -> bool:
    """Whether there are pictures in sub-folders."""
    return any(_is_image(path) and "/" in _inside(folder, path) for path in _listed(folder))


def read_images(folder: Place) -> dict[str, NDArray[Any] | Varying]:
    """The columns ``image``, of encoded pictures, and ``label``, of the sub-folders' numbers in the order of
    their names. Raises ``DataError`` if a sub-folder has no picture."""
    pictures = {path: size for path, size in sorted(_listed(folder).items()) if _is_image(path)}
    names = [_inside(folder, path) for path in pictures]
    if outside := [name for name in names if "/" not in name]:
        raise DataError(
            f"{folder} has {counted(len(outside), 'picture')} in no sub-folder, such as {outside[0]}: each "
            "picture lies in the folder of its class"
        )
    labels = [name.split("/", 1)[0] for name in names]
    classes = sorted(set(labels))
    if empty := sorted({name for name in folders(folder) if not name.startswith(".")} - set(classes)):
        raise DataError(
            f"the class folder {folder / empty[0]} has no picture ({', '.join(sorted(IMAGES))}): remove it, "
            "or put pictures into it"
        )
    codes = {name: code for code, name in enumerate(classes)}
    rows = np.arange(len(pictures), dtype=np.int64)
    image = FileRanges(
        [Place(folder.fs, path) for path in pictures],
        rows,
        np.zeros_like(rows),
        np.array(list(pictures.values()), np.int64),
        names,
    )
    return {"image": image, "label": Coded.of([codes[label] for label in labels], classes)}


def _listed(folder: Place) -> Mapping[str, int]:
    """The sizes of all files below the folder, without hidden ones; a local link to a folder is one, too."""
    if not folder.local:
        files: Mapping[str, int] = sizes(folder)
    else:
        files = {
            path: os.path.getsize(path)
            for where, _, names in os.walk(folder.path, followlinks=True)
            for path in (os.path.join(where, name) for name in names)
            if _is_image(path)
        }
    return {path: size for path, size in files.items() if not _is_hidden(_inside(folder, path))}


def _inside(folder: Place, path: str) -> str:
    return path.removeprefix(folder.path.rstrip("/")).lstrip("/")


def _is_hidden(name: str) -> bool:
    return any(part.startswith(".") for part in name.split("/"))


def _is_image(path: str) -> bool:
    return PurePosixPath(path).suffix.lower() in IMAGES
