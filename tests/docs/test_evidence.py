"""The basis of the evidence: use is measured for whole process trees, results are kept, pages are filled."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

EVIDENCE = Path(__file__).parents[2] / "benchmarks" / "evidence"


@pytest.fixture
def measuring(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(EVIDENCE))
    import measuring

    return measuring


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


def test_each_ratio_can_be_made_of_the_record(measuring: ModuleType) -> None:
    import check

    for name, (experiment, ratios) in check.RATIOS.items():
        recorded = ratios(measuring.read(check.RECORD / f"{experiment}.json"))
        assert recorded, name
        assert all(ratio > 0 for ratio in recorded), name
        assert not check.is_worse(recorded, recorded), name
    assert {experiment for experiment, _ in check.RATIOS.values()} == set(check.EXPERIMENTS)
