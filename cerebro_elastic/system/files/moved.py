"""Where the files are that a record names, if a home of runs or a whole project was moved or copied since.

A record keeps its names: digests cover them. ``locate`` finds where the files are now. This process and those
that it starts share that by an environment variable, since only this one reads the run's folder.
"""

from __future__ import annotations

import json
import os
from functools import lru_cache
from pathlib import Path

from cerebro_elastic.errors import StorageError

VARIABLE = "CEREBRO_MOVED"
"""Pairs of folders, as JSON: where a record names files, and where they are."""
_not_moved: set[str] = set()
"""The homes in which this process has opened a run at the place that its record names."""


def note_place(then: Path, now: Path) -> None:
    """Note that the folder of a run, which the run's record names ``then``, is ``now``. Its neighbours in its
    home were moved with it, as far as they are there; so was the project, if its folder is gone."""
    if then == now or (then.name == now.name and _is_same(then, now)):
        _not_moved.add(str(then.parent))
        return
    if then.name != now.name:
        return  # a copy under another name, or the folder of a machine that has joined the run
    then, now, gone = then.parent, now.parent, not then.exists()
    while gone and then.name == now.name and not then.parent.exists():
        then, now = then.parent, now.parent
    note_folder(then, now)


def note_folder(then: Path, now: Path) -> None:
    """Note that a folder, which records name ``then``, is ``now``."""
    pair, known = [str(then), str(now).rstrip("/")], json.loads(os.environ.get(VARIABLE, "[]"))
    if pair not in known:
        os.environ[VARIABLE] = json.dumps([*known, pair])


def here(path: str) -> str:
    """Where the local file or folder is that a record names ``path``.

    Raises:
        StorageError: This process has opened runs of two homes that name it so.
    """
    if not (text := os.environ.get(VARIABLE)):
        return path
    found = {place: old for old, new in _pairs(text) if (place := _under(path, old, new))}
    if any(old in _not_moved and os.path.exists(old) for old in found.values()):
        found[path] = ""
    if len(found) > 1:
        raise StorageError(
            f"{path} is the name of files in {' and in '.join(sorted(found))}: one home is a copy of the "
            "other, and this process has opened runs of both; use a process for each"
        )
    return next(iter(found), path)


@lru_cache(8)
def _pairs(text: str) -> list[tuple[str, str]]:
    return [(old, new) for old, new in json.loads(text)]


def _under(path: str, old: str, new: str) -> str:
    """The ``path`` in ``new`` instead of ``old``; "" if it is missing, or was not moved."""
    if path != old and not path.startswith(f"{old}/"):
        return ""
    rest = path.removeprefix(old)
    first = rest[1:].partition("/")[0]
    is_there = os.path.exists(f"{new}/{first}") or not os.path.exists(old)
    return f"{new}{rest}" if is_there else ""


def _is_same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False
