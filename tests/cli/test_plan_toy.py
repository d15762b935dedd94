"""``cerebro plan --toy``, as users type it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Cerebro = Callable[..., Any]


@pytest.fixture
def toy(cerebro: Cerebro, project: Path) -> Cerebro:
    """``toy("--nodes", "2")``: units of 10 s, for a recipe of 4 configs, 3 epochs and 4 partitions."""
    assert (project / "recipe.yaml").is_file()
    seconds = ("--toy", "10")
    return lambda *words: cerebro(
        "plan", "recipe.yaml", *(words if {"--toy", "--from"} & {*words} else (*seconds, *words))
    )


def parsed(said: Any) -> dict[str, Any]:
    assert said.code == 0, said.err
    return dict(json.loads(said.out)["simulated"])


def test_for_machines(toy: Cerebro) -> None:
    answer = parsed(toy("--nodes", "4", "--json"))
    assert (answer["seconds"], answer["idle"], answer["visits"]) == (120.0, 0.0, 48)
    assert answer["configs"]["finished"] == 4
    assert {name: node["training"] for name, node in answer["nodes"].items()} == {
        f"node-{i}": 120.0 for i in range(4)
    }


def test_for_people(toy: Cerebro) -> None:
    said = toy("--nodes", "2")
    assert said.code == 0
    assert "(240.0 s) for 48 units; nodes idle 0.0%; configs: 4 finished" in said.out
    assert "node-1" in said.out


def test_seconds_from_a_table(toy: Cerebro, project: Path) -> None:
    (project / "times.json").write_text('{"c0000": {"node-0": 5, "*": 5}, "*": 1}')
    answer = parsed(toy("--nodes", "2", "--toy", "times.json", "--json"))
    assert answer["seconds"] == pytest.approx(60.0)  # of the longest config


def test_a_report(toy: Cerebro, project: Path) -> None:
    said = toy("--nodes", "2", "--report", "page.html")
    assert said.code == 0, said.err
    assert "report: page.html" in said.out
    assert "node-1" in (project / "page.html").read_text()


def test_a_stalled_run_is_reported(toy: Cerebro, project: Path) -> None:
    (project / "faults").write_text("kill node-0 at 15")
    said = toy("--nodes", "1", "--faults", "faults")
    assert said.code == 1
    assert "the run stands still" in said.err
