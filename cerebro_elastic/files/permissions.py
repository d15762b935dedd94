"""Who may read what is written: a run's folder is its user's alone, and whatever is made in a folder is as
private as that folder, under any umask. So one `chmod` of a folder shares what comes into it from then on."""

from __future__ import annotations

import os
from pathlib import Path


def private_folder(path: Path) -> None:
    """Make a folder for this user alone; one that is there stays as it is."""
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
    """An ``opener`` for ``open``."""
    return os.open(path, flags, _mode(path) & 0o666)


def write_text(path: Path, text: str) -> None:
    """Write a small file at once."""
    with open(path, "w", encoding="utf-8", opener=as_its_folder) as file:
        file.write(text)


def _mode(path: str | Path) -> int:
    """What the folder of ``path`` allows."""
    return os.stat(os.path.dirname(path) or ".").st_mode & 0o777
