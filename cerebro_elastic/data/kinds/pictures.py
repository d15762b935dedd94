"""Folders of pictures: each sub-folder is a class."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np

from cerebro_elastic.data.categories import canonical, coded
from cerebro_elastic.data.kinds.byte_ranges import IMAGES, FileRanges, is_image
from cerebro_elastic.data.kinds.kind import suffix_of
from cerebro_elastic.data.ragged import Columns
from cerebro_elastic.errors import DataError
from cerebro_elastic.system.files import Place, folders, is_hidden, sizes_through_links
from cerebro_elastic.system.words import counted

_BESIDE = {".csv", ".db", ".htm", ".html", ".ini", ".json", ".jsonl", ".lnk", ".log", ".md", ".tsv", ".txt"}
_BESIDE |= {".url", ".xml", ".yaml", ".yml"}
"""The kinds of files that may lie beside pictures: notes, and files of operating systems."""


def has_images(folder: Place) -> bool:
    """Whether sub-folders have pictures."""
    return any(is_image(path) and "/" in _inside(folder, path) for path in _listed(folder))


def read_images(folder: Place) -> Columns:
    """The columns ``image``, of encoded pictures, and ``label``, of the sub-folders' numbers in the order of
    their names. Raises ``DataError`` if a sub-folder has no picture, or a file that may be one of another
    kind."""
    listed = _listed(folder)
    pictures = {path: size for path, size in sorted(listed.items()) if is_image(path)}
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
            f"the class folder {folder / empty[0]} has no picture ({', '.join(sorted(IMAGES))}): remove it, "
            "or put pictures into it"
        )
    rows = np.arange(len(pictures), dtype=np.int64)
    image = FileRanges(
        [Place(folder.fs, path) for path in pictures],
        rows,
        np.zeros_like(rows),
        np.array(list(pictures.values()), np.int64),
        names,
        whole=True,
    )
    return {"image": image, "label": coded(labels, f"the names of the folders in {folder}")}


def _check_kinds(folder: Place, names: list[str]) -> None:
    """Raise ``DataError`` for files in the folders of classes that are no pictures, and no notes either."""
    kinds = [suffix_of(name) for name in names if "/" in name]
    odd = Counter(kind for kind in kinds if kind and kind not in IMAGES | _BESIDE)
    if odd:
        counts = ", ".join(f"{count} {kind}" for kind, count in odd.most_common())
        raise DataError(
            f"{folder} has files that are not known as pictures ({counts}), beside pictures: convert them to "
            f"one of {', '.join(sorted(IMAGES))}, or remove them"
        )


def _listed(folder: Place) -> Mapping[str, int]:
    """The sizes of all files below the folder, without hidden ones; a local link to a folder is one, too."""
    files = sizes_through_links(folder)
    return {path: size for path, size in files.items() if not is_hidden(_inside(folder, path))}


def _inside(folder: Place, path: str) -> str:
    return path.removeprefix(folder.path.rstrip("/")).lstrip("/")
