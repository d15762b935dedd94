"""Permissions of what is written: a run's folder is private to its user, and what is made in a folder is as
private as that folder, under any umask. So one `chmod` of a folder shares what comes into it from then on."""

from __future__ import annotations

import os
from pathlib import Path


def private_folder(path: Path) -> None:
    """Make a folder that is private to this user; one that exists stays as it is."""
    make_folder(path.parent)
    path.mkdir(mode=0o700, exist_ok=True)


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
