"""optuna's samplers. For each point a new study is made from the configs' present state, and a new sampler
from its own seed. So the next point depends on the recipe and the history alone."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
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

from cerebro_elastic.core.model.best import epoch_ends, loss
from cerebro_elastic.core.model.configs import HParams, Status
from cerebro_elastic.core.model.interfaces import ConfigView
from cerebro_elastic.errors import MissingExtra, RecipeError, TaskError, did_you_mean
from cerebro_elastic.recipes import Domain, Recipe
from cerebro_elastic.recipes.search import active, flattened, is_branching
from cerebro_elastic.registry import import_object, install_extra
from cerebro_elastic.search._optuna_internals import CONSTRAINTS, is_in
from cerebro_elastic.search.constraints import constraint_of
from cerebro_elastic.search.criterion import Criterion, criteria_of
from cerebro_elastic.search.sampling import Labels, Sample, contains, key, size, values
from cerebro_elastic.system import arguments

_TRIES = 20
"""The most draws for a new point that satisfies the constraints."""
_STATES = {
    Status.FINISHED: TrialState.COMPLETE,
    Status.STOPPED: TrialState.PRUNED,
    Status.LIVE: TrialState.RUNNING,
    Status.FAILED: TrialState.FAIL,
}
_QUIET = MappingProxyType({"warn_independent_sampling": False})

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
        self._criteria = criteria_of(recipe)
        self._space = Space(recipe)
        self._holds = constraint_of(recipe) if recipe.search.space else lambda _hparams: True
        self._made: list[tuple[ConfigView, FrozenTrial]] = []
        self._check_options()
        self._sampler(0)

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
        """The values of this point that the sampler, or a space that is a function, will need again."""
        notes: dict[str, Any] = {"optuna": trial.system_attrs} if trial.system_attrs else {}
        if self._space.is_function:
            notes["space"] = {n: distribution_to_json(d) for n, d in trial.distributions.items()}
        return notes

    def _ask(self, study: optuna.Study, place: int) -> tuple[HParams, Trial]:
        """The next point. ``place`` is its number, which most samplers do not use."""
        del place
        trial = study.ask(self._space.fixed or None)
        return self._space.point(trial), trial

    def _seed(self, place: int, attempt: int) -> int:
        return crc32(f"{self._recipe.seed}/{place}/{attempt}".encode())

    def _sampler(self, seed: int) -> BaseSampler:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            try:
                return self.sampler(seed=seed, **self._of_constraints(), **self._options)
            except ImportError as exc:
                raise MissingExtra(
                    f"optuna's {self.sampler.__name__} needs a missing package: {exc}; "
                    f"{install_extra('search')}"
                ) from exc
            except (TypeError, ValueError) as exc:
                place = self._recipe.source.where(("search", "options"))
                raise RecipeError(f"{place}: optuna's {self.sampler.__name__}: {exc}; correct it") from exc

    def _of_constraints(self) -> dict[str, Any]:
        """The argument by which the sampler learns that configs have broken constraints; it avoids points
        near them. Samplers without such an argument learn from the values alone."""
        able = self._criteria[0].constraints and "constraints_func" in (
            arguments.accepted(self.sampler) or ()
        )
        return {"constraints_func": lambda trial: trial.system_attrs.get(CONSTRAINTS, ())} if able else {}

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
            StudyDirection.MINIMIZE if o.mode == "min" else StudyDirection.MAXIMIZE for o in self._criteria
        ]
        study = optuna.create_study(sampler=self._sampler(seed), directions=directions)
        study.add_trials(self._trials_of(known))
        return study

    def _trials_of(self, known: Sequence[ConfigView]) -> list[FrozenTrial]:
        """The configs as trials. Those of the last call are taken again where nothing has changed, or the
        time for them would grow with the square of the number of configs."""
        self._made = [
            made
            if made is not None and made[0] == view
            else (view, trial_of(view, self._space, self._criteria))
            for view, made in zip_longest(known, self._made[: len(known)])
        ]
        return [trial for _, trial in self._made]


class Tpe(OptunaSampler):
    """Tree-structured Parzen estimator."""

    sampler = optuna.samplers.TPESampler
    # With it the sampler avoids points near configs in training.
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

    def __init__(self, recipe: Recipe, options: Mapping[str, Any]) -> None:
        if is_branching(recipe.search.space):
            raise RecipeError(
                f"{recipe.source.where(('search', 'space'))}: qmc fills one box evenly, and a space with "
                "`branches` is none: use random or tpe"
            )
        super().__init__(recipe, options)

    def _seed(self, place: int, attempt: int) -> int:
        """The seed of one sequence for the whole run."""
        del place, attempt
        return self._recipe.seed

    def _ask(self, study: optuna.Study, place: int) -> tuple[HParams, Trial]:
        """The next point. A new study has none of the sequence's earlier points, so they are drawn again."""
        trial = study.ask()
        frozen = study.get_trials(deepcopy=False)[trial.number]
        for _ in range(place + 1):
            params = study.sampler.sample_relative(study, frozen, dict(self._space.fixed))
        return self._space.decoded(params), trial


class Space:
    """The recipe's space in optuna's distributions, or by a function of a trial."""

    def __init__(self, recipe: Recipe) -> None:
        self._space = dict(sorted(recipe.search.space.items()))
        self._function = self._imported(recipe)
        self._place = recipe.source.where(("search", "space_fn"))
        domains = flattened(self._space)
        listed = {n: values(d) for n, d in domains.items() if d.choice is not None or d.branches is not None}
        self._labels = {name: Labels(choice) for name, choice in listed.items() if choice is not None}
        self.fixed: dict[str, BaseDistribution] = {}
        """The distributions of a space in which all configs have the same hyper-parameters."""
        if not is_branching(self._space):
            self.fixed = {name: self._distribution(name, domain) for name, domain in self._space.items()}

    @property
    def is_function(self) -> bool:
        """Whether the space is a function of a trial."""
        return self._function is not None

    @property
    def size(self) -> float:
        """An upper bound of the number of points."""
        return size(self._space) if self._space else math.inf

    def point(self, trial: Trial) -> HParams:
        """The trial's point; a space that is a function asks the trial for its values."""
        if self._function is not None:
            try:
                self._function(trial)
            except Exception as exc:
                raise RecipeError(f"{self._place}: space_fn fails: {type(exc).__name__}: {exc}") from exc
            return trial.params
        if not self.fixed:
            self._suggest(trial, self._space)
        return self.decoded(trial.params)

    def _suggest(self, trial: Trial, space: Mapping[str, Domain]) -> None:
        """Ask the trial for the hyper-parameters of ``space``, and of the chosen branches."""
        for name, domain in sorted(space.items()):
            match self._distribution(name, domain):
                case CategoricalDistribution(choices=choices):
                    value: Any = trial.suggest_categorical(name, choices)
                case IntDistribution(low=low, high=high):
                    value = trial.suggest_int(name, low, high)
                case FloatDistribution(low=lowest, high=highest, log=log):
                    value = trial.suggest_float(name, lowest, highest, log=log)
            if domain.branches is not None:
                self._suggest(trial, domain.branches[self._labels[name].value(value)])

    def params(self, view: ConfigView) -> Mapping[str, tuple[Any, BaseDistribution]]:
        """The config's point in optuna's values, without values outside the space."""
        if self._function is None:
            domains = active(self._space, view.hparams)
            named = {n: v for n, v in view.hparams.items() if n in domains}
            inside = {n: v for n, v in named.items() if contains(domains[n], v)}
            known = {n: (self._encoded(n, v), self._distribution(n, domains[n])) for n, v in inside.items()}
        else:
            notes = {n: json_to_distribution(text) for n, text in view.origin.get("space", {}).items()}
            known = {n: (value, notes[n]) for n, value in view.hparams.items() if n in notes}
        return {n: (value, d) for n, (value, d) in known.items() if is_in(d, value)}

    def decoded(self, params: Mapping[str, Any]) -> HParams:
        """optuna's values, converted to the recipe's."""
        return {n: self._labels[n].value(v) if n in self._labels else v for n, v in params.items()}

    def _encoded(self, name: str, value: Any) -> Any:
        return self._labels[name].of(value) if name in self._labels else value

    def _distribution(self, name: str, domain: Domain) -> BaseDistribution:
        if name in self._labels:
            return CategoricalDistribution(self._labels[name].all)
        if domain.integers is not None:
            return IntDistribution(*domain.integers)
        if domain.loguniform is not None:
            return FloatDistribution(*domain.loguniform, log=True)
        assert domain.uniform is not None
        return FloatDistribution(*domain.uniform)

    def _imported(self, recipe: Recipe) -> Callable[[Trial], object] | None:
        reference = recipe.search.space_fn
        if reference is None:
            return None
        try:
            function: Callable[[Trial], object] = import_object(reference, recipe.root)
        except TaskError as exc:
            raise RecipeError(f"{recipe.source.where(('search', 'space_fn'))}: {exc}") from exc
        return function


def trial_of(view: ConfigView, space: Space, criteria: Sequence[Criterion]) -> FrozenTrial:
    """A config as a trial of optuna.

    A finished config is complete with its best epoch's value, a stopped one is pruned with all its values. A
    config that failed, or has logged nothing finite, is a failed trial.
    """
    ends = [point for point in epoch_ends(view.curve) if all(o.finite(point) for o in criteria)]
    if any(criteria[0].excess(point) < 0 for point in ends):
        ends = [point for point in ends if criteria[0].excess(point) < 0]
    ends = [point for point in ends if math.isfinite(criteria[0].excess(point))]
    state = _STATES[view.status]
    if state in (TrialState.COMPLETE, TrialState.PRUNED) and not ends:
        state = TrialState.FAIL
    complete = state is TrialState.COMPLETE
    best = min(ends, key=lambda point: loss(criteria[0].value(point), criteria[0].mode), default=None)
    broken = {CONSTRAINTS: [criteria[0].excess(best)]} if best and criteria[0].constraints else {}
    params = space.params(view)
    return create_trial(
        state=state,
        values=[o.value(best) for o in criteria] if best and complete else None,
        params={name: value for name, (value, _) in params.items()},
        distributions={name: distribution for name, (_, distribution) in params.items()},
        system_attrs={**view.origin.get("optuna", {}), **broken},
        intermediate_values={p.epochs: criteria[0].value(p) for p in ends} if len(criteria) == 1 else {},
    )
