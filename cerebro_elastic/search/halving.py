"""Successive halving: asynchronous (ASHA, Li et al. 2020), in brackets (Hyperband, Li et al. 2018), and with
a model of the space (BOHB, Falkner et al. 2018).

A config that comes to a rung rests there (it is stopped, and keeps its checkpoint), unless it is among the
best ``1 / reduction_factor`` of those that have come so far: these go on, and who rests is resumed when it
comes to be among them. In a synchronous bracket a rung decides when all of its configs have come.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from cerebro_elastic.core.model.configs import Status
from cerebro_elastic.core.model.interfaces import ConfigView, Decision, Resume, SearchContext, Stop
from cerebro_elastic.errors import RecipeError
from cerebro_elastic.recipes import Recipe
from cerebro_elastic.recipes.search import AshaSearch, HyperbandSearch
from cerebro_elastic.search.methods import make_sampler
from cerebro_elastic.search.objective import Objective, Resource, ranked
from cerebro_elastic.search.procedure import Procedure, at_rest


@dataclass(frozen=True, slots=True)
class Bracket:
    """``size`` configs (``None``: as they come) that are compared when they have come as far as each of the
    ``rungs``, which rise."""

    size: int | None
    rungs: Sequence[int]


Plan: TypeAlias = Callable[[int], Sequence[Bracket]]
"""The brackets for configs that are trained for so many epochs or units."""


class Halving(Procedure):
    """Successive halving in the brackets of ``plan``, which get their configs one after the other."""

    def __init__(self, recipe: Recipe, sampler: str, plan: Plan, *, synchronous: bool) -> None:
        section = recipe.search
        assert isinstance(section, AshaSearch)
        objective = Objective.of(recipe.objective, section.metric)
        super().__init__(recipe, make_sampler(recipe, sampler, section), objective)
        self._factor = section.reduction_factor
        self._resource = Resource(section.resource)
        self._plan = plan
        self._synchronous = synchronous
        if recipe.data.source is not None:
            self.brackets(SearchContext(partitions=recipe.data.partitions, epochs=recipe.epochs))

    def brackets(self, context: SearchContext) -> Sequence[Bracket]:
        """The brackets of one round; rungs count from where configs begin."""
        epoch = context.partitions if self._resource.unit == "units" else 1
        behind = self.recipe.search.behind * epoch
        brackets = self._plan(context.epochs * epoch - behind)
        return [replace(b, rungs=[behind + rung for rung in b.rungs]) for b in brackets]

    def limit(self, context: SearchContext) -> int:
        """Each bracket once, if they have a size and nothing else ends the search."""
        sizes = [bracket.size for bracket in self.brackets(context)]
        if None in sizes or self.recipe.search.budget.ends:
            return super().limit(context)
        return sum(size for size in sizes if size)

    def origin(self, known: Sequence[ConfigView], context: SearchContext) -> dict[str, object]:
        """The bracket's number, counted on when they begin again."""
        brackets = self.brackets(context)
        return {} if len(brackets) == 1 else {"bracket": _number(brackets, len(known))}

    def judge(self, context: SearchContext) -> Sequence[Decision]:
        brackets: dict[int, list[ConfigView]] = {}
        for view in context.proposed:
            brackets.setdefault(int(view.origin.get("bracket", 0)), []).append(view)
        plan = self.brackets(context)
        judged = [
            decision
            for number, members in brackets.items()
            for decision in self._judged(plan[number % len(plan)], members, context)
        ]
        # What rests makes room for who goes on.
        stops = [decision for decision in judged if isinstance(decision, Stop)]
        return stops or judged[: max(0, self.slots(context))]

    def _judged(
        self, bracket: Bracket, members: Sequence[ConfigView], context: SearchContext
    ) -> Iterator[Decision]:
        """From the highest rung down, so that who has come far is resumed first."""
        for rung, admitted in reversed(list(self._rungs(bracket, members, context))):
            self.objective.check_logged_at([p for s in members if (p := self._resource.at(s, rung))])
            best = {s.config for s in self._promoted(members, rung, admitted)}
            for view in members:
                if self._resource.of(view) == rung and at_rest(view):
                    if view.config in best and view.status is Status.STOPPED:
                        yield Resume(view.config, f"among the best at {self._where(rung, context)}")
                    elif view.config not in best and view.status is Status.LIVE:
                        yield Stop(view.config, self._told(view, rung, context))

    def _rungs(
        self, bracket: Bracket, members: Sequence[ConfigView], context: SearchContext
    ) -> Iterator[tuple[int, Sequence[ConfigView] | None]]:
        """The rungs, each with the configs for which it waits, if it does."""
        awaited: Sequence[ConfigView] | None = None
        if self._synchronous:
            awaited = (
                [*members, ConfigView("to come", {})] if self._grows(bracket, members, context) else members
            )
        for rung in bracket.rungs:
            yield rung, awaited
            if awaited is not None:
                awaited = self._promoted(members, rung, awaited)

    def _grows(self, bracket: Bracket, members: Sequence[ConfigView], context: SearchContext) -> bool:
        """Whether the bracket gets further configs: it does not if there are no more."""
        if len(members) >= (bracket.size or 0) or self.left(context) <= 0:
            return False
        anybody = any(s.status is Status.LIVE for s in context.configs)
        return anybody or self.sample(context.proposed) is not None

    def _promoted(
        self, members: Sequence[ConfigView], rung: int, awaited: Sequence[ConfigView] | None
    ) -> list[ConfigView]:
        """Who goes on from the rung; nobody, while one is awaited who can still come."""
        if awaited is None:
            arrived = [s for s in members if not _gone(s) and self._resource.of(s) >= rung]
            return self._best(arrived, rung, len(arrived))
        if any(not _gone(s) and self._resource.of(s) < rung for s in awaited):
            return []
        return self._best([s for s in awaited if not _gone(s)], rung, len(awaited))

    def _best(self, arrived: Sequence[ConfigView], rung: int, count: int) -> list[ConfigView]:
        return ranked((self._at(s, rung), s) for s in arrived)[: count // self._factor]

    def _at(self, view: ConfigView, rung: int) -> float:
        point = self._resource.at(view, rung)
        return math.inf if point is None else self.objective.loss(point)

    def _where(self, rung: int, context: SearchContext) -> str:
        return self._resource.told(rung, context.partitions)

    def _told(self, view: ConfigView, rung: int, context: SearchContext) -> str:
        return f"rests with {self.objective.told(self._at(view, rung))} after {self._where(rung, context)}"


def _gone(view: ConfigView) -> bool:
    """Failed, which says nothing of a point, or stopped by a person."""
    return view.status is Status.FAILED or (view.by_hand and view.status is Status.STOPPED)


def _number(brackets: Sequence[Bracket], place: int) -> int:
    """The bracket of the config that is proposed as number ``place``."""
    sizes = [bracket.size or 1 for bracket in brackets]
    number, rest = divmod(place, sum(sizes))
    number *= len(sizes)
    for size in sizes:
        if rest < size:
            break
        number, rest = number + 1, rest - size
    return number


def asha(recipe: Recipe) -> Halving:
    """Asynchronous successive halving: one bracket without end."""
    section = recipe.search
    assert isinstance(section, AshaSearch)

    def plan(end: int) -> Sequence[Bracket]:
        rungs = _rungs_below(end, recipe, section)
        needed = section.reduction_factor ** len(rungs)
        if section.num is not None and section.num < needed:
            raise RecipeError(
                f"{recipe.source.where(('search', 'num'))}: num is {section.num}, but with rungs at "
                f"{', '.join(map(str, rungs))} {section.resource} and reduction_factor "
                f"{section.reduction_factor} it takes {needed} configs for one to come to the end: raise "
                "num, or min_resource or reduction_factor for fewer rungs"
            )
        return [Bracket(None, rungs)]

    return Halving(recipe, section.sampler, plan, synchronous=False)


def hyperband(recipe: Recipe, sampler: str | None = None) -> Halving:
    """Brackets from the one with most configs and rungs to the one without any rung (Li et al. 2018,
    algorithm 1)."""
    section = recipe.search
    assert isinstance(section, HyperbandSearch)

    def plan(end: int) -> Sequence[Bracket]:
        rungs, factor = _rungs_below(end, recipe, section), section.reduction_factor
        most = len(rungs)
        return [
            Bracket(math.ceil((most + 1) / (left + 1) * factor**left), rungs[most - left :])
            for left in range(most, -1, -1)
        ]

    return Halving(recipe, sampler or section.sampler, plan, synchronous=not section.asynchronous)


def bohb(recipe: Recipe) -> Halving:
    """Hyperband whose configs TPE proposes, from what those before have come to."""
    return hyperband(recipe, "tpe")


def _rungs_below(end: int, recipe: Recipe, section: AshaSearch) -> Sequence[int]:
    """Rungs from ``min_resource`` on, each ``reduction_factor`` times as far as the last. Raises
    ``RecipeError`` if there is none."""
    rungs = []
    rung = section.min_resource
    while rung < end:
        rungs.append(rung)
        rung *= section.reduction_factor
    if not rungs:
        raise RecipeError(
            f"{recipe.source.where(('search', 'min_resource'))}: the first rung is at {section.min_resource} "
            f"{section.resource}, but configs are trained for {end}: lower min_resource, or raise max_epochs"
        )
    return rungs
