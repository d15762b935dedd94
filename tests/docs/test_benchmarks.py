"""Each benchmark says how to run it. (No test asserts what they measure.)"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
SCRIPTS = [file for file in sorted(BENCHMARKS.rglob("*.py")) if "parse_args" in file.read_text()]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_a_benchmark_prints_its_options(
    script: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [str(script), "--help"])
    for folder in (BENCHMARKS, script.parent):
        monkeypatch.syspath_prepend(str(folder))
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(script), run_name="__main__")
    assert ended.value.code == 0
    assert script.name in capsys.readouterr().out
