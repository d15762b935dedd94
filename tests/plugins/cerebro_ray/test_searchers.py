"""Ray Tune's searchers as samplers, and its search spaces in recipes."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from ray import tune

from cerebro_elastic.core.model.configs import Status
from cerebro_elastic.core.model.interfaces import ConfigView
from cerebro_elastic.core.model.state import Point
from cerebro_elastic.errors import RecipeError
from cerebro_elastic.recipes import Recipe, load_recipe
from cerebro_elastic.registry import import_object
from cerebro_ray.searchers import TuneSampler

ROOT = Path(__file__).parent
SPACE = {
    "lr": {"loguniform": [1e-3, 1]},
    "width": {"int": [4, 64]},
    "drop": {"uniform": [0, 0.5]},
    "layers": [[8], [8, 8], None],
}


def recipe(options: dict[str, Any], space: Any = SPACE, root: Path | None = None, **search: Any) -> Recipe:
    return load_recipe(
        {
            "epochs": 4,
            "task": {"kind": "torch", "model_fn": "m:f", "loss": "mse_loss"},
            "data": {"source": "x.npz", "partitions": 2},
            "search": {"method": "tune", "num": 9, "space": space, "options": options, **search},
            "objective": {"metric": "val_acc", "mode": "max"},
        },
        root=root,
    )


def sampler(options: dict[str, Any], **more: Any) -> TuneSampler:
    resolved = recipe(options, **more)
    return TuneSampler(resolved, resolved.search.options)  # type: ignore[attr-defined]


def view(number: int, hparams: Any, status: Status, *values: float) -> ConfigView:
    curve = [Point(2 * n, n, {"val_acc": value}, ends=True) for n, value in enumerate(values, 1)]
    return ConfigView(f"c{number:04d}", hparams, status, len(values), 2 * len(values), curve, idle=True)


def known(points: list[Any]) -> list[ConfigView]:
    """Configs that are the better, the nearer their rate is to 0.1."""
    return [
        view(n, point, Status.FINISHED, 1 - abs(math.log10(point["lr"]) + 1))
        for n, point in enumerate(points)
    ]


def test_hyperopt_learns_and_what_it_proposes_follows_from_seed_and_history() -> None:
    asked = sampler({"searcher": "hyperopt", "n_initial_points": 6})
    points: list[Any] = []
    for _ in range(20):
        sample = asked.sample(known(points))
        assert sample is not None
        assert isinstance(sample.hparams["width"], int)
        assert sample.hparams["layers"] in SPACE["layers"]
        points.append(sample.hparams)
    again = sampler({"searcher": "hyperopt", "n_initial_points": 6})
    assert again.sample(known(points[:13])).hparams == points[13]  # type: ignore[union-attr]
    guided = [abs(math.log10(point["lr"]) + 1) for point in points[6:]]
    drawn = [abs(math.log10(point["lr"]) + 1) for point in points[:6]]
    assert sum(guided) / len(guided) < sum(drawn) / len(drawn)


def test_a_searcher_of_the_user_sees_what_became_of_each_config() -> None:
    point = {"lr": 0.1, "width": 8, "drop": 0.0, "layers": None}
    outside = {**point, "lr": 7.0}
    configs = [
        view(0, point, Status.FINISHED, 0.5, 0.75, 0.7),
        view(1, {**point, "width": 9}, Status.STOPPED, 0.25),
        view(2, {**point, "width": 10}, Status.LIVE, 0.6),
        view(3, {**point, "width": 11}, Status.FAILED, 0.6),
        view(4, {**point, "width": 12}, Status.FINISHED, math.nan),
        view(5, outside, Status.FINISHED, 0.9),
    ]
    resolved = recipe({"searcher": "tune_zoo:Recorder"}, root=ROOT)
    asked = TuneSampler(resolved, {"searcher": "tune_zoo:Recorder"})
    samples = [asked.sample(configs[:count]) for count in range(3, 7)]
    proposals = [sample.hparams for sample in samples if sample is not None]
    assert proposals, "some of the seeds are odd"
    assert all(p == {"lr": 0.5, "width": 7, "drop": 0.1, "layers": [8, 8]} for p in proposals)
    asked._suggest(configs[:5], 1)
    assert import_object("tune_zoo:LOG", ROOT) == [
        ("loss", "min", ["drop", "layers", "lr", "width"]),
        ("0", -0.75, False),
        ("1", -0.25, False),
        ("3", None, True),
        ("4", None, True),
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "choices: ax, bayesopt, bohb, hebo, hyperopt"),
        ({"searcher": "hyperop"}, "did you mean 'hyperopt'"),
        ({"searcher": "optuna"}, "method: tpe"),
        ({"searcher": "ax"}, "none of the arguments seed"),
        ({"searcher": "hyperopt", "metric": "val_acc"}, "has no option 'metric'"),
        ({"searcher": "hyperopt", "n_initial_points": "x"}, "hyperopt of Ray Tune: '<' not supported"),
        ({"searcher": "tune_zoo:Forgetful"}, "no argument points_to_evaluate"),
    ],
)
def test_an_unusable_searcher_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError) as caught:
        sampler(options, root=ROOT)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("domain", "ours"),
    [
        (tune.uniform(0, 0.5), {"uniform": [0, 0.5]}),
        (tune.loguniform(1e-4, 1e-1), {"loguniform": [1e-4, 1e-1]}),
        (tune.randint(16, 64), {"int": [16, 63]}),
        (tune.choice([1, "a", [2]]), [1, "a", [2]]),
        (tune.grid_search([0.1, 0.2]), [0.1, 0.2]),
        (tune.quniform(0.1, 0.5, 0.1), [0.1, 0.2, 0.3, 0.4, 0.5]),
        (tune.qrandint(5, 32, 8), [8, 16, 24, 32]),
        (tune.qrandint(1, 4, 1), [1, 2, 3]),
    ],
)
def test_domains_of_ray_tune(domain: Any, ours: Any) -> None:
    converted = recipe({"searcher": "hyperopt"}, space={"x": domain}).search.space
    assert converted == recipe({"searcher": "hyperopt"}, space={"x": ours}).search.space


@pytest.mark.parametrize(
    ("domain", "message"),
    [
        (tune.sample_from(lambda _: 1), "space_fn"),
        (tune.randn(), "Normal"),
        (tune.qloguniform(0.1, 1, 0.1), "in steps with the distribution LogUniform"),
        (tune.quniform(0, 1, 1e-6), "1000001 values"),
    ],
)
def test_domains_without_a_counterpart_are_refused(domain: Any, message: str) -> None:
    with pytest.raises(RecipeError, match=r"search\.space\.x") as caught:
        recipe({"searcher": "hyperopt"}, space={"x": domain})
    assert message in str(caught.value)
