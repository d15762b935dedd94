"""Folders that end with their process, however it ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cerebro_elastic.system.process import SCRATCH, Scratch

HOLD = (
    "import sys\n"
    "from cerebro_elastic.system.process import Scratch\n"
    "scratch = Scratch(sys.argv[1])\n"
    "(scratch.path / 'file').touch()\n"
    "print(scratch.path, flush=True)\n"
    "sys.stdin.read()\n"
)


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Made on use."""
    monkeypatch.setenv(SCRATCH, str(tmp_path / "run" / "scratch"))
    return tmp_path / "run" / "scratch"


def hold(kind: str) -> tuple[subprocess.Popen[str], Path]:
    """A process that has such a folder, and a file in it."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, kind], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def end(process: subprocess.Popen[str], kill: bool) -> None:
    if kill:
        process.kill()
    process.communicate()


def test_it_is_empty_and_ends_with_its_block(place: Path) -> None:
    with Scratch("dumps") as scratch:
        assert not list(scratch.path.iterdir())
        (scratch.path / "deep").mkdir()
        assert scratch.path.parent.parent == place
    assert not list(place.iterdir())
    scratch.close()


def test_remains_of_killed_processes_are_removed(place: Path) -> None:
    killed, left = hold("dumps")
    other, spared = hold("replay")
    alive, used = hold("dumps")
    ended, gone = hold("dumps")
    end(killed, kill=True)
    end(other, kill=True)
    end(ended, kill=False)
    try:
        assert left.exists()
        assert not gone.exists()
        being_made = place / "cerebro-dumps-new"
        being_made.mkdir()
        with Scratch("dumps") as scratch:
            kept = {scratch.path.parent, used.parent, spared.parent, being_made}
            assert set(place.iterdir()) == kept, "another kind, one in use, and one that is being made stay"
            assert (used / "file").exists()
    finally:
        end(alive, kill=True)
