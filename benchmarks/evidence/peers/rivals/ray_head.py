"""Ray with two slots on this machine, for the arms that use Ray Tune."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SLOTS = 2
os.environ |= {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AUTH_MODE": "disabled",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]),
}


@contextmanager
def storage() -> Iterator[str]:
    """Ray, and the folder for its results, while the block runs."""
    import ray

    with tempfile.TemporaryDirectory(prefix="rt-") as folder:
        ray.init(num_cpus=SLOTS, include_dashboard=False, _temp_dir=f"{folder}/ray", log_to_driver=False)
        yield f"{folder}/tune"
        ray.shutdown()
