"""The shipped GPT on two ranks, live: each config is tried by all choices, then trained by the fastest."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import cerebro_elastic
from cerebro_elastic.core.model.events import ProfileDone
from cerebro_elastic.recipes import load_recipe
from cerebro_elastic.runs.results.verify import verify

RECIPES = Path(__file__).parents[2] / "recipes"


@pytest.fixture(autouse=True)
def imports_as_found() -> Iterator[None]:
    path = list(sys.path)
    yield
    sys.path[:] = path
    sys.modules.pop("tiny_gpt", None)


@pytest.mark.cluster
def test_a_node_of_two_ranks(tmp_path: Path) -> None:
    recipe: dict[str, Any] = yaml.safe_load((RECIPES / "tiny_gpt.yaml").read_text())
    del recipe["gang"]
    recipe |= {
        "nodes": 1,
        "node": {"ranks": 2},
        "parallelism": ["fsdp", {"use": "pipeline", "microbatches": 2}],
        "search": {"space": {"lr": [0.003], "width": [16]}},
    }
    recipe["data"] |= {"partitions": 2, "batch_size": 256}
    recipe["task"]["args"] = {"depth": 2}
    done = cerebro_elastic.run(load_recipe({**recipe, "name": "gpt"}, root=RECIPES), home=tmp_path)

    tried = {
        str(event.profile.strategy): event.profile.refusal
        for event in done.events
        if isinstance(event, ProfileDone)
    }
    assert tried == {"fsdp x2": None, "pipeline x2 microbatches=2": None}
    (config,) = done.leaderboard
    assert {str(visit.strategy) for visit in config.visits} <= tried.keys()
    assert config.best is not None
    assert config.best < 5.0, "better than guessing, which is log 256 = 5.5 nats a byte"
    assert not verify(done)
