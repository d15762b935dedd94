"""``cerebro ui``, up to where it would serve."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.commands import Cerebro


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--host", "0.0.0.0"], "--host 0.0.0.0 lets other machines reach the page: give a secret of yours"),
        (["--token", "short"], "the token has 5 characters: give 12 or more"),
        (["digit"], "there is no run 'digit' in"),
        (["recipe.yaml"], "recipe.yaml is a recipe, and this command takes a run"),
        (["--port", "70000"], "less than or equal to 65535"),
        (["--home", "nowhere"], "there is no folder of runs"),
        (["--etcd", "nowhere"], "nowhere"),
    ],
)
def test_wrong_arguments_are_reported(
    project: Path, cerebro: Cerebro, words: list[str], message: str
) -> None:
    said = cerebro("ui", *words)
    assert said.code in (1, 2)
    assert message in " ".join(said.err.replace("│", " ").split())
    assert not (project / "runs").exists()
