"""The project on a host: a copy of the working directory that Ray has unpacked.

Ray's own copy has a path that changes with each cluster and each change of the project, and Ray deletes it. A
run's record names the folder of its modules, also for hosts that join later and for ``replay``.
"""

from __future__ import annotations

import fcntl
import shutil
from pathlib import Path

_PACKAGE = ".ray-package"
"""The file that names the package of Ray that was copied: the name contains a digest of the files."""


def install(unpacked: Path, home: Path, run: str) -> Path:
    """Copy the project to ``<home>/<run>.project``, unless it is there. Other hosts of this machine may do
    the same at once. Returns the folder."""
    home.mkdir(parents=True, exist_ok=True)
    target, new, old = (home / f"{run}.project{suffix}" for suffix in ("", ".new", ".old"))
    with open(home / f"{run}.project.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        package = target / _PACKAGE
        if package.exists() and package.read_text() == unpacked.name:
            return target
        shutil.rmtree(new, ignore_errors=True)
        shutil.copytree(unpacked, new, symlinks=True)
        (new / _PACKAGE).write_text(unpacked.name)
        shutil.rmtree(old, ignore_errors=True)
        if target.exists():
            target.rename(old)
        new.rename(target)
        shutil.rmtree(old, ignore_errors=True)
    return target
