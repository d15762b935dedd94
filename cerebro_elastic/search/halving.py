"""Successive halving: asynchronous (ASHA, Li et al. 2020), in brackets (Hyperband, Li et al. 2018), and with
a model of the space (BOHB, Falkner et al. 2018).

A rung is an amount of training after which configs are compared. A config that reaches a rung is promoted if
it is among the best ``1 / reduction_factor`` of the configs that have reached it. Otherwise it rests: it is
stopped and keeps its checkpoint, and it is resumed if it becomes one of the best later. In a synchronous
bracket a rung decides when all of its configs have reached it.

The rungs also show which searches allow an extension of a run: the search must decide as in a run of that
length from the start, apart from the times at which results are known.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from cerebro_elastic.core.model.configs import Status
from cerebro_elastic.core.model.interfaces import ConfigView, Decision, Resume, Search, SearchContext, Stop
from cerebro_elastic.errors import RecipeError
from cerebro_elastic.recipes import Recipe
from cerebro_elastic.recipes.search import AshaSearch, HyperbandSearch
from cerebro_elastic.search.criterion import Criterion, Resource, ranked
from cerebro_elastic.search.procedure import MedianStopping, Procedure, at_rest
from cerebro_elastic.search.sampling import make_sampler
from cerebro_elastic.search.standings import Standings, gone
from cerebro_elastic.system.words import counted


@dataclass(frozen=True, slots=True)
class Bracket:
    """Configs that are compared at the same rungs."""

    size: int | None
    """The number of the bracket's configs; ``None`` for any number."""
    rungs: Sequence[int]
    """Epochs or units, ascending."""


Plan: TypeAlias = Callable[[int], Sequence[Bracket]]
"""From the epochs or units of a whole training to the brackets."""


class Halving(Procedure):
    """Successive halving in the brackets of ``plan``. New configs fill one bracket after the other."""

    def __init__(self, recipe: Recipe, sampler: str, plan: Plan, *, synchronous: bool) -> None:
        section = recipe.search
        assert isinstance(section, AshaSearch)
        criterion = Criterion.of(recipe.objective, section.metric)
        super().__init__(recipe, make_sampler(recipe, sampler, section), criterion)
        self._factor = section.reduction_factor
        self._resource = Resource(section.resource)
        self._plan = plan
        self.synchronous = synchronous
        """A rung decides when all configs of its bracket have reached it."""
        self._standings: dict[int, Standings] = {}
        """By bracket, if asynchronous: they follow from the configs, and are cached for speed."""
        if recipe.data.url is None:
            self.brackets(SearchContext(partitions=recipe.data.partitions, epochs=recipe.epochs))

    def brackets(self, context: SearchContext) -> Sequence[Bracket]:
        """The brackets of one round. Their rungs include the epochs of a warm start."""
        epoch = context.partitions if self._resource.unit == "units" else 1
        behind = self.recipe.search.behind * epoch
        brackets = self._plan(context.epochs * epoch - behind)
        return [replace(b, rungs=[behind + rung for rung in b.rungs]) for b in brackets]

    def limit(self, context: SearchContext) -> int:
        """One round of brackets, if they have sizes and no budget ends the search."""
        sizes = [bracket.size for bracket in self.brackets(context)]
        if None in sizes or self.recipe.search.budget.ends:
            return super().limit(context)
        return sum(size for size in sizes if size)

    def origin(self, known: Sequence[ConfigView], context: SearchContext) -> dict[str, object]:
        """The bracket's number, counted across rounds."""
        brackets = self.brackets(context)
        return {} if len(brackets) == 1 else {"bracket": _number(brackets, len(known))}

    def judge(self, context: SearchContext) -> Sequence[Decision]:
        plan = self.brackets(context)
        brackets = {0: context.proposed} if len(plan) == 1 else _by_bracket(context.proposed)
        judged = [
            decision
            for number, members in brackets.items()
            for decision in (
                self._judged(plan[number % len(plan)], members, context)
                if self.synchronous
                else self._judged_alone(number, plan[number % len(plan)], members, context)
            )
        ]
        # A config that rests makes room for one that is resumed.
        stops = [decision for decision in judged if isinstance(decision, Stop)]
        return stops or judged[: max(0, self.slots(context))]

    def _judged(
        self, bracket: Bracket, members: Sequence[ConfigView], context: SearchContext
    ) -> Iterator[Decision]:
        """Decisions of a bracket whose rungs wait for their configs; from the highest rung down, so that the
        furthest config is resumed first."""
        for rung, awaited in reversed(list(self._rungs(bracket, members, context))):
            points = [point for view in members if (point := self._resource.at(view, rung))]
            self.criterion.check_logged_at(points)
            best = {other.config for other in self._promoted(rung, awaited)}
            for view in members:
                if self._resource.of(view) == rung and at_rest(view):
                    if view.config in best and view.status is Status.STOPPED:
                        yield Resume(view.config, f"among the best at {self._where(rung, context)}")
                    elif view.config not in best and view.status is Status.LIVE:
                        yield Stop(view.config, self._reason_to_rest(view, rung, context))

    def _judged_alone(
        self, number: int, bracket: Bracket, members: Sequence[ConfigView], context: SearchContext
    ) -> Iterator[Decision]:
        """``_judged`` where no rung waits for configs: each continues or rests by comparison with the configs
        that have arrived."""
        standings = self._standings.get(number)
        if standings is None or [*standings.rungs] != [*bracket.rungs] or not standings.update(members):
            standings = self._standings[number] = Standings(self.criterion, self._resource, bracket.rungs)
            standings.update(members)
        for at, rung in reversed(standings.rungs.items()):
            if rung.arrived:
                points = (self._resource.at(view, at) for view in members)
                self.criterion.check_logged_at(point for point in points if point is not None)
            last = rung.worst_promoted(self._factor)
            for place in sorted(
                [place for _, place in rung.resting[: bisect_right(rung.resting, last)]]
                + [place for _, place in rung.arrived[bisect_right(rung.arrived, last) :]]
            ):
                view = members[place]
                if view.status is Status.STOPPED:
                    yield Resume(view.config, f"among the best at {self._where(at, context)}")
                else:
                    yield Stop(view.config, self._reason_to_rest(view, at, context))

    def _rungs(
        self, bracket: Bracket, members: Sequence[ConfigView], context: SearchContext
    ) -> Iterator[tuple[int, Sequence[ConfigView]]]:
        """The rungs, each with the configs that it awaits."""
        grows = self._grows(bracket, members, context)
        awaited = [*members, ConfigView("to come", {})] if grows else members
        for rung in bracket.rungs:
            yield rung, awaited
            awaited = self._promoted(rung, awaited)

    def _grows(self, bracket: Bracket, members: Sequence[ConfigView], context: SearchContext) -> bool:
        """Whether the bracket gets further configs."""
        if len(members) >= (bracket.size or 0) or self.left(context) <= 0:
            return False
        return bool(context.live) or self.sample(context.proposed) is not None

    def _promoted(self, rung: int, awaited: Sequence[ConfigView]) -> list[ConfigView]:
        """The configs promoted from the rung; none while an awaited config can still reach it."""
        awaited = [view for view in awaited if not gone(view)]
        if any(self._resource.of(view) < rung for view in awaited):
            return []
        return ranked((self._at(view, rung), view) for view in awaited)[: len(awaited) // self._factor]

    def _at(self, view: ConfigView, rung: int) -> float:
        point = self._resource.at(view, rung)
        return math.inf if point is None else self.criterion.loss(point)

    def _where(self, rung: int, context: SearchContext) -> str:
        return self._resource.text(rung, context.partitions)

    def _reason_to_rest(self, view: ConfigView, rung: int, context: SearchContext) -> str:
        return f"rests with {self.criterion.text(self._at(view, rung))} after {self._where(rung, context)}"


def _by_bracket(views: Sequence[ConfigView]) -> Mapping[int, Sequence[ConfigView]]:
    brackets: dict[int, list[ConfigView]] = {}
    for view in views:
        brackets.setdefault(int(view.origin.get("bracket", 0)), []).append(view)
    return brackets


def _number(brackets: Sequence[Bracket], place: int) -> int:
    """The bracket of the config proposed as number ``place``."""
    sizes = [bracket.size or 1 for bracket in brackets]
    number, rest = divmod(place, sum(sizes))
    number *= len(sizes)
    for size in sizes:
        if rest < size:
            break
        number, rest = number + 1, rest - size
    return number


def asha(recipe: Recipe) -> Halving:
    """Asynchronous successive halving: one unlimited bracket."""
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
    """Brackets from the one with the most configs and rungs to the one without rungs (Li et al. 2018,
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
    """Hyperband with configs that TPE proposes from the results so far."""
    return hyperband(recipe, "tpe")


def _rungs_below(end: int, recipe: Recipe, section: AshaSearch) -> Sequence[int]:
    """Rungs from ``min_resource`` on, each ``reduction_factor`` times as far as the previous one. Raises
    ``RecipeError`` if none exists."""
    rungs = []
    rung = section.min_resource
    while rung < end:
        rungs.append(rung)
        rung *= section.reduction_factor
    if not rungs:
        lower = "lower min_resource, or " if section.min_resource > 1 else ""
        first = counted(section.min_resource, section.resource.removesuffix("s"))
        raise RecipeError(
            f"{recipe.source.where(('search', 'min_resource'))}: the first rung is at {first}, but configs "
            f"are trained for {end}, and a rung compares what may continue: {lower}raise epochs"
        )
    return rungs


def why_not_longer(search: Search, recipe: Recipe, context: SearchContext, epochs: int) -> str | None:
    """Why configs cannot be trained for ``epochs`` epochs after those of ``context``; ``None`` if the search
    does not depend on their number. ``search`` is that of the longer run."""
    method = recipe.search.method
    if isinstance(search, Halving):
        before, after = search.brackets(context), search.brackets(replace(context, epochs=epochs))
        if [bracket.size for bracket in before] == [None]:
            return None  # asha: the same rungs, and perhaps further ones; configs wait at those
        if before == after:
            return None
        return (
            f"method {method} puts its rungs at {_rungs(before)}, and would put them at {_rungs(after)} for "
            f"{counted(epochs, 'epoch')}: its brackets would have other sizes, and promote other configs"
        )
    if type(search) in (Procedure, MedianStopping):
        return None
    return (
        f"method {method} decides by the number of epochs: in a longer run it would have stopped, changed or "
        "copied configs where they have ended now"
    )


def why_not_more(search: Search, recipe: Recipe) -> str | None:
    """Why the search cannot get a greater ``num``."""
    method = recipe.search.method
    if method == "grid":
        return (
            "method grid has tried every point of its space: run a recipe with a larger space, and name this "
            "run in search.known, so that no point is trained twice"
        )
    asynchronous = isinstance(search, Halving) and not search.synchronous
    if type(search) in (Procedure, MedianStopping) or asynchronous:
        return None
    return (
        f"method {method} compares configs in groups of a fixed size, which are decided: a run with more "
        "configs would have decided otherwise"
    )


def _rungs(brackets: Sequence[Bracket]) -> str:
    return ", ".join("-".join(map(str, bracket.rungs)) or "none" for bracket in brackets)
