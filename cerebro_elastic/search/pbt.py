"""Population based training (Jaderberg et al. 2017): the worst go on from the states of the best, with other
hyper-parameters.

Who comes to the end of an interval is judged against those that have come as far before. One of the worst
stops, and in its place in the population a child of one of the best begins: it goes on from its parent's last
committed checkpoint, which is shared and not copied.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

from cerebro_elastic.core.model.configs import HParams, Status
from cerebro_elastic.core.model.interfaces import ConfigView, Decision, Proposal, SearchContext, Stop
from cerebro_elastic.errors import RecipeError
from cerebro_elastic.recipes import Recipe
from cerebro_elastic.recipes.search import PbtSearch
from cerebro_elastic.search.budget import exhausted
from cerebro_elastic.search.constraints import constraint_of
from cerebro_elastic.search.objective import Objective, Resource, ranked
from cerebro_elastic.search.procedure import Procedure, at_rest
from cerebro_elastic.search.sampling import RandomSampler
from cerebro_elastic.search.space import draw, perturbed

_TRIES = 100


class PopulationBasedTraining(Procedure):
    """The origin of each config has the number of its ``member`` of the population."""

    def __init__(self, recipe: Recipe) -> None:
        section = recipe.search
        assert isinstance(section, PbtSearch)
        objective = Objective.of(recipe.objective, section.metric)
        super().__init__(recipe, RandomSampler(recipe), objective, eager=True)
        self._section = section
        self._resource = Resource(section.resource)
        self._holds = constraint_of(recipe)
        self._perturb = section.perturb or tuple(sorted(section.space))
        least, most = math.ceil(1 / section.quantile_fraction), recipe.limits.configs
        if section.num is not None and section.num > most:
            raise RecipeError(
                f"{recipe.source.where(('search', 'num'))}: a population of {section.num} is over {most} "
                "configs (limits.configs); make it smaller or raise the limit"
            )
        if section.num is not None and section.num < least:
            raise RecipeError(
                f"{recipe.source.where(('search', 'num'))}: a population of {section.num} has no worst "
                f"{section.quantile_fraction:g} (quantile_fraction): it takes at least {least}"
            )

    def judge(self, context: SearchContext) -> Sequence[Decision]:
        live = [s for s in context.proposed if s.status is Status.LIVE and at_rest(s)]
        return [Stop(s.config, told) for s in live if (told := self._verdict(s, context)) is not None]

    def propose(self, context: SearchContext) -> Sequence[Proposal]:
        """The population, then a child in the place of each that was stopped."""
        assert self._section.num is not None
        if len(context.proposed) < self._section.num:
            return super().propose(context)
        if exhausted(self.recipe.search.budget, context, self._overall) is not None:
            return ()
        places = [s for s in _present(context) if s.status is Status.STOPPED and not s.by_hand]
        room = min(self.slots(context), self.recipe.limits.configs - len(context.proposed))
        children = (self._child(view, context) for view in places)
        return [child for child in children if child is not None][: max(0, room)]

    def origin(self, known: Sequence[ConfigView], context: SearchContext) -> dict[str, object]:
        del context
        return {"member": len(known)}

    def _verdict(self, view: ConfigView, context: SearchContext) -> str | None:
        """Why the config makes way for another's child, if it does."""
        reached = self._resource.of(view)
        own = self._resource.at(view, reached)
        if own is None or reached % self._section.perturbation_interval or reached >= self._end(context):
            return None
        self.objective.check_logged_at([own])
        rivals = self._rivals(reached, context)
        worst = int(len(rivals) * self._section.quantile_fraction)
        order = ranked((self._loss(s, reached), s) for s in rivals)
        if worst == 0 or view in order[: len(rivals) - worst] or not self._parents(view, context):
            return None
        told = self.objective.told(self.objective.loss(own))
        where = self._resource.told(reached, context.partitions)
        return f"among the worst with {told} after {where}: a child of one of the best takes its place"

    def _child(self, view: ConfigView, context: SearchContext) -> Proposal | None:
        """Exploit and explore: a copy of one of the best that can still go on, perturbed."""
        parents = self._parents(view, context)
        if not parents:
            return None
        rng = random.Random(f"{self.recipe.seed}/{view.config}/{self._resource.of(view)}")
        parent = rng.choice(parents)
        origin = {"member": view.origin["member"], "replaces": view.config}
        return Proposal(self._explored(parent.hparams, rng), parent.config, origin)

    def _parents(self, view: ConfigView, context: SearchContext) -> list[ConfigView]:
        """The best of those that have come as far, if they still go on."""
        reached = self._resource.of(view)
        rivals = self._rivals(reached, context)
        most = math.ceil(len(rivals) * self._section.quantile_fraction)
        best = ranked((self._loss(s, reached), s) for s in rivals)[:most]
        return [s for s in best if s.status is Status.LIVE and s is not view]

    def _rivals(self, reached: int, context: SearchContext) -> list[ConfigView]:
        return [
            s
            for s in context.proposed
            if s.status is not Status.FAILED and self._resource.at(s, reached) is not None
        ]

    def _loss(self, view: ConfigView, reached: int) -> float:
        point = self._resource.at(view, reached)
        return math.inf if point is None else self.objective.loss(point)

    def _end(self, context: SearchContext) -> int:
        return context.epochs * (context.partitions if self._resource.unit == "units" else 1)

    def _explored(self, hparams: HParams, rng: random.Random) -> HParams:
        """Other hyper-parameters in the space; the same, if the constraints leave no others."""
        for _ in range(_TRIES):
            point = {**hparams, **{name: self._moved(name, hparams[name], rng) for name in self._perturb}}
            if self._holds(point):
                return point
        return hparams

    def _moved(self, name: str, value: Any, rng: random.Random) -> Any:
        domain = self._section.space[name]
        if rng.random() < self._section.resample_probability:
            return draw(domain, rng)
        return perturbed(domain, value, rng.choice(self._section.perturbation_factors))


def _present(context: SearchContext) -> list[ConfigView]:
    """Who holds each place in the population now: the last config that was proposed for it."""
    return list({view.origin["member"]: view for view in context.proposed}.values())
