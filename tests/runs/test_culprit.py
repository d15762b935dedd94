"""What makes batches differ is named as its user knows it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cerebro_elastic.data.reading.loader_settings import LoaderSettings
from cerebro_elastic.registry import import_object
from cerebro_elastic.runs.exactness.culprit import why_batches_differ

FILE = """
import random
COUNT, SCALE = 0, 1.0

class Draws:
    def __init__(self):
        self.rng = random.Random(1)
    def __call__(self, batch):
        return batch + self.rng.random()

draws, same = Draws(), lambda batch: batch

def counts(batch):
    global COUNT
    COUNT += 1
    return batch

def scales(batch):
    return batch * SCALE
"""


@pytest.mark.parametrize(
    ("name", "story"),
    [
        ("draws", "`transform` draws from a generator of its own, its rng"),
        ("counts", "`transform` changes their_data.COUNT from batch to batch"),
        ("scales", "`transform` reads their_data.SCALE, which is set after its import"),
        ("same", ""),
    ],
)
@pytest.mark.usefixtures("imports_as_found")
def test_what_changes_is_named(tmp_path: Path, name: str, story: str) -> None:
    (tmp_path / "their_data.py").write_text(FILE)
    loader = LoaderSettings(2, transform=import_object(f"their_data:{name}", tmp_path))

    def fit(watch: Callable[[Any], None]) -> None:
        if name == "scales":
            vars(sys.modules["their_data"])["SCALE"] = 2.0
        for number in range(4):
            assert loader.transform is not None
            watch(loader.transform(float(number)))

    found = why_batches_differ(loader, fit)
    assert found.startswith(story)
    assert bool(found) == bool(story)
