"""Which run owns a place of checkpoints? Runs of one id in several homes may name one place, and none of them
may write to, or delete, another's.

Without ``checkpoints`` in its recipe a run's folder is its place, even after a move: a copy has its own. Any
other place names its owner, by a token that is also in the folder, and by the folder's path.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from cerebro_elastic.errors import CerebroError, RunError, StorageError
from cerebro_elastic.runs.folder import RunFolder
from cerebro_elastic.system.files import (
    create,
    locate,
    read,
    redacted,
    remove,
    translated,
    write,
    write_text,
)
from cerebro_elastic.system.words import option

_FILE = "owner"


def refuse_others(storage: str, folder: RunFolder) -> None:
    """Raise ``RunError`` unless the run in this folder may write to the place, and delete its content. A
    machine that joined the run may do so where the owning folder does not exist: it may be lost."""
    if owns(folder, storage):
        return
    token, path = _noted(storage)
    joined = _has_joined(folder)
    if joined and token and not _is_another(path, folder):
        return
    of = (
        f"the run in {path}, and {folder.path} has none of its own: name that run"
        if joined or not token
        else f"another run of this id, in {path}: choose another id with {option('run-id')}, or other "
        "`checkpoints` in the recipe; if that run is gone for good, delete this place"
    )
    raise RunError(f"{redacted(storage)} has the checkpoints of {of}")


def claim(storage: str, folder: RunFolder) -> bool:
    """Note in the folder and at the place that the place belongs to the run in this folder, which may have
    been moved. If several begin at one moment, one gets it. A machine that joined the run claims nothing.
    Returns whether the place had no owner. Raises as ``refuse_others``."""
    refuse_others(storage, folder)
    if _has_joined(folder):
        return False
    token = _token(folder) or uuid.uuid4().hex
    write_text(folder.owner, token)
    file, text = locate(storage) / _FILE, f"{token} {folder.path}".encode()
    with translated(StorageError, f"cannot write to {redacted(storage)}"):
        new = create(file, text)
    refuse_others(storage, folder)
    if not new and _noted(storage) != (token, str(folder.path)):
        with translated(StorageError, f"cannot write to {redacted(storage)}"):
            write(file, [text])
    return new


@contextmanager
def claimed(storage: str, folder: RunFolder) -> Iterator[None]:
    """Claim the place for a run that begins in the block, before anything is written there. If the block
    fails, a formerly free place is free again. Raises as ``claim``."""
    new = claim(storage, folder)
    try:
        yield
    except BaseException:
        if new:
            with suppress(CerebroError):
                remove(locate(storage) / _FILE)
        raise


def owns(folder: RunFolder, storage: str) -> bool:
    """Whether the run in this folder, or put aside in it, may write to the place and delete it. A moved
    folder still owns it. A copy does not, nor does it own its original's folder."""
    token, path = _noted(storage)
    return (not token or token == _token(folder)) and not _is_another(path, folder)


def is_claimed(storage: str) -> bool:
    """Whether a run owns the place."""
    return bool(_noted(storage)[1])


def left_alone(storage: str) -> str:
    """The message on a place owned by a run of another folder."""
    place, owner = redacted(storage), _noted(storage)[1]
    return f"note: {place} stays: the run in {owner} owns it, here or on another machine"


def _is_another(path: str, folder: RunFolder) -> bool:
    """Whether a different folder from this one is at that path on this machine."""
    # Not ``Path.exists``, which raises where this user has no access.
    return os.path.exists(path) and not os.path.samefile(path, folder.path)


def _has_joined(folder: RunFolder) -> bool:
    """Whether this is the folder of a machine that joined a run: a run begun here gets a token first."""
    return folder.spec.exists() and _token(folder) is None


def _token(folder: RunFolder) -> str | None:
    files = (folder.owner, RunFolder(folder.former).owner)
    return next((file.read_text().partition(" ")[0] for file in files if file.exists()), None)


def _noted(storage: str) -> tuple[str, str]:
    """The token of the place's owner, and the path of its folder; empty without an owner. A run's folder is
    its own place, without a token."""
    place = locate(storage)
    with translated(StorageError, f"cannot read {redacted(storage)}"):
        if place.local and RunFolder(Path(place.path)).spec.exists():
            return "", place.path
        try:
            token, _, path = read(place / _FILE).decode(errors="replace").partition(" ")
        except FileNotFoundError:
            return "", ""
    return token, path
