"""The maps name every folder, the picture of the layers is that of the imports, which run in no circle."""

from __future__ import annotations

import re
from graphlib import TopologicalSorter
from pathlib import Path

import grimp
import pytest

from support.pages import DOCS, ROOT, module_at

PACKAGE = ROOT / "cerebro_elastic"
TOP = [path.name for path in PACKAGE.iterdir() if any(path.glob("*.py"))]


def places(page: Path) -> set[str]:
    """The files and folders that the tables of a page name."""
    rows = [line for line in page.read_text().splitlines() if line.startswith("| ")]
    return {place for row in rows for place in re.findall(r"`([a-z_][\w/.]*)`", row)}


def test_the_map_names_every_folder() -> None:
    assert set(TOP) <= {place.partition("/")[0] for place in places(ROOT / "AGENTS.md")}


@pytest.mark.parametrize("page", ["AGENTS.md", "docs/design/architecture.md"])
def test_a_map_names_nothing_that_is_gone(page: str) -> None:
    ours = [place for place in places(ROOT / page) if place.partition("/")[0] in TOP]
    assert ours
    assert [place for place in ours if not ((PACKAGE / place).exists() or (ROOT / place).exists())] == []


def test_the_picture_of_the_layers_is_up_to_date() -> None:
    layers = module_at(DOCS / "layers.py")
    assert layers.PICTURE.read_text() == layers.picture(), "run: python docs/layers.py"


def test_no_files_import_each_other_in_a_circle() -> None:
    """Imports within functions and those for types alone count."""
    graph = grimp.build_graph("cerebro_elastic", exclude_type_checking_imports=False)
    files = {name: graph.find_modules_directly_imported_by(name) - {name} for name in graph.modules}
    TopologicalSorter(files).prepare()  # raises CycleError
