"""Constraints: allowed expressions, their meaning, and that nothing else can run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cerebro_elastic.errors import RecipeError
from cerebro_elastic.search.constraints import Constraint, constraint_of
from support.builders import recipe

POINT: dict[str, Any] = {"lr": 0.1, "width": 32, "act": "relu", "layers": [64, 32], "bias": True}


pytestmark = pytest.mark.usefixtures("imports_as_found")


def constraint(*texts: str, root: Path | None = None) -> Constraint:
    space = {name: [value] for name, value in POINT.items()}
    return constraint_of(recipe({"space": space, "constraints": list(texts)}, root))


@pytest.mark.parametrize(
    "text",
    [
        "lr * width < 4",
        "0 < lr <= 0.1 < width",
        "width % 16 == 0 and width // 16 == 2 and width ** 2 == 1024",
        "act in ['relu', 'gelu'] or lr > 1",
        "act not in ('tanh', 'sigmoid')",
        "not (lr > 1) and bias",
        "-lr < +lr",
        "layers == [64, 32] and len(layers) == 2 and sum(layers) == 96",
        "max(lr, 0.5) == 0.5 and min(layers) == 32 and abs(-width) == width",
        "bias != False",
    ],
)
def test_expressions_mean_what_python_means(text: str) -> None:
    assert constraint(text)(POINT) is True
    assert eval(text, {}, dict(POINT)) is True
    assert constraint(f"not ({text})")(POINT) is False


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("lr * widht < 4", "'widht' is not in the space; did you mean 'width'?"),
        ("lr <", "not an expression"),
        ("__import__('os').system('true')", "Call is not allowed"),
        ("open('x') == 1", "unknown function 'open'; choices: abs, len, max, min, sum"),
        ("act.__class__ == 1", "Attribute is not allowed"),
        ("(lambda: 1)() == 1", "Call is not allowed"),
        ("width & 1 == 0", "BitAnd is not allowed"),
        ("+".join(["lr"] * 5000) + " > 1", "too deeply nested"),
        ("(" * 500 + "lr" + ")" * 500 + " > 1", "too many nested parentheses"),
    ],
)
def test_anything_else_is_refused(text: str, words: str) -> None:
    with pytest.raises(RecipeError, match="constraint") as caught:
        constraint(text)
    assert words in str(caught.value)


def test_users_functions_take_hyper_parameters_by_name(tmp_path: Path) -> None:
    (tmp_path / "rules_of_mine.py").write_text(
        "def small(lr, width, other=1): return lr * width < 4\n"
        "def needs(depth): return True\n"
        "def broken(lr): raise KeyError('x')\n"
    )
    assert constraint("rules_of_mine:small", root=tmp_path)(POINT)
    assert not constraint("rules_of_mine:small", root=tmp_path)({**POINT, "width": 64})
    with pytest.raises(RecipeError, match="it takes 'depth', which is not in the space"):
        constraint("rules_of_mine:needs", root=tmp_path)
    with pytest.raises(RecipeError, match="KeyError"):
        constraint("rules_of_mine:broken", root=tmp_path)(POINT)
    with pytest.raises(RecipeError, match="no module 'rules_of_yours'"):
        constraint("rules_of_yours:f", root=tmp_path)
