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

from cerebro_elastic.core.model.interfaces import Outlook, Resume, Standing, Stop, Verdict
from cerebro_elastic.core.model.values import Status
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
            self.brackets(Outlook(partitions=recipe.data.partitions, epochs=recipe.epochs))

    def brackets(self, outlook: Outlook) -> Sequence[Bracket]:
        """The brackets of one round; rungs count from where configs begin."""
        epoch = outlook.partitions if self._resource.unit == "units" else 1
        behind = self.recipe.search.behind * epoch
        brackets = self._plan(outlook.epochs * epoch - behind)
        return [replace(b, rungs=[behind + rung for rung in b.rungs]) for b in brackets]

    def limit(self, outlook: Outlook) -> int:
        """Each bracket once, if they have a size and nothing else ends the search."""
        sizes = [bracket.size for bracket in self.brackets(outlook)]
        if None in sizes or self.recipe.search.budget.ends:
            return super().limit(outlook)
        return sum(size for size in sizes if size)

    def origin(self, known: Sequence[Standing], outlook: Outlook) -> dict[str, object]:
        """The bracket's number, counted on when they begin again."""
        brackets = self.brackets(outlook)
        return {} if len(brackets) == 1 else {"bracket": _number(brackets, len(known))}

    def judge(self, outlook: Outlook) -> Sequence[Verdict]:
        brackets: dict[int, list[Standing]] = {}
        for standing in outlook.proposed:
            brackets.setdefault(int(standing.origin.get("bracket", 0)), []).append(standing)
        plan = self.brackets(outlook)
        judged = [
            verdict
            for number, members in brackets.items()
            for verdict in self._judged(plan[number % len(plan)], members, outlook)
        ]
        # What rests makes room for who goes on.
        stops = [verdict for verdict in judged if isinstance(verdict, Stop)]
        return stops or judged[: max(0, self.slots(outlook))]

    def _judged(self, bracket: Bracket, members: Sequence[Standing], outlook: Outlook) -> Iterator[Verdict]:
        """From the highest rung down, so that who has come far is resumed first."""
        for rung, admitted in reversed(list(self._rungs(bracket, members, outlook))):
            self.objective.check_logged_at([p for s in members if (p := self._resource.at(s, rung))])
            best = {s.config for s in self._promoted(members, rung, admitted)}
            for standing in members:
                if self._resource.of(standing) == rung and at_rest(standing):
                    if standing.config in best and standing.status is Status.STOPPED:
                        yield Resume(standing.config, f"among the best at {self._where(rung, outlook)}")
                    elif standing.config not in best and standing.status is Status.LIVE:
                        yield Stop(standing.config, self._told(standing, rung, outlook))

    def _rungs(
        self, bracket: Bracket, members: Sequence[Standing], outlook: Outlook
    ) -> Iterator[tuple[int, Sequence[Standing] | None]]:
        """The rungs, each with the configs for which it waits, if it does."""
        awaited: Sequence[Standing] | None = None
        if self._synchronous:
            awaited = (
                [*members, Standing("to come", {})] if self._grows(bracket, members, outlook) else members
            )
        for rung in bracket.rungs:
            yield rung, awaited
            if awaited is not None:
                awaited = self._promoted(members, rung, awaited)

    def _grows(self, bracket: Bracket, members: Sequence[Standing], outlook: Outlook) -> bool:
        """Whether the bracket gets further configs: it does not if there are no more."""
        if len(members) >= (bracket.size or 0) or self.left(outlook) <= 0:
            return False
        anybody = any(s.status is Status.LIVE for s in outlook.standings)
        return anybody or self.sample(outlook.proposed) is not None

    def _promoted(
        self, members: Sequence[Standing], rung: int, awaited: Sequence[Standing] | None
    ) -> list[Standing]:
        """Who goes on from the rung; nobody, while one is awaited who can still come."""
        if awaited is None:
            arrived = [s for s in members if not _gone(s) and self._resource.of(s) >= rung]
            return self._best(arrived, rung, len(arrived))
        if any(not _gone(s) and self._resource.of(s) < rung for s in awaited):
            return []
        return self._best([s for s in awaited if not _gone(s)], rung, len(awaited))

    def _best(self, arrived: Sequence[Standing], rung: int, count: int) -> list[Standing]:
        return ranked((self._at(s, rung), s) for s in arrived)[: count // self._factor]

    def _at(self, standing: Standing, rung: int) -> float:
        point = self._resource.at(standing, rung)
        return math.inf if point is None else self.objective.loss(point)

    def _where(self, rung: int, outlook: Outlook) -> str:
        return self._resource.told(rung, outlook.partitions)

    def _told(self, standing: Standing, rung: int, outlook: Outlook) -> str:
        return (
            f"rests with {self.objective.told(self._at(standing, rung))} after {self._where(rung, outlook)}"
        )


def _gone(standing: Standing) -> bool:
    """Failed, which says nothing of a point, or stopped by a person."""
    return standing.status is Status.FAILED or (standing.by_hand and standing.status is Status.STOPPED)


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
