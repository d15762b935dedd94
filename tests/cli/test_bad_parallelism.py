"""A parallelism that cannot train the model, or contradicts the recipe, is reported before anything
starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cerebro_elastic.errors import RecipeError
from cerebro_elastic.recipes import load_recipe
from cerebro_elastic.runs.start.preflight import check

pytestmark = pytest.mark.usefixtures("imports_as_found")

MODULE = """
import torch
from torch import nn


def model(width):
    return nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, 2))


def frozen(width):
    return model(width).requires_grad_(False)


def lonely(width):
    return nn.Linear(4, 2)


def values(width):
    made = nn.Linear(4, 2)
    assert float(made.weight.sum()) < 100
    return made
"""

CASES: dict[str, tuple[str, dict[str, Any], str]] = {
    "a contradiction": (
        "model",
        {"use": "deepspeed", "stage": 2, "config": {"train_batch_size": 8}},
        "deepspeed config: train_batch_size: the recipe's batch_size is the global one; remove it",
    ),
    "no such class": (
        "model",
        {"use": "fsdp", "wrap": ["Linea"]},
        r"parallelism: fsdp x2 .*cannot train the model: .*no module of class 'Linea'; did you mean 'Linear'",
    ),
    "no blocks": (
        "lonely",
        {"use": "pipeline"},
        "pipeline x2.* cannot train the model: .*too few for 2 stages",
    ),
}


def run_check(project: Path, model: str, parallelism: Any, **task: Any) -> None:
    (project / "a_model.py").write_text(MODULE)
    functions = {"model_fn": f"a_model:{model}", "loss": "cross_entropy", "optimizer": "SGD"}
    recipe = load_recipe(
        {
            "task": task or {"kind": "torch", **functions},
            "data": {"source": "a_users_data:load"},
            "search": {"space": {"width": [8], "lr": [0.1]}},
            "node": {"ranks": 2},
            "parallelism": parallelism,
        },
        root=project,
    )
    check(recipe, [{"width": 8, "lr": 0.1}], str(project / "data"), prepare=True)


@pytest.mark.parametrize(("model", "parallelism", "said"), CASES.values(), ids=CASES)
def test_a_bad_parallelism_is_reported_before_the_run(
    model: str, parallelism: dict[str, Any], said: str, project: Path
) -> None:
    with pytest.raises(RecipeError, match=said):
        run_check(project, model, parallelism)
    assert not (project / "data").exists()


@pytest.mark.parametrize(
    ("parallelism", "trainer", "said"),
    [
        ({"use": "pipeline"}, {}, "pipeline x2.* cannot train the model: pipeline makes whole steps"),
        (
            {"use": "fsdp", "wrap": ["Linea"]},
            {},
            "fsdp x2.*: wrap: Net has no module of class 'Linea'; did you mean",
        ),
        ("ddp", {"precision": "16-true"}, "ddp x2 cannot train the model: task.trainer: precision '16-true'"),
    ],
)
def test_a_lightning_module_is_looked_at_too(
    parallelism: Any, trainer: dict[str, Any], said: str, project: Path
) -> None:
    with pytest.raises(RecipeError, match=said):
        run_check(project, "", parallelism, kind="lightning", module="a_users_net:Net", trainer=trainer)
    assert not (project / "data").exists()


def test_unforeseeable_errors_are_left_to_the_first_unit_or_the_profiles(project: Path) -> None:
    run_check(project, "values", {"use": "pipeline"})
    run_check(project, "lonely", ["single", {"use": "pipeline"}])
