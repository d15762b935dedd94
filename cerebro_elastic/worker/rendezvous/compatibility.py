"""Whether this machine may be a node of a run: it needs the same version of the package and the same code."""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from cerebro_elastic.core.model.run import Spec
from cerebro_elastic.errors import RunError
from cerebro_elastic.registry import users_file
from cerebro_elastic.system.files import here
from cerebro_elastic.system.source_code import code_digest, files_in
from cerebro_elastic.system.version import __version__

_HOME = Path(__file__).parents[2]
PACKAGE = "cerebro-elastic"
"""The name in ``Spec.code`` of the digest of the package itself and its plugins. Two commits may have one
version."""


def check_compatible(spec: Spec, *, package: bool = False) -> None:
    """Check that this machine has the run's code and files. With other code, results and records may differ.
    Checking the files of the ``package``, too, takes some hundredths of a second: once on each machine.

    Raises:
        RunError: The package's version or code, or a file of the user's code is another.
    """
    run = spec.plan.run
    if spec.version != __version__:
        raise RunError(
            f"run {run!r} was started by cerebro-elastic {spec.version}, this is {__version__}: "
            "install the same version on all machines of a run"
        )
    root = Path(here(spec.root))
    if not root.is_dir():
        raise RunError(
            f"run {run!r} imports its modules from {root}, which is not on this machine: put the "
            "project there, as it is on the machine that started the run"
        )
    changed = changed_code(spec, package=package)
    if PACKAGE in changed:
        raise RunError(
            f"run {run!r} was started by other code of cerebro-elastic {__version__} than is installed in "
            f"{_HOME} here: install the same commit on all machines of a run"
        )
    for name in changed:
        file = users_file(name, root)
        if name not in spec.code:
            what = f"without {name}, and {file} is on this machine: remove it"
        elif file is None:
            what = f"with {name}, which is not on this machine, seen from {root}: copy that"
        else:
            what = f"with another {name} than {file} on this machine: copy that"
        where = "" if name not in spec.code else " of the machine that started the run"
        raise RunError(f"run {run!r} is trained {what}{where}")


def changed_code(spec: Spec, *, package: bool = True) -> list[str]:
    """The names in ``Spec.code`` that differ or are missing here, and of additional files in its folders
    here; ``PACKAGE`` is checked on request. A module that is installed elsewhere, outside the project, is not
    looked at: it may have another path here."""
    root = Path(here(spec.root))

    def differs(name: str, digest: str) -> bool:
        if name.endswith("/"):
            return False
        if name == PACKAGE:
            return package and package_digest() != digest
        file = users_file(name, root)
        if file is None:
            return not (name.endswith(".py") and os.path.isabs(name))
        return code_digest(file) != digest

    folders = [row for row in spec.code.items() if row[0].endswith("/")]
    found = {name for folder, patterns in folders for name, _ in files_in(folder, patterns, root)}
    changed = [name for name, digest in spec.code.items() if differs(name, digest)]
    return [*changed, *sorted(found - spec.code.keys())]


@functools.cache
def package_digest() -> str:
    """SHA-256 of all modules of the package and its plugins, with their names."""
    sha256 = hashlib.sha256()
    for name, file in sorted(_modules()):
        sha256.update(f"{name} {hashlib.sha256(file.read_bytes()).hexdigest()}\n".encode())
    return sha256.hexdigest()


def _modules() -> Iterator[tuple[str, Path]]:
    beside = _HOME.parent
    plugins = beside / "plugins" if (beside / "plugins").is_dir() else beside  # in a checkout, or a wheel
    for top in (_HOME, *plugins.glob("cerebro_*/")):
        for folder, _, files in os.walk(top):
            for file in files:
                if file.endswith(".py"):
                    path = Path(folder, file)
                    yield str(path.relative_to(top.parent)), path
