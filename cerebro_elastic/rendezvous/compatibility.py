"""Whether this machine may be a node of a run: it needs the same version of the package and the same code."""

from __future__ import annotations

import hashlib
from pathlib import Path

from cerebro_elastic.core.model.run import Spec
from cerebro_elastic.errors import RunError
from cerebro_elastic.version import __version__


def check_compatible(spec: Spec) -> None:
    """Check that this machine has what the run was started with. With other code, results and records may
    differ.

    Raises:
        RunError: The package's version or a file of the user's code is another.
    """
    run = spec.plan.run
    if spec.version != __version__:
        raise RunError(
            f"run {run!r} was started by cerebro-elastic {spec.version}, this is {__version__}: "
            "install the same version on all machines of a run"
        )
    root = Path(spec.root)
    if not root.is_dir():
        raise RunError(
            f"run {run!r} imports its modules from {root}, which is not on this machine: put the "
            "project there, as it is on the machine that started the run"
        )
    for name, digest in spec.code.items():
        if not (root / name).is_file() or content_digest(root / name) != digest:
            raise RunError(
                f"run {run!r} is trained with another {name} than the one in {root} on this machine: put the "
                "project there as it is on the machine that started the run"
            )


def content_digest(file: Path) -> str:
    """SHA-256 of a file's content."""
    return hashlib.sha256(file.read_bytes()).hexdigest()
