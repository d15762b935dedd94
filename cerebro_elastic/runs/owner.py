"""Which run owns a place of checkpoints. Runs of one id in several homes may name one place, and none of them
may write to, or delete, those of another."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

from cerebro_elastic.errors import RunError, StorageError
from cerebro_elastic.runs.folder import RunFolder
from cerebro_elastic.system.files import locate, read, redacted, translated, write, write_text
from cerebro_elastic.system.words import option

_FILE = "owner"


def refuse_others(storage: str, folder: RunFolder) -> None:
    """Raise ``RunError`` unless the run in this folder may write to the place."""
    if not owns(folder, storage):
        raise RunError(
            f"{redacted(storage)} has the checkpoints of another run of this id, in {_noted(storage)[1]}: "
            f"choose another id with {option('run-id')}, or other `checkpoints` in the recipe; if that run "
            "is gone for good, delete this place"
        )


def claim(storage: str, folder: RunFolder) -> None:
    """Note in the folder and at the place that the place is of the run in this folder."""
    token = _token(folder) or uuid.uuid4().hex
    write_text(folder.owner, token)
    with translated(StorageError, f"cannot write to {redacted(storage)}"):
        write(locate(storage) / _FILE, [f"{token} {folder.path}".encode()])


def owns(folder: RunFolder, storage: str) -> bool:
    """Whether the run in this folder, or put aside in it, may write to the place and delete it. A folder that
    was moved still owns it. A copy of one does not, nor does it own the folder that it was copied from."""
    token, path = _noted(storage)
    if not token:
        return not path or os.path.samefile(path, folder.path)
    # Not ``Path.exists``, which raises where this user may not look.
    return token == _token(folder) and (path == str(folder.path) or not os.path.exists(path))


def left_alone(storage: str) -> str:
    """What is said of a place that a run of another folder owns."""
    place, owner = redacted(storage), _noted(storage)[1]
    return f"note: {place} stays: the run in {owner} owns it, here or on another machine"


def _token(folder: RunFolder) -> str | None:
    files = (folder.owner, RunFolder(folder.former).owner)
    return next((file.read_text().partition(" ")[0] for file in files if file.exists()), None)


def _noted(storage: str) -> tuple[str, str]:
    """The token of the owner that the place names, and the path of its folder; empty if it names none. A
    run's folder is its own place, without a token."""
    place = locate(storage)
    with translated(StorageError, f"cannot read {redacted(storage)}"):
        if place.local and RunFolder(Path(place.path)).spec.exists():
            return "", place.path
        try:
            token, _, path = read(place / _FILE).decode(errors="replace").partition(" ")
        except FileNotFoundError:
            return "", ""
    return token, path
