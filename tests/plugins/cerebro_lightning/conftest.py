"""``lightning_harness`` is importable, and so are the ``zoos``: modules and callbacks as users write them.

They have a folder of their own, for every file of a user's project is looked into around each unit.
"""

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE / "zoos")]


@pytest.fixture(autouse=True)
def _as_it_was(monkeypatch):
    """An ordinary fit leaves its seed in the environment; a test does not."""
    for name in ("PL_GLOBAL_SEED", "PL_SEED_WORKERS"):
        monkeypatch.setenv(name, "0")
