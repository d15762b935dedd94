"""Permissions of what is written: a run's folder is private to its user, and what is made in a folder is as
private as that folder, under any umask. So one `chmod` of a folder shares what comes into it from then on."""

from __future__ import annotations

import os
from pathlib import Path

from cerebro_elastic.errors import RunError
from cerebro_elastic.system.ownership import distrust_folder


def private_folder(path: Path) -> None:
    """Make a folder that is private to this user; one that exists stays as it is. Raises ``RunError`` if
    others can have made it."""
    make_folder(path.parent)
    path.mkdir(mode=0o700, exist_ok=True)
    check_own(path)


def check_own(folder: Path) -> None:
    """Raise ``RunError`` if others can have made the folder, or can write to it."""
    if why := distrust_folder(folder):
        raise RunError(
            f"{folder} {why}, so what is in it may be planted: use a folder of your own (a copy by `cp -r` "
            "is yours), or take the right to write from others (chmod go-w)"
        )


def make_folder(path: str | Path) -> None:
    """Make a folder, and those above it that are missing."""
    folder = Path(path)
    if folder.is_dir():
        return
    make_folder(folder.parent)
    folder.mkdir(mode=_mode(folder) | 0o700, exist_ok=True)


def as_its_folder(path: str, flags: int) -> int:
    """An ``opener`` for ``open``: the file gets the permissions of its folder."""
    return os.open(path, flags, _mode(path) & 0o666)


def _mode(path: str | Path) -> int:
    """The permissions of the folder of ``path``."""
    return os.stat(os.path.dirname(path) or ".").st_mode & 0o777
