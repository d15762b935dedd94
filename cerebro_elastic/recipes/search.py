"""The schema of a recipe's ``search``: the keys of all methods, and those of each."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, ClassVar, Literal, Self, TypeAlias

from pydantic import BeforeValidator, ConfigDict, Field, JsonValue, model_validator

from cerebro_elastic import registry
from cerebro_elastic.errors import did_you_mean
from cerebro_elastic.recipes.fields import (
    Arguments,
    Count,
    Epochs,
    Positive,
    Reference,
    Seconds,
    Section,
    Url,
    path_or_url,
    registered,
)
from cerebro_elastic.recipes.tune_domains import from_tune, plain

Sampler: TypeAlias = Annotated[str, registered("cerebro.samplers")]

_WIDEST_INT, _WIDEST_FLOAT = 2**53, 1e300
"""All whole numbers up to here are floats, and differences of floats up to here are finite."""


def _space_of_branch(value: object) -> object:
    if value is None:
        raise ValueError("a branch without further hyper-parameters is {}, not empty")
    return value


class Domain(Section):
    """The values that a hyper-parameter may take: one of five kinds. Bounds are inclusive."""

    choice: Annotated[tuple[JsonValue, ...], Field(strict=False)] | None = None
    """One of these values."""
    integers: Annotated[tuple[int, int], Field(strict=False)] | None = Field(default=None, alias="int")
    """A whole number between two bounds."""
    uniform: Annotated[tuple[float, float], Field(strict=False)] | None = None
    """A number between two bounds, all equally likely."""
    loguniform: Annotated[tuple[float, float], Field(strict=False)] | None = None
    """A number between two bounds above 0, all orders of magnitude equally likely."""
    branches: Mapping[str, Annotated[Mapping[str, Domain], BeforeValidator(_space_of_branch)]] | None = None
    """One of these names, each with its own space: hyper-parameters that only configs of this branch have.
    See [below](#the-search-space)."""

    def __str__(self) -> str:
        """As in a recipe: ``uniform: [0.1, 1.0]``."""
        return ", ".join(f"{name}: {list(value)}" for name, value in self.given.items())

    @property
    def given(self) -> dict[str, Any]:
        """The values of the kind, by its name in a recipe."""
        return {name: value for name, value in self.model_dump(by_alias=True).items() if value is not None}

    @model_validator(mode="before")
    @classmethod
    def _shorthand(cls, value: object) -> object:
        """A list, a range or an array is a choice, a lone value a choice of one. Ray Tune's domains are
        taken, too."""
        value = from_tune(value)
        if isinstance(value, Domain):
            return value
        if isinstance(value, Mapping):
            return {key: part if key == "branches" else plain(part) for key, part in value.items()}
        value = plain(value)
        return {"choice": value if isinstance(value, list) else [value]}

    @model_validator(mode="after")
    def _sensible(self) -> Domain:
        if len(self.given) != 1:
            raise ValueError(
                "give one of choice: [..], int: [a, b], uniform: [a, b], loguniform: [a, b], branches: {..}"
            )
        if self.branches is not None:
            if not self.branches:
                raise ValueError("no branch leaves nothing to try; give at least one name with its space")
            return self
        if self.choice is not None:
            if not self.choice:
                raise ValueError("an empty list leaves nothing to try; give at least one value")
            known: set[tuple[type, str]] = set()
            for item in self.choice:
                value = (type(item), json.dumps(item, sort_keys=True))
                if value in known:
                    raise ValueError(f"{item!r} is listed twice; each value once")
                known.add(value)
            return self
        low, high = self.integers or self.uniform or self.loguniform or (0, 0)
        widest = _WIDEST_INT if self.integers else _WIDEST_FLOAT
        if max(abs(low), abs(high)) > widest:
            raise ValueError(
                f"bounds lie within {-widest:g} and {widest:g}: samplers compute with them as floats"
            )
        if not low < high:
            raise ValueError("the lower bound comes first and must be below the upper one")
        if self.loguniform is not None and low <= 0:
            raise ValueError("loguniform needs a lower bound above 0")
        if self.loguniform is not None and low * _WIDEST_FLOAT < 1:
            raise ValueError(f"loguniform needs a lower bound of at least {1 / _WIDEST_FLOAT:g}")
        return self


Space: TypeAlias = Mapping[str, Domain]
"""Domains by the names of hyper-parameters."""


def active(space: Space, point: Mapping[str, Any]) -> dict[str, Domain]:
    """The hyper-parameters that a config with the values of ``point`` has: those of the space, and those of
    the branches that it takes."""
    found: dict[str, Domain] = {}
    for name, domain in space.items():
        found[name] = domain
        if domain.branches is not None and isinstance(branch := point.get(name), str):
            found |= active(domain.branches.get(branch, {}), point)
    return found


def flattened(space: Space) -> dict[str, Domain]:
    """All hyper-parameters of the space, those of all branches included, each with its first domain."""
    found: dict[str, Domain] = {}
    for name, domain in space.items():
        found.setdefault(name, domain)
        for branch in (domain.branches or {}).values():
            found = {**flattened(branch), **found}
    return found


def is_branching(space: Space) -> bool:
    """Whether some configs have other hyper-parameters than others."""
    return any(domain.branches is not None for domain in space.values())


def _check_branches(space: Space, above: frozenset[str] = frozenset()) -> dict[str, Domain]:
    """Raise ``ValueError`` if a config could have one hyper-parameter twice, or one that is another kind in
    another branch: samplers learn from all configs that have it. Returns all hyper-parameters."""
    known: dict[str, Domain] = {}
    for name in space:
        if name in above:
            raise ValueError(f"{name!r} is in a branch and outside of it: rename one of them")
    for name, domain in space.items():
        of_branches: dict[str, Domain] = {}
        for branch, own in (domain.branches or {}).items():
            for inner, kind in _check_branches(own, above | set(space)).items():
                if inner in known:
                    raise ValueError(
                        f"{inner!r} is in branches of {name!r} and of another choice, and a config could "
                        "have both: rename one of them"
                    )
                before = of_branches.setdefault(inner, kind)
                if _kind(before) != _kind(kind):
                    raise ValueError(
                        f"{inner!r} in branch {branch!r} of {name!r} is {_kind(kind)[0]}, in another branch "
                        f"{_kind(before)[0]}: only bounds may differ; rename one of them"
                    )
        known |= of_branches
    return {**known, **space}


def _kind(domain: Domain) -> tuple[str, str]:
    """The properties of a hyper-parameter that all branches share: the kind, and the values of a list."""
    (name,) = domain.given
    listed = domain.choice if domain.choice is not None else sorted(domain.branches or ())
    return f"choice {list(listed)}" if name == "choice" else name, json.dumps(listed)


class Constraint(Section):
    """A bound on another metric."""

    metric: str
    """The name of a metric that the task logs at the end of each epoch, such as a latency."""
    below: float | None = None
    """The metric must be less."""
    above: float | None = None
    """The metric must be more."""

    @model_validator(mode="after")
    def _one_side(self) -> Self:
        if (self.below is None) == (self.above is None):
            raise ValueError("give either `below` or `above`, a number; for both sides two constraints")
        return self

    def excess(self, metrics: Mapping[str, float]) -> float:
        """By how much the constraint is broken: below 0 if it holds, infinite if the metric was not
        logged."""
        value, (_, bound, sign) = metrics.get(self.metric, math.nan), self._side
        return (sign * (value - bound) or sys.float_info.min) if math.isfinite(value) else math.inf

    def widened(self, by: float) -> Constraint:
        """The constraint with its bound relaxed ``by`` this much."""
        side, bound, sign = self._side
        return self.model_copy(update={side: bound + sign * by})

    def __str__(self) -> str:
        side, bound, _ = self._side
        return f"{self.metric} {side} {bound:g}"

    @property
    def _side(self) -> tuple[str, float, int]:
        """The key that is given, its bound, and the sign of a difference from it that breaks it."""
        return ("above", self.above, -1) if self.above is not None else ("below", self.below or 0.0, 1)


class Objective(Section):
    """The metric that sorts the leaderboard and guides searches."""

    metric: str = "val_loss"
    """The name of a metric that the task logs."""
    mode: Literal["min", "max"] = "min"
    """Whether less or more is better."""
    constraint: tuple[Constraint, ...] | None = Field(default=None, strict=False)
    """Bounds on other metrics: an epoch that breaks a constraint is not the best of its config, whatever its
    value. Recipes may give it beside `objective`, one or a list."""

    @property
    def constraints(self) -> tuple[Constraint, ...]:
        """Bounds on other metrics."""
        return self.constraint or ()

    def holds(self, metrics: Mapping[str, float]) -> bool:
        """Whether all constraints hold for the metrics of an epoch."""
        return all(each.excess(metrics) < 0 for each in self.constraints)


def _moment(value: object) -> object:
    """A date and time with its time zone, in the one form that a recipe keeps."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value.strip())
        except ValueError:
            raise ValueError(
                "give a date and time such as 2026-12-01T08:00 or 2026-12-01T08:00+01:00"
            ) from None
    if not isinstance(value, datetime):
        return value
    try:
        return value.astimezone().isoformat()
    except (ValueError, OverflowError, OSError):
        raise ValueError("the year is out of range: give one from 1970 on") from None


Hours: TypeAlias = Annotated[float, Field(gt=0, le=1e5)]
Money: TypeAlias = Annotated[float, Field(gt=0, le=1e9)]
Moment: TypeAlias = Annotated[str, BeforeValidator(_moment)]


class Budget(Section):
    """Where a search ends: at the bound that is reached first."""

    epochs: Positive | None = None
    """Epochs of all configs together."""
    units: Positive | None = None
    """Units of all configs together."""
    timeout: Seconds | None = None
    """Seconds since the first unit began, without those in which the run has no nodes. An epoch that cannot
    end in time is not begun."""
    hours: Hours | None = None
    """The same in hours."""
    deadline: Moment | None = None
    """The date and time by which the run must end, such as `2026-12-01T08:00`. Without a time zone it is that
    of the machine that starts the run. An epoch that cannot end in time is not begun."""
    cost: Money | None = None
    """The most that all nodes may cost together, in the currency of `price_per_node_hour`: each from when it
    joined to when it left. An epoch that cannot end in it is not begun."""
    price_per_node_hour: Money | None = None
    """The price of an hour of a node, unless the node has [another](environment.md). Without `cost` it bounds
    nothing: forecasts show the run's cost."""
    target: float | None = None
    """A value of the objective that is good enough."""

    @property
    def ends(self) -> bool:
        """Whether the search ends in any case, however good its configs are."""
        return bool(self.model_dump(exclude_none=True).keys() - {"target", "price_per_node_hour"})

    @property
    def seconds(self) -> float | None:
        """The seconds since the first unit began; ``None``: any number."""
        return self.timeout if self.hours is None else self.hours * 3600

    @property
    def until(self) -> float | None:
        """The ``deadline`` in seconds since 1970."""
        return None if self.deadline is None else datetime.fromisoformat(self.deadline).timestamp()

    @model_validator(mode="after")
    def _one_time(self) -> Self:
        if self.timeout is not None and self.hours is not None:
            raise ValueError("`timeout` and `hours` are the same in seconds and hours: leave one out")
        return self

    @model_validator(mode="after")
    def _cost_has_a_price(self) -> Self:
        if self.cost is not None and self.price_per_node_hour is None:
            raise ValueError("`cost` needs `price_per_node_hour`, the price of an hour of a node: give both")
        return self


class Start(Section):
    """The checkpoint from which every config begins: one of another run, or one at a URL."""

    run: Url | None = None
    """Another run's folder or id. Give either `run`, or `checkpoint` with `digest`, `epoch` and `hparams`."""
    config: str = "best"
    """The config of that run. Its state at the end of its best epoch is used."""
    checkpoint: Url | None = None
    """The URL of a checkpoint."""
    digest: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None = None
    """Its digest."""
    epoch: Count | None = None
    """The number of full epochs before it."""
    hparams: Mapping[str, JsonValue] | None = None
    """The hyper-parameters that made it."""
    bytes: Annotated[int, Field(ge=0)] | None = None
    """Its size in bytes, for the report."""

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        given = {name for name in Start.model_fields if getattr(self, name) is not None}
        if (self.run is None) == (self.checkpoint is None):
            raise ValueError("give either `run`, another run's folder or id, or `checkpoint`, a URL")
        if self.run is not None and given - {"run", "config"}:
            names = ", ".join(sorted(given - {"run", "config"}))
            raise ValueError(f"{names}: the other run sets these; remove them")
        missing = [n for n in ("digest", "epoch", "hparams") if n not in given]
        if self.checkpoint is not None and missing:
            raise ValueError(
                f"a `checkpoint` needs {', '.join(missing)} as well (its run's visits have them); or name "
                "its `run` and `config`"
            )
        return self


class KnownConfig(Section):
    """A config of another run, as samplers see it."""

    hparams: Mapping[str, JsonValue]
    """Its hyper-parameters by name."""
    curve: Annotated[tuple[Mapping[str, float], ...], Field(strict=False)]
    """The metrics at the end of each epoch."""
    finished: bool = True
    """Whether it trained to its end."""
    space: Mapping[str, str] = Field(default={})
    """Optuna's distribution of each hyper-parameter as JSON, if the space is a function."""


def _known(value: object) -> object:
    """One run, or a list."""
    runs = [value] if isinstance(value, str) else value
    return [path_or_url(run) for run in runs] if isinstance(runs, list | tuple) else runs


class SearchSection(Section):
    """The configs of a run, and how far they are trained."""

    has_rungs: ClassVar[bool] = False
    """Whether good configs should run ahead of the others."""

    method: Annotated[str, registered("cerebro.search")] = "grid"
    """`grid` (every point), `random` (points drawn), or another [search](../how-to/search.md)."""
    space: Mapping[str, Domain] = Field(default={})
    """Hyper-parameters by name, and their values; see [below](#the-search-space)."""
    space_fn: Reference | None = None
    """Instead of `space`: a function `module:name` that draws values from an optuna trial."""
    num: Positive | None = None
    """The number of different configs; for `pbt`, the size of the population."""
    constraints: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Conditions between hyper-parameters; see [below](#the-search-space)."""
    enqueue: Annotated[tuple[Mapping[str, JsonValue], ...], Field(strict=False)] = ()
    """Points to begin with: a list of mappings."""
    start: Start | None = None
    """A checkpoint from which all configs begin."""
    known: Annotated[tuple[str | KnownConfig, ...], BeforeValidator(_known), Field(strict=False)] = ()
    """Earlier runs (folders or ids) that samplers learn from: a name or a list; see [warm
    starts](../how-to/search.md#warm-starts)."""
    concurrency: Positive | None = None
    """The number of live configs at once. Default: all for `grid`, `random` and `pbt`, else 1.5 times the
    number of nodes. Of `grid` and `random` [only some are trained at a
    time](../how-to/search.md#how-many-configs-at-a-time)."""
    objectives: Annotated[tuple[Objective, ...], Field(strict=False)] | None = None
    """Several objectives instead of the recipe's, each with `metric` and `mode` (`grid`, `random`, `tpe`,
    `gp`, `nsga2`, `qmc`). Recipes may give the list as `objective`."""
    max_epochs: Epochs | None = None
    """Another name for the recipe's `epochs`."""
    budget: Budget = Budget()
    """Where the search ends."""

    @property
    def functions(self) -> Sequence[str]:
        """The functions of the user's files that the search calls, as ``module:name``."""
        named = (self.space_fn, *self.constraints)
        return [name for name in named if name is not None and registry.is_reference(name)]

    @property
    def known_configs(self) -> Sequence[KnownConfig]:
        """The configs in ``known``. (The start of a run replaces names of runs by their configs.)"""
        return [config for config in self.known if isinstance(config, KnownConfig)]

    @property
    def behind(self) -> int:
        """The number of epochs before the start of all configs."""
        return (self.start.epoch or 0) if self.start is not None else 0

    @model_validator(mode="after")
    def _something_to_try(self) -> Self:
        if not self.space and self.space_fn is None:
            raise ValueError(
                "`space` is empty; name at least one hyper-parameter and its values, lr: [0.1, 0.01]"
            )
        if self.space and self.space_fn is not None:
            raise ValueError("`space` and `space_fn` exclude each other: leave one out")
        if self.method == "random" and self.num is None:
            raise ValueError("method random needs `num`, the number of configs to draw")
        if self.method == "grid" and self.num is not None:
            raise ValueError("`num` belongs to method random; a grid tries every point: remove it")
        return self

    @model_validator(mode="after")
    def _takes_several_objectives(self) -> Self:
        if self.objectives is None:
            return self
        names = [objective.metric for objective in self.objectives]
        if len(set(names)) < len(names) or len(names) < 2:
            raise ValueError(f"objectives are {', '.join(names)}: give two or more, each metric once")
        if self.method in _ONE_OBJECTIVE:
            raise ValueError(
                f"method {self.method} compares configs by one metric, but got {len(names)} objectives "
                f"({', '.join(names)}): use {', '.join(_SEVERAL_OBJECTIVES)}, or keep one objective and make "
                "a `constraint` of the others"
            )
        return self

    @model_validator(mode="after")
    def _branches_fit(self) -> Self:
        _check_branches(self.space)
        return self

    @model_validator(mode="after")
    def _enqueued_points_lie_in_the_space(self) -> Self:
        for point in self.enqueue if self.space else ():
            space = active(self.space, point)
            for name, domain in space.items():
                if domain.branches is not None and name in point and point[name] not in domain.branches:
                    near = did_you_mean(str(point[name]), domain.branches)
                    raise ValueError(f"enqueue: {name} is {point[name]!r}, which is no branch of it; {near}")
            unknown = sorted(set(point) - set(space))
            missing = sorted(set(space) - set(point))
            if unknown:
                near = did_you_mean(unknown[0], space)
                if unknown[0] in flattened(self.space):
                    near = f"it is in a branch that the point does not take; those of the point: {near}"
                raise ValueError(f"enqueue: {unknown[0]!r} is not in the space; {near}")
            if missing:
                raise ValueError(f"enqueue: {dict(point)} has no {missing[0]!r}: give every hyper-parameter")
        return self


class EndlessSearch(SearchSection):
    """A method that needs ``num`` or a budget, because it would never end otherwise."""

    @model_validator(mode="after")
    def _ends(self) -> Self:
        if self.num is None and not self.budget.ends:
            raise ValueError(
                f"method {self.method} never ends: give `num`, the number of configs, or a `budget` of "
                "epochs, units, timeout, hours, deadline or cost"
            )
        return self


class _WithSampler(EndlessSearch):
    sampler: Sampler = "random"
    """Where new configs come from: `random`, `tpe`, `cmaes`, `gp`, `qmc`, `nsga2`, `tune`."""
    options: Arguments = Field(default={})
    """Arguments of the sampler, as for `tpe` and `tune`."""


class SampledSearch(EndlessSearch):
    """Every config is trained to its end. The sampler of the method's name proposes the next one: one of
    optuna's, or `tune`."""

    options: Arguments = Field(default={})
    """Arguments of optuna's sampler, such as `n_startup_trials`. For `tune`: the `searcher` of Ray Tune, and
    its arguments."""


class MedianSearch(_WithSampler):
    """Stops configs that are worse than the median of the others at the same epoch. The keys have the names
    of optuna's ``MedianPruner``."""

    n_startup_trials: Positive = 5
    """How many configs must reach an epoch before any config is stopped there."""
    n_warmup_steps: Count = 0
    """Epochs at the beginning in which no config is stopped."""
    interval_steps: Positive = 1
    """Configs are compared every this many epochs."""


class AshaSearch(_WithSampler):
    """Configs pause at rungs, and the best of each rung continue. The keys have the names of optuna's
    ``SuccessiveHalvingPruner``."""

    has_rungs: ClassVar[bool] = True

    reduction_factor: Annotated[int, Field(ge=2, lt=2**31)] = 3
    """One in this many configs is promoted from a rung."""
    min_resource: Positive = 1
    """The position of the first rung."""
    resource: Literal["epochs", "units"] = "epochs"
    """The unit of rungs: `epochs`, or `units` for rungs inside an epoch."""
    metric: str | None = None
    """The metric that rungs compare, instead of the objective's. Inside an epoch, name one that is known
    there."""


class HyperbandSearch(AshaSearch):
    """Brackets of successive halving that begin at different rungs. Without ``num`` or a budget, each bracket
    runs once."""

    asynchronous: bool = False
    """A rung promotes configs as they arrive, without waiting for all of them."""

    @model_validator(mode="after")
    def _ends(self) -> Self:
        return self


class PbtSearch(SearchSection):
    """A population of ``num`` configs. At every interval a clone of one of the best configs, with changed
    hyper-parameters, replaces one of the worst."""

    perturbation_interval: Positive = 1
    """How far configs train between comparisons."""
    resource: Literal["epochs", "units"] = "epochs"
    """The unit of the interval: `epochs` or `units`."""
    metric: str | None = None
    """The metric that is compared, instead of the objective's."""
    quantile_fraction: Annotated[float, Field(gt=0, le=0.5)] = 0.25
    """The share of configs that count as worst, and as best."""
    resample_probability: Annotated[float, Field(ge=0, le=1)] = 0.25
    """The probability that a hyper-parameter is drawn again instead of multiplied."""
    perturbation_factors: Annotated[tuple[float, ...], Field(strict=False, min_length=1)] = (0.8, 1.2)
    """A hyper-parameter is multiplied by one of these."""
    perturb: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """The hyper-parameters that change. All, if the list is empty."""

    @model_validator(mode="after")
    def _a_population(self) -> Self:
        if self.num is None:
            raise ValueError("method pbt needs `num`, the size of the population")
        if is_branching(self.space):
            raise ValueError(
                "method pbt changes hyper-parameters of configs in training, and a space with `branches` "
                "gives them other ones: use random, tpe, median, asha or hyperband"
            )
        unknown = sorted(set(self.perturb) - set(self.space))
        if unknown and self.space:
            near = did_you_mean(unknown[0], self.space)
            raise ValueError(f"perturb: {unknown[0]!r} is not in the space; {near}")
        return self


class OtherSearch(SearchSection):
    """A method of a plugin, which checks the other keys itself."""

    model_config = ConfigDict(extra="allow")


_SEVERAL_OBJECTIVES = ("grid", "random", "tpe", "gp", "nsga2", "qmc")
_ONE_OBJECTIVE = ("cmaes", "tune", "median", "asha", "hyperband", "bohb", "pbt")

SEARCHES: Mapping[str, type[SearchSection]] = {
    "grid": SearchSection,
    "random": SearchSection,
    **dict.fromkeys(("tpe", "cmaes", "gp", "qmc", "nsga2", "tune"), SampledSearch),
    "median": MedianSearch,
    "asha": AshaSearch,
    "hyperband": HyperbandSearch,
    "bohb": HyperbandSearch,
    "pbt": PbtSearch,
}
"""The sections of this package's methods."""


def search_type(method: object) -> type[SearchSection]:
    own = registry.BUILT_IN["cerebro.search"]
    return SEARCHES.get(str(method), OtherSearch if method not in own else SearchSection)


def search_section(value: object, _: object) -> SearchSection:
    """The section of the search's method. Errors inside it keep their place in the recipe."""
    if isinstance(value, SearchSection):
        return value
    method: Any = value.get("method", "grid") if isinstance(value, Mapping) else "grid"
    known = method in registry.names("cerebro.search")
    return (search_type(method) if known else SearchSection).model_validate(value)
