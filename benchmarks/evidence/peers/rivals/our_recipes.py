"""Our recipe for each of the rivals' benchmarks. Rows that all nodes have room for are one partition, as
`partitions: auto` has them; folds need as many as there are folds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Recipe = dict[str, Any]


def sleeping(configs: int, epochs: int = 1, model: str = "linear") -> Recipe:
    """Configs whose every unit is one batch, for which it sleeps."""
    return _recipe(
        {
            "kind": "torch",
            "model_fn": f"functions:{model}",
            "input_fn": "functions:sleeping",
            "loss": "cross_entropy",
        },
        {"source": "functions:few", "partitions": 1, "valid": 0.0, "batch_size": 8},
        {"method": "random", "num": configs, "space": {"lr": {"uniform": [0.001, 0.01]}}},
        epochs=epochs,
        replicas=2,
        limits={"tries": 100},
        objective={"metric": "train_loss"},
    )


def pausing(seconds: float) -> Recipe:
    """Two configs of 80 MB that hop between two partitions until the time is over."""
    recipe = sleeping(2, 10_000, "wide")
    recipe["data"]["partitions"] = 2
    recipe["replicas"] = 1
    recipe["search"]["budget"] = {"timeout": seconds}
    return recipe


def simple(trials: int, method: str) -> Recipe:
    """The search of ``pytorch_simple``."""
    return _recipe(
        {
            "kind": "torch",
            "model_fn": "functions:perceptron",
            "loss": "nll_loss",
            "metrics": {"accuracy": "accuracy"},
        },
        {"source": "functions:pictures", "partitions": 1, "batch_size": 128},
        {"method": method, "sampler": "tpe", "num": trials, "space_fn": "functions:suggest"},
        epochs=10,
        replicas=2,
        objective={"metric": "val_accuracy", "mode": "max"},
    )


def folds(model: str, rows: str) -> Recipe:
    """One config on eight folds: seven of eight partitions, ten rounds of trees or ten epochs on each."""
    tasks = {
        "LightGBM": {
            "kind": "boosting",
            "library": "lightgbm",
            "rounds": 10,
            "params": {"objective": "binary"},
        },
        "perceptron": {"kind": "sklearn", "estimator": "sklearn.neural_network:MLPClassifier", "classes": 2},
    }
    points = {"LightGBM": {"num_leaves": [31]}, "perceptron": {"learning_rate_init": [0.001]}}
    return _recipe(
        tasks[model],
        {"source": f"functions:{rows}", "partitions": 8, "batch_size": 200},
        {"space": points[model]},
        epochs=1 if model == "LightGBM" else 10,
        validation={"folds": 8},
        objective={"metric": "val_accuracy", "mode": "max"},
    )


def grid(alphas: list[float], method: str) -> Recipe:
    """A line of configs on five folds, each for five passes."""
    search = {"space": {"alpha": alphas}}
    if method == "asha":
        bounds = [min(alphas), max(alphas)]
        search = {"method": "asha", "num": len(alphas), "space": {"alpha": {"loguniform": bounds}}}
    return _recipe(
        {
            "kind": "sklearn",
            "estimator": "sklearn.linear_model:SGDClassifier",
            "args": {"loss": "log_loss"},
            "classes": 10,
        },
        {"source": "functions:digits", "partitions": 5, "batch_size": 64},
        search,
        epochs=5,
        validation={"folds": 5},
        objective={"metric": "val_accuracy", "mode": "max"},
    )


def _recipe(task: Recipe, data: Recipe, search: Recipe, **keys: Any) -> Recipe:
    return {"nodes": 2, "check": "off", "task": task, "data": data, "search": search, **keys}


RECIPES: Mapping[str, Callable[..., Recipe]] = {
    each.__name__: each for each in (sleeping, pausing, simple, folds, grid)
}
