"""Whether a rank of the node has died, or left."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cerebro_elastic.system.forkserver import STAND_IN
from cerebro_elastic.worker.leaving import Siblings

COME = """
import sys
from pathlib import Path
from cerebro_elastic.worker.leaving import Siblings
Siblings(Path(sys.argv[1]), 1).come()
"""


def test_a_rank_without_its_stand_in_has_died(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its keeper kills it, in a moment."""
    with subprocess.Popen(["sleep", "60"]) as stand_in:
        monkeypatch.setenv(STAND_IN, str(stand_in.pid))
        Siblings(tmp_path, 1).come()
        assert not Siblings(tmp_path, 0).died()
        stand_in.kill()
    assert Siblings(tmp_path, 0).died()


def test_a_file_that_is_just_being_written_is_a_living_rank(tmp_path: Path) -> None:
    (tmp_path / "1.pid").touch()
    assert not Siblings(tmp_path, 0).died()


def test_death_and_leaving_are_distinguished(tmp_path: Path) -> None:
    one, other = Siblings(tmp_path, 0), Siblings(tmp_path, 1)
    one.come()
    assert not one.died()
    other.come()
    assert not one.died()
    other.leave()
    assert not one.died()

    subprocess.run([sys.executable, "-c", COME, str(tmp_path)], check=True)
    assert one.died()
    assert not other.died(), "it does not count itself"
