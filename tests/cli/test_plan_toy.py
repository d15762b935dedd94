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


def test_a_seed_is_a_forecast(toy: Cerebro, project: Path) -> None:
    (project / "faults").write_text("# a bad day\nkill node-1 at 35 for 20\n\nslow node-0 at 10 by 2\n")
    words = ("--nodes", "2", "--noise", "0.3", "--faults", "faults", "--json")
    assert parsed(toy(*words)) == parsed(toy(*words))
    assert parsed(toy(*words, "--seed", "1")) != parsed(toy(*words))


def test_seconds_from_a_table(toy: Cerebro, project: Path) -> None:
    (project / "times.json").write_text('{"c0000": {"node-0": 5, "*": 5}, "*": 1}')
    answer = parsed(toy("--nodes", "2", "--toy", "times.json", "--json"))
    assert answer["seconds"] == pytest.approx(60.0)  # of the longest config


def test_a_report(toy: Cerebro, project: Path) -> None:
    said = toy("--nodes", "2", "--report", "page.html")
    assert said.code == 0, said.err
    assert "report: page.html" in said.out
    assert "node-1" in (project / "page.html").read_text()


@pytest.mark.parametrize(
    ("faults", "message"),
    [
        ("kill node-7 at 3", "a node 'node-7' that the run does not have; did you mean 'node-1'?"),
        (
            "kill node-1 in 3",
            "line 1 of the faults, 'kill node-1 in 3', is not like `kill NODE at 30 for 10`",
        ),
        (
            "\nkil node-1 at 3",
            "line 2 of the faults, 'kil node-1 at 3': nothing is called 'kil'; did you mean",
        ),
        ("slow node-1 at 3", "`slow`, and nothing else, says `by` how much"),
        ("kill node-1 at 3 by 2", "`slow`, and nothing else, says `by` how much"),
        ("crash node-1 at 3 for 2", "only kill, drain, slow last `for` some seconds"),
        ("kill node-1 at 3 within 2", "only `drain` says `within` how many seconds"),
        (f"kill node-1 at 1{'0' * 400}", "at is inf; it must be a finite number"),
        (f"kill node-1 at 1 for 1{'0' * 30}", "seconds is 1e+30; it must be a finite number"),
        ("slow node-1 at 1 by 0", "`slow`, and nothing else, says `by` how much, a number above 0"),
        ("drain leader at 3", "the leader decides, and is no node: it can be killed, and nothing else"),
    ],
)
def test_wrong_faults(toy: Cerebro, project: Path, faults: str, message: str) -> None:
    (project / "faults").write_text(faults)
    said = toy("--nodes", "2", "--faults", "faults")
    assert said.code == 2
    assert message in " ".join(said.err.split())


@pytest.mark.parametrize(
    ("seconds", "message"),
    [
        ("0", "--toy is 0: a unit takes a number above 0"),
        ("nan", "--toy is nan"),
        ("absent.json", "absent.json cannot be read as JSON"),
        ("list.json", "list.json is no table"),
        ("negative.json", "negative.json, c0000, node-0: -1 are no seconds"),
        ("empty.json", "empty.json has no seconds"),
        ("1e308", "--toy is 1e308: a unit takes a number above 0, at most 1e+12"),
        ("-inf", "--toy is -inf"),
        ("text.json", "text.json, c0000, *: '1' are no seconds"),
        ("truth.json", "truth.json, *, *: True are no seconds"),
        ("huge.json", "are no seconds; give a number above 0, at most 1e+12"),
        ("deep.json", "deep.json cannot be read as JSON"),
    ],
)
def test_wrong_seconds(toy: Cerebro, project: Path, seconds: str, message: str) -> None:
    (project / "list.json").write_text("[]")
    (project / "negative.json").write_text('{"c0000": {"node-0": -1}}')
    (project / "empty.json").write_text("{}")
    (project / "text.json").write_text('{"c0000": "1"}')
    (project / "truth.json").write_text('{"*": true}')
    (project / "huge.json").write_text(f'{{"*": 1{"0" * 400}}}')
    (project / "deep.json").write_text("[" * 100_000)
    said = toy("--toy", seconds)
    assert said.code == 2
    assert message in " ".join(said.err.split())


def test_a_stalled_run_is_reported(toy: Cerebro, project: Path) -> None:
    (project / "faults").write_text("kill node-0 at 15")
    said = toy("--nodes", "1", "--faults", "faults")
    assert said.code == 1
    assert "the run stands still" in said.err


def test_a_run_that_is_not_there(toy: Cerebro) -> None:
    said = toy("--from", "nobody")
    assert said.code == 1
    assert "no run 'nobody'" in said.err
