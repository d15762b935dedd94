"""Ray Tune's searchers as samplers. For each point a new searcher gets the configs' present state, and its
own seed. So the next point depends on the recipe and the history alone."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from zlib import crc32

from ray import tune
from ray.tune.search import SEARCH_ALG_IMPORT, Searcher

from cerebro_elastic.extending.deciding import (
    ConfigView,
    Criterion,
    HParams,
    Labels,
    Sample,
    Status,
    constraint_of,
    contains,
    criteria_of,
    is_branching,
    key,
    values,
)
from cerebro_elastic.extending.errors import MissingExtra, RecipeError, TaskError, did_you_mean
from cerebro_elastic.extending.recipes import Recipe, import_object, is_reference

_NAME = "searcher"
"""The option that names the searcher. All others are its arguments."""
_RESERVED = frozenset({"space", "metric", "mode", "points_to_evaluate"})
"""Arguments that come from the recipe and the history."""
_SEEDS = ("seed", "random_state_seed", "random_state")
"""Searchers' names of their seed."""
_OURS = {
    "random": "method: random",
    "variant_generator": "method: grid or random",
    "optuna": "optuna's samplers are separate methods, method: tpe",
}
"""Searchers of Ray Tune that are methods here."""
_TRIES = 20
"""How many points to draw until one is new and satisfies the constraints."""
_METRIC = "loss"


class TuneSampler:
    """A searcher of Ray Tune over the recipe's space: ``options: {searcher: hyperopt, ...}``, or a class of
    yours as ``module:name``.

    Raises:
        RecipeError: No such searcher exists, it takes no seed or no points that were tried, it does not have
            these options, or the recipe has several objectives.
        MissingExtra: The searcher's package is not installed.
    """

    def __init__(self, recipe: Recipe, options: Mapping[str, Any]) -> None:
        self._recipe = recipe
        self._options = {name: value for name, value in options.items() if name != _NAME}
        self._name = str(options.get(_NAME, ""))
        self._class = self._searcher_class()
        self._accepted = inspect.signature(self._class).parameters
        self._check_arguments()
        self._criterion = self._only_criterion()
        self._domains = dict(sorted(recipe.search.space.items()))
        choices = {name: domain.choice for name, domain in self._domains.items()}
        self._labels = {name: Labels(choice) for name, choice in choices.items() if choice is not None}
        self._holds = constraint_of(recipe)
        self._suggest([], 0)

    def sample(self, known: Sequence[ConfigView]) -> Sample | None:
        listed = [values(domain) for domain in self._domains.values()]
        taken = {key(view.hparams) for view in known}
        if len(taken) >= math.prod(math.inf if v is None else len(v) for v in listed):
            return None
        inside = [view for view in known if self._is_inside(view.hparams)]
        for attempt in range(_TRIES):
            point = self._suggest(inside, crc32(f"{self._recipe.seed}/{len(known)}/{attempt}".encode()))
            if not isinstance(point, Mapping):  # it has no more, or none now
                return None
            hparams = self._decoded(point)
            if key(hparams) not in taken and self._holds(hparams):
                return Sample(hparams)
        return None

    def _suggest(self, known: Sequence[ConfigView], seed: int) -> Mapping[str, Any] | str | None:
        """The suggestion of a searcher that has suggested the points ``known`` and seen their results."""
        points = [{n: self._encoded(n, value) for n, value in view.hparams.items()} for view in known]
        seeds = {name: seed for name in _SEEDS if name in self._accepted}
        try:
            # Some take an empty list for points that they have to wait for.
            searcher = self._class(**self._options, **seeds, points_to_evaluate=points or None)
            space = {name: self._domain(name) for name in self._domains}
            searcher.set_search_properties(_METRIC, "min", space)
            for place, view in enumerate(known):
                searcher.suggest(str(place))
                self._complete(searcher, str(place), view)
            suggested: Mapping[str, Any] | str | None = searcher.suggest("next")
        except (AssertionError, ImportError) as exc:  # asserted where its package is not installed
            raise MissingExtra(
                f"{self._place(_NAME)}: the searcher {self._name} of Ray Tune cannot be used: {exc}; "
                "install its package on the machines that may lead the run"
            ) from exc
        except (TypeError, ValueError) as exc:
            raise RecipeError(
                f"{self._place()}: the searcher {self._name} of Ray Tune: {exc}; correct it"
            ) from exc
        return suggested

    def _complete(self, searcher: Searcher, trial: str, view: ConfigView) -> None:
        loss = self._criterion.best(view)
        if view.status is Status.LIVE:
            return
        if view.status is Status.FAILED or math.isinf(loss):
            searcher.on_trial_complete(trial, error=True)
        else:
            searcher.on_trial_complete(trial, {_METRIC: loss, "training_iteration": view.epochs})

    def _is_inside(self, hparams: HParams) -> bool:
        return hparams.keys() == self._domains.keys() and all(
            contains(domain, hparams[name]) for name, domain in self._domains.items()
        )

    def _decoded(self, point: Mapping[str, Any]) -> HParams:
        """Some searchers return NumPy's numbers, or floats for whole ones."""
        return {name: self._value(name, point[name]) for name in self._domains}

    def _value(self, name: str, value: Any) -> Any:
        if name in self._labels:
            return self._labels[name].value(value)
        return int(value) if self._domains[name].integers is not None else float(value)

    def _encoded(self, name: str, value: Any) -> Any:
        return self._labels[name].of(value) if name in self._labels else value

    def _domain(self, name: str) -> Any:
        """The domain in Ray Tune's terms."""
        domain = self._domains[name]
        if name in self._labels:
            return tune.choice(self._labels[name].all)
        if domain.integers is not None:
            low, high = domain.integers
            return tune.randint(low, high + 1)
        if domain.loguniform is not None:
            return tune.loguniform(*domain.loguniform)
        assert domain.uniform is not None
        return tune.uniform(*domain.uniform)

    def _searcher_class(self) -> Callable[..., Searcher]:
        names = sorted(SEARCH_ALG_IMPORT.keys() - _OURS.keys())
        if is_reference(self._name):
            try:
                own: Callable[..., Searcher] = import_object(self._name, self._recipe.root)
            except TaskError as exc:
                raise RecipeError(f"{self._place(_NAME)}: {exc}") from exc
            return own
        if self._name in _OURS:
            raise RecipeError(
                f"{self._place(_NAME)}: {self._name} needs no searcher of Ray Tune: {_OURS[self._name]}"
            )
        if self._name not in names:
            raise RecipeError(
                f"{self._place(_NAME)}: searcher is {self._name!r}: name one of Ray Tune, such as options: "
                f"{{searcher: hyperopt}}, or yours, module:Class; {did_you_mean(self._name, names)}"
            )
        try:
            found: Callable[..., Searcher] = SEARCH_ALG_IMPORT[self._name]()  # type: ignore[no-untyped-call]
        except ImportError as exc:
            raise MissingExtra(
                f"{self._place(_NAME)}: the searcher {self._name} cannot be imported: {exc}"
            ) from exc
        return found

    def _check_arguments(self) -> None:
        if "points_to_evaluate" not in self._accepted:
            raise RecipeError(
                f"{self._place(_NAME)}: {self._name} has no argument points_to_evaluate, by which it would "
                "learn earlier points: a proposal follows from the recorded history; choose another"
            )
        if not self._accepted.keys() & {*_SEEDS}:
            raise RecipeError(
                f"{self._place(_NAME)}: {self._name} has none of the arguments {', '.join(_SEEDS)}: a "
                "proposal follows from the recipe's seed; choose another: hyperopt, bayesopt, bohb, hebo"
            )
        usual = sorted(self._accepted.keys() - _RESERVED - {*_SEEDS})
        any_name = any(parameter.kind is parameter.VAR_KEYWORD for parameter in self._accepted.values())
        for name in self._options:
            if name in _RESERVED or name in _SEEDS or (name not in usual and not any_name):
                raise RecipeError(
                    f"{self._place(name)}: the searcher {self._name} has no option {name!r}; "
                    f"{did_you_mean(name, usual)}"
                )

    def _only_criterion(self) -> Criterion:
        if not self._recipe.search.space:
            raise RecipeError(
                f"{self._recipe.source.where(('search', 'space_fn'))}: a function of an optuna trial needs "
                "one of optuna's samplers: set method or sampler to tpe, say"
            )
        if is_branching(self._recipe.search.space):
            raise RecipeError(
                f"{self._recipe.source.where(('search', 'space'))}: Ray Tune's searchers give all configs "
                "the same hyper-parameters, and `branches` other ones: use random or tpe"
            )
        criteria = criteria_of(self._recipe)
        if len(criteria) > 1:
            raise RecipeError(
                f"{self._recipe.source.where(('search', 'objectives'))}: Ray Tune's searchers take one "
                "objective; for several use method: nsga2"
            )
        return criteria[0]

    def _place(self, *option: str) -> str:
        return self._recipe.source.where(("search", "options", *option))
