"""The basis of the evidence: use is measured for whole process trees, results are kept, pages are filled."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

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


def measuring_script(code: str, *words: str) -> list[str]:
    """A process of its own that measures a command: it waits for all its children."""
    script = f"""
import dataclasses, json, sys
sys.path.insert(0, {str(EVIDENCE)!r})
import measuring
measuring._QUIET_SECONDS = 0.0
usage = measuring.measure(measuring.Arm("it", [sys.executable, "-c", {code!r}, *{words!r}]))
print(json.dumps(dataclasses.asdict(usage)))
"""
    return [sys.executable, "-c", script]


def measured_apart(code: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(measuring_script(code, *words), capture_output=True, text=True, check=False)


def test_processes_that_a_command_leaves_behind_are_measured_with_it() -> None:
    usage = json.loads(measured_apart(SPENDING).stdout)
    assert usage["said"] == {"score": 3}
    assert usage["memory_bytes"] > 100e6
    assert usage["cpu_seconds"] >= 0.4
    assert 0 < usage["start_seconds"] < usage["seconds"]


def test_only_the_full_size_goes_into_the_record(
    measuring: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pages

    def asked(*given: str) -> Any:
        monkeypatch.setattr(sys, "argv", ["it.py", *given])
        return measuring.options(None, "it", reduced_rounds=1).parse_args()

    root = EVIDENCE.parents[1]
    assert (asked().to, asked().rounds) == (root / "build/evidence/results/it.json", 1)
    full = asked("--size", "full")
    assert (full.to, full.rounds) == (root / "benchmarks/evidence/results/it.json", 3)
    assert asked("--to", "other.json", "--rounds", "2").to == Path("other.json")
    assert asked("--to", "other.json", "--rounds", "2").rounds == 2
    assert pages.Pages.of("reduced").folder == root / "build/evidence"
    assert pages.Pages.of("full").folder == root / "docs/evidence"


def test_the_pages_show_what_is_recorded(measuring: ModuleType, tmp_path: Path) -> None:
    import figures
    from pages import DOCS, Pages

    shutil.copytree(DOCS, tmp_path / "pages")
    pages = Pages(measuring.RESULTS["full"], tmp_path / "pages")
    assert figures.show(pages, [file.stem for file in figures.results(pages)]) == []
    for page in DOCS.glob("*.md"):
        assert (pages.folder / page.name).read_text() == page.read_text(), page.name


def test_each_ratio_can_be_made_of_the_record(measuring: ModuleType) -> None:
    import check

    for name, (experiment, ratios) in check.RATIOS.items():
        recorded = ratios(measuring.read(check.RECORD / f"{experiment}.json"))
        assert recorded, name
        assert all(ratio > 0 for ratio in recorded), name
        assert not check.is_worse(recorded, recorded), name
    assert {experiment for experiment, _ in check.RATIOS.values()} == set(check.EXPERIMENTS)
