"""Who may be a node of a run."""

from __future__ import annotations

from cerebro_elastic import __version__
from cerebro_elastic.core.values import Spec
from cerebro_elastic.errors import RunError


def check_version(spec: Spec) -> None:
    """Raise ``RunError`` unless this is the version that the run was started with: results and records of
    another may differ."""
    if spec.version != __version__:
        raise RunError(
            f"the run was started by cerebro-elastic {spec.version}, this node has {__version__}: "
            "install the same version on all nodes"
        )
