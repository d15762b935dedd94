"""Who may be a node of a run."""

from __future__ import annotations

import hashlib
from pathlib import Path

from cerebro_elastic.core.model.run import Spec
from cerebro_elastic.errors import RunError
from cerebro_elastic.version import __version__


def check_admission(spec: Spec) -> None:
    """Raise ``RunError`` unless this machine has what the run was started with: the same version of this
    package and the same code of the user's. With another, results and records may differ."""
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
