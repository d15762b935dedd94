"""Which files a source is."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from cerebro_elastic.errors import DataError
from cerebro_elastic.system.files import Place, exists, folders, literal_folder, read

_RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}")
_VALID = ("valid", "val", "validation")
_STATE = "state.json"
"""Beside the Arrow files of a dataset that Hugging Face's ``datasets`` has saved: which files these are."""


def numbered(place: Place) -> list[Place]:
    """The files of a name such as ``shard-{000..015}.tar``, or the place itself."""
    match = _RANGE.search(place.path)
    if match is None:
        return [place]
    first, last = map(int, match.groups())
    if last < first:
        raise DataError(f"{place} counts down from {match[1]} to {match[2]}: give the smaller number first")
    before, behind = place.path[: match.start()], place.path[match.end() :]
    names = (f"{before}{number:0{len(match[1])}d}{behind}" for number in range(first, last + 1))
    return [part for name in names for part in numbered(Place(place.fs, name))]


def folder_of_wildcards(place: Place) -> str:
    """The folder in which the wildcards and numbers of a name are looked up."""
    match = _RANGE.search(place.path)
    return literal_folder(place if match is None else Place(place.fs, place.path[: match.start()] + "*"))


def split_folders(place: Place) -> tuple[Place, Place] | None:
    """The folders of training and validation data in a folder that has both, by their usual names."""
    names = set(folders(place))
    valid = [name for name in _VALID if name in names]
    if "train" not in names or not valid:
        return None
    if len(valid) > 1:
        raise DataError(
            f"{place} has {' and '.join(valid)}: name one of them as `valid`, and train as `source`"
        )
    return place / "train", place / valid[0]


def without_others(folder: Place, files: Sequence[Place]) -> list[Place]:
    """The files of a dataset that ``datasets`` has saved in the folder, without its caches; else all."""
    if not exists(folder / _STATE):
        return list(files)
    state = json.loads(read(folder / _STATE))
    if state.get("_indices_data_files"):
        raise DataError(
            f"the dataset {folder} is a selection of other rows: call flatten_indices(), and save it again"
        )
    return [folder / entry["filename"] for entry in state.get("_data_files", ())] or list(files)
