"""What the evidence rests on: use is measured for whole process trees, results are kept, pages are filled."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

EVIDENCE = Path(__file__).parents[2] / "benchmarks" / "evidence"

SPENDING = """
import json, subprocess, sys, time
began = time.time()
block = bytearray(100_000_000)
burn = "import time; end = time.process_time() + 0.4\\nwhile time.process_time() < end: pass"
subprocess.Popen([sys.executable, "-c", burn])  # left behind: nobody here waits for it
time.sleep(0.6)
print(json.dumps({"score": 3, "began": began}))
"""


@pytest.fixture
def measuring(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(EVIDENCE))
    import measuring

    return measuring


def measured_apart(code: str) -> subprocess.CompletedProcess[str]:
    """Measure a command in a process of its own, for measuring waits for all its children."""
    script = f"""
import dataclasses, json, sys
sys.path.insert(0, {str(EVIDENCE)!r})
import measuring
measuring._QUIET_SECONDS = 0.0
usage = measuring.measure(measuring.Arm("it", [sys.executable, "-c", {code!r}]))
print(json.dumps(dataclasses.asdict(usage)))
"""
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)


def test_what_a_command_leaves_behind_is_measured_with_it() -> None:
    usage = json.loads(measured_apart(SPENDING).stdout)
    assert usage["said"] == {"score": 3}
    assert usage["memory_bytes"] > 100e6
    assert usage["cpu_seconds"] >= 0.4
    assert 0 < usage["start_seconds"] < usage["seconds"]


def test_a_command_that_fails_ends_the_experiment_with_its_output() -> None:
    ended = measured_apart("import sys; sys.exit('no such data')")
    assert ended.returncode == 1
    assert "no such data" in ended.stderr


def test_results_are_kept_beside_those_of_the_same_size(measuring: ModuleType, tmp_path: Path) -> None:
    file = tmp_path / "found.json"
    measuring.write(file, "reduced", {"a": 1})
    measuring.write(file, "reduced", {"b": [measuring.Usage(seconds=1.23456)]})
    assert measuring.read("found", file)["a"] == 1
    assert measuring.read("found", file)["b"][0]["seconds"] == 1.235
    measuring.write(file, "full", {"c": 3})
    assert list(json.loads(file.read_text())["results"]) == ["c"]


def test_a_page_is_filled_between_its_marks_only(
    measuring: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import pages

    monkeypatch.setattr(pages, "PAGES", tmp_path)
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- one -->\nold\n<!-- / -->\nbetween\n<!-- two -->\nkept\n<!-- / -->\n")
    pages.fill("page.md", "one", measuring.table(["a"], [[1]]))
    one = "before\n<!-- one -->\n\n| a |\n| --- |\n| 1 |\n\n<!-- / -->\n"
    assert page.read_text() == f"{one}between\n<!-- two -->\nkept\n<!-- / -->\n"
    with pytest.raises(ValueError, match="three"):
        pages.fill("page.md", "three", "")


def test_a_ratio_is_worse_only_beyond_the_noise(measuring: ModuleType) -> None:
    import check

    assert measuring.spread([3, 1, 2]) == "2.0 (1.0 to 3.0)"
    assert not check.is_worse([1.2, 1.5, 1.6], recorded=[1.0, 1.1, 1.2])
    assert check.is_worse([1.4, 1.5, 1.6], recorded=[1.0, 1.1, 1.2])
