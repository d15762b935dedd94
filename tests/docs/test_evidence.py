"""The basis of the evidence: use is measured for whole process trees, results are kept, pages are filled."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil
import pytest

from support.waiting import wait_for

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

SEEN_SECONDS = 0.4
"""How long a process is there after its work, so that it has been seen."""

SERVING = f"""
import os, signal, sys, time

server = os.getpid()
ended, end = os.pipe()

def burn(seconds):
    while time.process_time() < seconds:
        pass

def keep():
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if os.fork() == 0:
        burn(0.5)
        time.sleep({SEEN_SECONDS})
        os._exit(0)
    os.wait()
    os.write(end, b".")
    while sys.argv[1] == "keepers last" and os.getppid() == server:
        time.sleep(0.05)
    if sys.argv[1] == "keepers last":
        time.sleep({SEEN_SECONDS})
    os._exit(0)

signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for keepers
for _ in range(4):
    if os.fork() == 0:
        keep()
for _ in range(4):
    os.read(ended, 1)
time.sleep({SEEN_SECONDS})
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


@pytest.mark.parametrize("order", ["server last", "keepers last"])
def test_a_process_that_nobody_waits_for_is_counted_once(order: str) -> None:
    """Keepers end with what they have waited for, or outlive the server: then they are waited for."""
    usage = json.loads(measured_apart(SERVING, order).stdout)
    assert usage["cpu_seconds"] == pytest.approx(4 * 0.5, abs=0.5)


def test_use_is_kept_until_the_parent_was_read_behind_it(measuring: ModuleType) -> None:
    """A worker (3) has ended, and then its keeper (2) while it was read."""
    lost = {2: measuring.Seen(1, 0.1, 0), 3: measuring.Seen(2, 7.0, 0)}
    measuring.forget_children(lost, listed={2}, read=set())
    assert lost.keys() == {2, 3}
    measuring.forget_children(lost, listed={2}, read={2})
    assert lost.keys() == {2}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_experiment_that_is_ended_leaves_nothing_behind(tmp_path: Path, number: signal.Signals) -> None:
    """Neither a command nor what it has started in a session of its own."""
    mark = tmp_path / "pids"
    sleep = [sys.executable, "-c", "import time; time.sleep(99)"]
    starting = f"""
import os, subprocess
other = subprocess.Popen({sleep}, start_new_session=True)
open({str(mark) + "~"!r}, "w").write(f"{{os.getpid()}} {{other.pid}}")
os.rename({str(mark) + "~"!r}, {str(mark)!r})
other.wait()
"""
    with subprocess.Popen(
        measuring_script(starting), stderr=subprocess.DEVNULL, start_new_session=True
    ) as process:
        wait_for(mark.exists, "a process that started another")
        os.killpg(process.pid, number)  # as a terminal does
        assert process.wait(60) != 0
    assert not any(map(psutil.pid_exists, map(int, mark.read_text().split())))


def test_the_clock_runs_between_the_times_that_a_command_says() -> None:
    said = "import json, time; now = time.time()\ntimes = dict(ready=now, began=now + 1, done=now + 3)"
    usage = json.loads(measured_apart(f"{said}\nprint(json.dumps(times))").stdout)
    assert (usage["seconds"], usage["start_seconds"]) == (pytest.approx(3), pytest.approx(1))
    assert not usage["said"]


def test_a_command_that_fails_ends_the_experiment_with_its_output() -> None:
    ended = measured_apart("import sys; sys.exit('no such data')")
    assert ended.returncode == 1
    assert "no such data" in ended.stderr


def test_results_are_kept_beside_those_of_the_same_size(measuring: ModuleType, tmp_path: Path) -> None:
    file = tmp_path / "results" / "found.json"
    measuring.write(file, "reduced", {"a": 1})
    measuring.write(file, "reduced", {"b": [measuring.Usage(seconds=1.23456)]})
    assert measuring.read(file)["a"] == 1
    assert measuring.read(file)["b"][0]["seconds"] == 1.235
    measuring.write(file, "full", {"c": 3})
    assert list(json.loads(file.read_text())["results"]) == ["c"]


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


def test_a_page_is_filled_between_its_marks_only(measuring: ModuleType, tmp_path: Path) -> None:
    from pages import Pages

    page = tmp_path / "page.md"
    page.write_text("before\n<!-- one -->\nold\n<!-- / -->\nbetween\n<!-- two -->\nkept\n<!-- / -->\n")
    Pages(tmp_path, tmp_path).fill("page.md", "one", measuring.table(["a"], [[1]]))
    one = "before\n<!-- one -->\n\n| a |\n| --- |\n| 1 |\n\n<!-- / -->\n"
    assert page.read_text() == f"{one}between\n<!-- two -->\nkept\n<!-- / -->\n"
    with pytest.raises(ValueError, match="three"):
        Pages(tmp_path, tmp_path).fill("page.md", "three", "")


def test_the_pages_show_what_is_recorded(measuring: ModuleType, tmp_path: Path) -> None:
    import figures
    from pages import DOCS, Pages

    shutil.copytree(DOCS, tmp_path / "pages")
    pages = Pages(measuring.RESULTS["full"], tmp_path / "pages")
    assert figures.show(pages, [file.stem for file in figures.results(pages)]) == []
    for page in DOCS.glob("*.md"):
        assert (pages.folder / page.name).read_text() == page.read_text(), page.name


@pytest.mark.usefixtures("measuring")
def test_each_rivals_benchmark_has_scripts_recipes_and_a_place_on_its_page(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import rivals
    from pages import DOCS, between_marks

    from cerebro_elastic import load_recipe

    monkeypatch.syspath_prepend(str(rivals.SCRIPTS))
    from our_recipes import RECIPES

    page = (DOCS / "rivals.md").read_text()
    for name, benchmark in rivals.BENCHMARKS.items():
        assert between_marks(page, "", name) is not None, name
        for arm in benchmark.arms(benchmark.full) + benchmark.arms(benchmark.reduced):
            _, script, *words = arm.command
            assert Path(script).is_file(), arm.name
            if Path(script).name == "ours.py":
                load_recipe(RECIPES[words[0]](**json.loads(words[1])), root=rivals.SCRIPTS)


@pytest.mark.usefixtures("measuring")
def test_hosts_read_all_rows_of_a_job_once_between_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From partitions at a URL; of a job that trains a share of the rows, a share of each partition."""
    import numpy as np

    from cerebro_elastic import prepare

    monkeypatch.syspath_prepend(str(EVIDENCE / "peers"))
    import training

    columns = {"x": np.arange(20), "y": np.arange(20) * 2}
    manifest = prepare(lambda: {"train": columns, "valid": columns}, str(tmp_path), partitions=4)

    def held_by(number: int, share: int) -> list[list[int]]:
        job = training.Job(
            tmp_path, None, 1, [], ["x", "y"], url=str(tmp_path), partitions=manifest.rows, share=share
        )
        (x, y), (valid, _) = job.part(number, 2)
        assert (y == 2 * x).all()
        return [x.tolist(), valid.tolist()]

    for one, other in zip(held_by(0, 1), held_by(1, 1), strict=True):
        assert sorted(one + other) == list(range(20))
    assert [len(rows) for rows in held_by(1, 2)] == [4, 5]


def test_a_ratio_is_worse_only_beyond_the_noise(measuring: ModuleType) -> None:
    import check

    assert measuring.spread([3, 1, 2]) == "2.0 (1.0 to 3.0)"
    assert not check.is_worse([1.2, 1.5, 1.6], recorded=[1.0, 1.1, 1.2])
    assert check.is_worse([1.4, 1.5, 1.6], recorded=[1.0, 1.1, 1.2])


def test_each_ratio_can_be_made_of_the_record(measuring: ModuleType) -> None:
    import check

    for name, (experiment, ratios) in check.RATIOS.items():
        recorded = ratios(measuring.read(check.RECORD / f"{experiment}.json"))
        assert recorded, name
        assert all(ratio > 0 for ratio in recorded), name
        assert not check.is_worse(recorded, recorded), name
    assert {experiment for experiment, _ in check.RATIOS.values()} == set(check.EXPERIMENTS)
