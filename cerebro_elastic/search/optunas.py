"""optuna's samplers: each time the study is made anew from the configs as they stand, and its sampler from a
seed of its own, so that what comes next follows from the recipe and the history alone."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any
from zlib import crc32

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
    distribution_to_json,
    json_to_distribution,
)
from optuna.samplers import BaseSampler
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, Trial, TrialState, create_trial

from cerebro_elastic import arguments
from cerebro_elastic.core.model.configs import HParams, Status
from cerebro_elastic.core.model.interfaces import ConfigView
from cerebro_elastic.errors import MissingExtra, RecipeError, TaskError, did_you_mean
from cerebro_elastic.recipes import Domain, Recipe
from cerebro_elastic.registry import import_object
from cerebro_elastic.search.constraints import constraint_of
from cerebro_elastic.search.objective import Objective, epoch_ends, objectives_of
from cerebro_elastic.search.sampling import Sample
from cerebro_elastic.search.space import key, values

_TRIES = 20
"""Points that are asked for until one is new and satisfies the constraints."""
_STATES = {
    Status.FINISHED: TrialState.COMPLETE,
    Status.STOPPED: TrialState.PRUNED,
    Status.LIVE: TrialState.RUNNING,
    Status.FAILED: TrialState.FAIL,
}
_QUIET = MappingProxyType({"warn_independent_sampling": False})
_SCALARS = (bool, int, float, str, type(None))

optuna.logging.set_verbosity(optuna.logging.WARNING)


class OptunaSampler:
    """One of optuna's samplers over the recipe's space.

    Raises ``RecipeError`` for options that the sampler does not have.
    """

    sampler: Callable[..., BaseSampler]
    defaults: Mapping[str, Any] = MappingProxyType({})

    def __init__(self, recipe: Recipe, options: Mapping[str, Any]) -> None:
        self._recipe = recipe
        self._options = {**self.defaults, **options}
        self._objectives = objectives_of(recipe)
        self._space = Space(recipe)
        self._holds = constraint_of(recipe) if recipe.search.space else lambda _hparams: True
        self._check_options()
        self._made(0)

    def sample(self, known: Sequence[ConfigView]) -> Sample | None:
        taken = {key(view.hparams) for view in known}
        if len(taken) >= self._space.size:
            return None
        for attempt in range(_TRIES):
            study = self._study(known, self._seed(len(known), attempt))
            hparams, trial = self._ask(study, len(known) + attempt)
            if key(hparams) not in taken and self._holds(hparams):
                return Sample(hparams, self._notes(study.get_trials(deepcopy=False)[trial.number]))
        return None

    def _notes(self, trial: FrozenTrial) -> dict[str, Any]:
        """What the sampler, and a space that is a function, know of the point."""
        notes: dict[str, Any] = {"optuna": trial.system_attrs} if trial.system_attrs else {}
        if not self._space.distributions:
            notes["space"] = {n: distribution_to_json(d) for n, d in trial.distributions.items()}
        return notes

    def _ask(self, study: optuna.Study, place: int) -> tuple[HParams, Trial]:
        """The point number ``place``; most samplers do not care."""
        del place
        trial = study.ask(self._space.distributions or None)
        return self._space.point(trial), trial

    def _seed(self, place: int, attempt: int) -> int:
        return crc32(f"{self._recipe.seed}/{place}/{attempt}".encode())

    def _made(self, seed: int) -> BaseSampler:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            try:
                return self.sampler(seed=seed, **self._options)
            except ImportError as exc:
                raise MissingExtra(
                    f"optuna's {self.sampler.__name__} needs what is not installed: {exc}; "
                    "pip install 'cerebro-elastic[search]'"
                ) from exc
            except (TypeError, ValueError) as exc:
                place = self._recipe.source.where(("search", "options"))
                raise RecipeError(f"{place}: optuna's {self.sampler.__name__}: {exc}; correct it") from exc

    def _check_options(self) -> None:
        known = sorted((arguments.accepted(self.sampler) or frozenset()) - {"self", "seed"})
        unknown = sorted(set(self._options) - set(known))
        if unknown:
            raise RecipeError(
                f"{self._recipe.source.where(('search', 'options', unknown[0]))}: optuna's "
                f"{self.sampler.__name__} has no option {unknown[0]!r}; {did_you_mean(unknown[0], known)}"
            )

    def _study(self, known: Sequence[ConfigView], seed: int) -> optuna.Study:
        directions = [
            StudyDirection.MINIMIZE if o.sign > 0 else StudyDirection.MAXIMIZE for o in self._objectives
        ]
        study = optuna.create_study(sampler=self._made(seed), directions=directions)
        study.add_trials([trial_of(view, self._space, self._objectives) for view in known])
        return study


class Tpe(OptunaSampler):
    """Tree-structured Parzen estimator."""

    sampler = optuna.samplers.TPESampler
    # With it the sampler looks away from where configs are under way.
    defaults = MappingProxyType({"constant_liar": True})


class CmaEs(OptunaSampler):
    """Covariance matrix adaptation."""

    sampler = optuna.samplers.CmaEsSampler
    defaults = _QUIET


class Gp(OptunaSampler):
    """Bayesian optimization by a Gaussian process (imports torch in the process that leads)."""

    sampler = optuna.samplers.GPSampler
    defaults = _QUIET


class Nsga2(OptunaSampler):
    """NSGA-II, for several objectives."""

    sampler = optuna.samplers.NSGAIISampler


class Qmc(OptunaSampler):
    """Quasi Monte Carlo: a sequence of low discrepancy."""

    sampler = optuna.samplers.QMCSampler
    defaults = _QUIET

    def _seed(self, place: int, attempt: int) -> int:
        """One sequence for the whole run."""
        del place, attempt
        return self._recipe.seed

    def _ask(self, study: optuna.Study, place: int) -> tuple[HParams, Trial]:
        """The study counts the points of the sequence, and was not there when the others were drawn."""
        trial = study.ask()
        frozen = study.get_trials(deepcopy=False)[trial.number]
        for _ in range(place + 1):
            params = study.sampler.sample_relative(study, frozen, dict(self._space.distributions))
        return self._space.decoded(params), trial


class Space:
    """The recipe's space in optuna's distributions, or by a function of a trial."""

    def __init__(self, recipe: Recipe) -> None:
        self._domains = dict(sorted(recipe.search.space.items()))
        self._function = self._imported(recipe)
        self._place = recipe.source.where(("search", "space_fn"))
        self.distributions = {name: _distribution(domain) for name, domain in self._domains.items()}

    @property
    def size(self) -> float:
        """How many points there are at most."""
        listed = [values(domain) for domain in self._domains.values()]
        return math.prod(math.inf if each is None else len(each) for each in listed) if listed else math.inf

    def point(self, trial: Trial) -> HParams:
        """What the trial has been given; for a function, what it asked for."""
        if self._function is not None:
            try:
                self._function(trial)
            except Exception as exc:
                raise RecipeError(f"{self._place}: space_fn fails: {type(exc).__name__}: {exc}") from exc
            return trial.params
        return self.decoded(trial.params)

    def params(self, view: ConfigView) -> Mapping[str, tuple[Any, BaseDistribution]]:
        """The config's point as optuna has it; without what does not lie in the space."""
        notes = view.origin.get("space", {})
        if self._function is not None:
            found = {n: json_to_distribution(text) for n, text in notes.items()}
        else:
            found = self.distributions
        encoded = {n: (_encoded(v), found[n]) for n, v in view.hparams.items() if n in found}
        return {n: (v, d) for n, (v, d) in encoded.items() if d._contains(d.to_internal_repr(v))}

    def decoded(self, params: Mapping[str, Any]) -> HParams:
        """optuna's values as the recipe's: a choice that is no scalar is written as JSON there."""
        return {name: self._decoded(name, value) for name, value in params.items()}

    def _decoded(self, name: str, value: Any) -> Any:
        choices = self._domains[name].choice or ()
        return next((c for c in choices if not isinstance(c, _SCALARS) and json.dumps(c) == value), value)

    def _imported(self, recipe: Recipe) -> Callable[[Trial], object] | None:
        reference = recipe.search.space_fn
        if reference is None:
            return None
        try:
            function: Callable[[Trial], object] = import_object(reference, recipe.root)
        except TaskError as exc:
            raise RecipeError(f"{recipe.source.where(('search', 'space_fn'))}: {exc}") from exc
        return function


def _encoded(value: Any) -> Any:
    return value if isinstance(value, _SCALARS) else json.dumps(value)


def _distribution(domain: Domain) -> BaseDistribution:
    if domain.choice is not None:
        return CategoricalDistribution([_encoded(choice) for choice in domain.choice])
    if domain.integers is not None:
        return IntDistribution(*domain.integers)
    if domain.loguniform is not None:
        return FloatDistribution(*domain.loguniform, log=True)
    assert domain.uniform is not None
    return FloatDistribution(*domain.uniform)


def trial_of(view: ConfigView, space: Space, objectives: Sequence[Objective]) -> FrozenTrial:
    """A config as optuna has it: complete with its best epoch's value, or pruned with all its values; one
    that went wrong, or has logged nothing finite, has failed."""
    ends = [point for point in epoch_ends(view) if all(o.finite(point) for o in objectives)]
    state = _STATES[view.status]
    if state in (TrialState.COMPLETE, TrialState.PRUNED) and not ends:
        state = TrialState.FAIL
    complete = state is TrialState.COMPLETE
    best = min(ends, key=objectives[0].loss, default=None)
    params = space.params(view)
    return create_trial(
        state=state,
        values=[o.value(best) for o in objectives] if best and complete else None,
        params={name: value for name, (value, _) in params.items()},
        distributions={name: distribution for name, (_, distribution) in params.items()},
        system_attrs=dict(view.origin.get("optuna", {})),
        intermediate_values={p.epochs: objectives[0].value(p) for p in ends} if len(objectives) == 1 else {},
    )
