"""Who wrote a file? In a folder that others can write to, somebody may have planted it.

As with ssh, a key, a token or a run's folder is used only if this user or root owns it, and nobody else can
write to it. File systems that do not keep owners or permissions (some network mounts) are recognized by the
owner and permissions of a new file.
"""

from __future__ import annotations

import os
import pwd
import stat
from pathlib import Path

from cerebro_elastic.errors import RunError

_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def distrust(path: Path, status: os.stat_result) -> str | None:
    """Why others may have made the file or folder ``path``, which has this ``status``; ``None`` if they
    cannot."""
    owned, closed = status.st_uid in (os.geteuid(), 0), not status.st_mode & _OTHERS
    if not (owned and closed):
        import tempfile

        try:
            with tempfile.TemporaryFile(dir=path if stat.S_ISDIR(status.st_mode) else path.parent) as new:
                usual = os.fstat(new.fileno())
        except OSError:
            pass
        else:
            owned, closed = owned or usual.st_uid == status.st_uid, closed or bool(usual.st_mode & _OTHERS)
    if not owned:
        return f"belongs to {_name(status.st_uid)}, and this process runs as {_name(os.geteuid())}"
    return None if closed else f"can be written by others (mode {stat.S_IMODE(status.st_mode):o})"


def distrust_folder(path: Path) -> str | None:
    """``distrust`` of a folder, and of the link to it if it is one."""
    link = path.lstat()
    if stat.S_ISLNK(link.st_mode) and link.st_uid not in (os.geteuid(), 0):
        return f"is a link that belongs to {_name(link.st_uid)}"
    return distrust(path, path.stat())


def read_own(path: Path) -> str:
    """The text of a file that no other user can have written. Raises ``PermissionError`` with the reason for
    any other. A pipe does not block."""
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise PermissionError("it is no ordinary file")
        if why := distrust(path, status):
            raise PermissionError(f"it {why}")
        return file.read()


def _name(user: int) -> str:
    try:
        return repr(pwd.getpwuid(user).pw_name)
    except KeyError:
        return f"user {user}"


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
            f"{folder} {why}, so its files may be planted: use your own folder (a copy by `cp -r` "
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
