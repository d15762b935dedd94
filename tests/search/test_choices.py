"""Choices of any JSON values, under each search: samplers know them again in the configs of the record."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from cerebro_elastic.core.model.configs import HParams, Status
from cerebro_elastic.core.model.interfaces import ConfigView
from cerebro_elastic.core.model.state import Point
from cerebro_elastic.recipes import Domain, Recipe
from cerebro_elastic.registry import load
from cerebro_elastic.search.optunas import Space
from cerebro_elastic.search.sampling import key, perturbed
from support import builders

CHOICES: dict[str, list[Any]] = {
    "mappings": [{"b": 1, "a": {"d": 2, "c": 3}}, {"b": 2, "a": None}, {}],
    "nested lists": [[], [[1], [2, [3]]], [{"z": 1, "y": 2}]],
    "mixed": [None, "null", "adam", 3, 0.5, [1], {"b": 1, "a": 2}],
    "numbers that are equal": [1, 1.0, True, 0, False, "1", "true"],
    "equal within": [[1], [1.0], [True], {"a": 1}, {"a": 1.0}],
    "text of a mapping": [{"a": 1}, '{"a": 1}'],
    "one": [{"b": 1, "a": 2}],
}
SAMPLERS = ["random", "tpe", "tune"]


def recipe(choices: list[Any], method: str) -> Recipe:
    options: dict[str, Any] = {
        "tpe": {"n_startup_trials": 2},
        "gp": {"n_startup_trials": 2},
        "nsga2": {"population_size": 2},
        "tune": {"searcher": "hyperopt", "n_initial_points": 2},
    }.get(method, {})
    search: dict[str, Any] = {"method": method, "num": 5, **({"options": options} if options else {})}
    search["space"] = {"x": choices, "lr": {"uniform": [0, 1]}}
    return builders.recipe(search, epochs=2)


def recorded(number: int, hparams: HParams, **fields: Any) -> ConfigView:
    """A config as the record brings it: mappings are in the order of their keys."""
    read = json.loads(json.dumps(hparams, sort_keys=True))
    curve = [Point(2, 1, {"val_loss": float(number)}, ends=True)]
    return replace(ConfigView(f"c{number:04d}", read, Status.FINISHED, 1, 2, curve), **fields)


@pytest.mark.parametrize(
    ("kind", "method"), [*product(CHOICES, SAMPLERS), ("mixed", "gp"), ("mixed", "qmc"), ("mixed", "nsga2")]
)
def test_each_point_is_of_the_space_and_is_found_again(kind: str, method: str) -> None:
    choices = CHOICES[kind]
    chosen = recipe(choices, method)
    sampler = load("cerebro.samplers", method)(chosen, getattr(chosen.search, "options", {}))
    known: list[ConfigView] = []
    while len(known) < 4:
        sample = sampler.sample(known)
        assert sample is not None
        assert key({"": sample.hparams["x"]}) in [key({"": choice}) for choice in choices]
        known.append(recorded(len(known), sample.hparams, origin=dict(sample.notes)))
    assert len({key(view.hparams) for view in known}) == 4


@pytest.mark.parametrize("kind", CHOICES)
def test_optuna_distinguishes_all_choices(kind: str) -> None:
    space = Space(recipe(CHOICES[kind], "tpe"))
    places = set()
    for number, choice in enumerate(CHOICES[kind]):
        label, distribution = space.params(recorded(number, {"x": choice, "lr": 0.5}))["x"]
        places.add(distribution.to_internal_repr(label))
        assert key(space.decoded({"x": label})) == key({"x": choice})
    assert len(places) == len(CHOICES[kind])


def test_a_choice_is_perturbed_to_its_neighbour() -> None:
    domain = Domain(choice=(True, 1, {"b": 1, "a": 2}))
    assert perturbed(domain, 1, 0.8) is True
    assert perturbed(domain, 1, 1.2) == {"a": 2, "b": 1}
    assert perturbed(domain, {"a": 2, "b": 1}, 0.8) == 1
