"""Behaviour that all commands share."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cerebro_elastic.cli import main


# On macOS Python has no such function, on Windows no such module either.
_ELSEWHERE = """
import os, sys
del os.sched_getaffinity
if sys.argv[1] == "win32":
    sys.modules["fcntl"] = None
sys.platform = sys.argv[1]
"""


@pytest.mark.parametrize("system", ["darwin", "win32"])
@pytest.mark.parametrize(
    "use", ["from cerebro_elastic.cli import main; main()", "from cerebro_elastic import run"]
)
def test_another_system_than_linux_gets_a_sentence(system: str, use: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", _ELSEWHERE + use, system], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 1
    assert f"runs on Linux only, and this is {system}: use a Linux machine" in ended.stderr.splitlines()[-1]
    assert ("Traceback" in ended.stderr) == ("main()" not in use)


class Interrupting:
    """Ctrl-C while the command's modules are imported, which takes a second."""

    def find_spec(self, name: str, *_: object) -> None:
        if name == "cerebro_elastic.cli.app":
            raise KeyboardInterrupt


def test_ctrl_c_before_a_command_has_begun_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "cerebro_elastic.cli.app", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Interrupting(), *sys.meta_path])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 130


def test_a_full_disk_ends_a_command_with_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object, **__: object) -> None:
        with open("/dev/full", "w") as file:
            file.write("a line")

    monkeypatch.setattr("cerebro_elastic.cli.app.app", full)
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 1
    assert "the storage has no space left" in capsys.readouterr().err


def test_the_first_line_of_a_run_comes_before_what_takes_long_to_import(tmp_path: Path) -> None:
    script = """
import sys
from cerebro_elastic.cli import main
sys.argv = ["cerebro", "run", "nothing.yaml"]
heavy = {"cerebro_elastic.recipes", "yaml", "numpy", "fsspec", "torch", "urllib3", "lightning", "scipy"}

def echo(text, **_):
    print(text, sorted(heavy & set(sys.modules)))

from cerebro_elastic.cli import start
start.echo = echo
main()
"""
    ended = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ended.stdout.startswith("reading nothing.yaml []"), ended
    assert (ended.returncode, "nothing.yaml: cannot read" in ended.stderr) == (2, True)
