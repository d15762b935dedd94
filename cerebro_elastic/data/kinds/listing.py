"""The files of a source or a set of shards, by its name in a recipe."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from difflib import get_close_matches
from itertools import chain
from pathlib import Path
from urllib.parse import unquote

from cerebro_elastic.data.kinds.kind import suffix_of
from cerebro_elastic.data.kinds.pictures import has_images
from cerebro_elastic.data.kinds.registry import KINDS
from cerebro_elastic.data.manifest import Split
from cerebro_elastic.errors import DataError
from cerebro_elastic.system.files import (
    Place,
    exists,
    expand,
    folders,
    is_folder,
    literal_folder,
    read,
    redacted,
    sizes,
)

_SHOWN = 3
"""The number of kinds of files that a message names."""
_RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}")
_FOLDER = re.compile(r"([^=]+)=(.*)")
_NUMBER = re.compile(r"[-+]?\d{1,18}")
_MISSING = "__HIVE_DEFAULT_PARTITION__"
"""The mark of a missing value in the name of a folder."""
_VALID = ("valid", "val", "validation")
_STATE = "state.json"
"""The list of files beside the Arrow files of a dataset that Hugging Face's ``datasets`` has saved."""


def files_of(name: str, place: Place) -> list[Place]:
    """The files of ``name``, which is a file, a folder or a glob, sorted; of a folder, those of known
    kinds."""
    files = [file for part in _numbered(place) for file in expand(part, _is_known)]
    if _is_plain_folder(place):
        files = _without_others(place, files)
    if not files:
        raise DataError(
            f"{redacted(name)} {_nothing_known(place)}: give a file, a folder or a glob of "
            f"{', '.join(sorted(KINDS))}, a folder with a sub-folder of pictures for each class, or as "
            "`source` a Python function 'module:name' that returns {column: array}"
        )
    return files


def _is_plain_folder(place: Place) -> bool:
    """Whether the place is a folder, and not a file of a known kind."""
    return not _is_known(place.path) and is_folder(place)


def is_pictures(place: Place) -> bool:
    """Whether the place is a folder of pictures, and of no files of a known kind."""
    return _is_plain_folder(place) and not expand(place, _is_known) and has_images(place)


def split_folders(place: Place) -> dict[Split, Place] | None:
    """The folders of training, validation and test data in a folder of both of the first, or all, by their
    usual names."""
    if not _is_plain_folder(place):
        return None
    names = set(folders(place))
    valid = [name for name in _VALID if name in names]
    if "train" not in names or not valid:
        return None
    if len(valid) > 1:
        raise DataError(
            f"{place} has {' and '.join(valid)}: name one of them as `valid`, and train as `source`"
        )
    found: dict[Split, Place] = {"train": place / "train", "valid": place / valid[0]}
    if "test" in names:
        found["test"] = place / "test"
    return found


def folder_columns(place: Place, files: Sequence[Place]) -> list[dict[str, int | str | None]]:
    """By file, the columns in the names of folders such as ``year=2024`` that the wildcards of ``place``
    match: numbers if all of a column are, else text."""
    match = _RANGE.search(place.path)
    folder = literal_folder(place if match is None else Place(place.fs, place.path[: match.start()] + "*"))
    names = [file.path.removeprefix(folder).strip("/").split("/")[:-1] for file in files]
    found = [
        {unquote(match[1]): unquote(match[2]) for name in inside if (match := _FOLDER.fullmatch(name))}
        for inside in names
    ]
    values = {name: [each.get(name, _MISSING) for each in found] for name in chain.from_iterable(found)}
    numbers = {name for name, texts in values.items() if all(map(_NUMBER.fullmatch, {*texts} - {_MISSING}))}
    return [
        {
            name: None if texts[at] == _MISSING else int(texts[at]) if name in numbers else texts[at]
            for name, texts in values.items()
        }
        for at in range(len(files))
    ]


def _numbered(place: Place) -> list[Place]:
    """The files of a name such as ``shard-{000..015}.tar``, or the place itself."""
    match = _RANGE.search(place.path)
    if match is None:
        return [place]
    first, last = map(int, match.groups())
    if last < first:
        raise DataError(f"{place} counts down from {match[1]} to {match[2]}: give the smaller number first")
    before, behind = place.path[: match.start()], place.path[match.end() :]
    names = (f"{before}{number:0{len(match[1])}d}{behind}" for number in range(first, last + 1))
    return [part for name in names for part in _numbered(Place(place.fs, name))]


def _without_others(folder: Place, files: Sequence[Place]) -> list[Place]:
    """The files of a dataset that ``datasets`` has saved in the folder, without its caches; else all."""
    if not exists(folder / _STATE):
        return list(files)
    state = json.loads(read(folder / _STATE))
    if state.get("_indices_data_files"):
        raise DataError(
            f"the dataset {folder} is a selection of other rows: call flatten_indices(), and save it again"
        )
    return [folder / entry["filename"] for entry in state.get("_data_files", ())] or list(files)


def _nothing_known(place: Place) -> str:
    """Why no file of a known kind is at ``place``."""
    try:
        kinds = Counter(suffix_of(path) or "without a suffix" for path in sizes(place))
    except (FileNotFoundError, NotADirectoryError):
        kinds = Counter()
    if not kinds:
        return "has no files" if exists(place) else f"does not exist{_nearest(place)}"
    counts = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common(_SHOWN))
    return f"has no file of a known kind at its top, but in all {counts}"


def _nearest(place: Place) -> str:
    """The file of the same folder of this machine with the most similar name, if any."""
    path = Path(place.path)
    if not place.local or not path.parent.is_dir():
        return ""
    near = get_close_matches(path.name, [other.name for other in path.parent.iterdir()], n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""


def _is_known(path: str) -> bool:
    return suffix_of(path) in KINDS
