"""Population based training (Jaderberg et al. 2017): changed copies of the best configs replace the worst.

At the end of an interval a config is compared with the configs that have reached the same amount of training.
If it is one of the worst, it stops. Its place in the population goes to a child of one of the best, which
continues from its parent's last committed checkpoint with other hyper-parameters. The checkpoint is shared,
not copied.
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
from cerebro_elastic.search.constraints import constraint_of
from cerebro_elastic.search.criterion import Criterion, Resource, ranked
from cerebro_elastic.search.procedure import Procedure, at_rest
from cerebro_elastic.search.sampling import RandomSampler, draw, perturbed

_TRIES = 100


class PopulationBasedTraining(Procedure):
    """Each config's origin has the number of its place in the population, ``member``."""

    def __init__(self, recipe: Recipe) -> None:
        section = recipe.search
        assert isinstance(section, PbtSearch)
        criterion = Criterion.of(recipe.objective, section.metric)
        super().__init__(recipe, RandomSampler(recipe), criterion, eager=True)
        self._section = section
        self._resource = Resource(section.resource)
        self._holds = constraint_of(recipe)
        self._perturb = section.perturb or tuple(sorted(section.space))
        least = math.ceil(1 / section.quantile_fraction)
        if section.num is not None and section.num < least:
            raise RecipeError(
                f"{recipe.source.where(('search', 'num'))}: a population of {section.num} has no worst "
                f"{section.quantile_fraction:g} (quantile_fraction): it takes at least {least}"
            )

    def judge(self, context: SearchContext) -> Sequence[Decision]:
        live = [view for view in context.proposed if view.status is Status.LIVE and at_rest(view)]
        reasons = ((view, self._reason_to_stop(view, context)) for view in live)
        return [Stop(view.config, reason) for view, reason in reasons if reason is not None]

    def propose(self, context: SearchContext) -> Sequence[Proposal]:
        """The population, then a child for each stopped config."""
        assert self._section.num is not None
        if len(context.proposed) < self._section.num:
            return super().propose(context)
        if self.used_up(context) is not None:
            return ()
        stopped = [
            member for member in _present(context) if member.status is Status.STOPPED and not member.by_hand
        ]
        most = self.recipe.limits.configs - len(context.proposed)
        room = min(self.slots(context), most, self.affordable(context))
        children = (self._child(view, context) for view in stopped)
        return [child for child in children if child is not None][: max(0, room)]

    def origin(self, known: Sequence[ConfigView], context: SearchContext) -> dict[str, object]:
        del context
        return {"member": len(known)}

    def _reason_to_stop(self, view: ConfigView, context: SearchContext) -> str | None:
        """Why a child of another config replaces this one; ``None`` if it stays."""
        reached = self._resource.of(view)
        own = self._resource.at(view, reached)
        if own is None or reached % self._section.perturbation_interval or reached >= self._end(context):
            return None
        self.criterion.check_logged_at([own])
        rivals = self._rivals(reached, context)
        worst = int(len(rivals) * self._section.quantile_fraction)
        order = ranked((self._loss(other, reached), other) for other in rivals)
        if worst == 0 or view in order[: len(rivals) - worst] or not self._parents(view, context):
            return None
        value = self.criterion.text(self.criterion.loss(own))
        where = self._resource.text(reached, context.partitions)
        return f"among the worst with {value} after {where}: a child of one of the best takes its place"

    def _child(self, view: ConfigView, context: SearchContext) -> Proposal | None:
        """Exploit and explore: a perturbed copy of one of the best configs that are still live."""
        parents = self._parents(view, context)
        if not parents:
            return None
        rng = random.Random(f"{self.recipe.seed}/{view.config}/{self._resource.of(view)}")
        parent = rng.choice(parents)
        origin = {"member": view.origin["member"], "replaces": view.config}
        return Proposal(self._explored(parent.hparams, rng), parent.config, origin)

    def _parents(self, view: ConfigView, context: SearchContext) -> list[ConfigView]:
        """The best configs that have reached the same amount and are still live."""
        reached = self._resource.of(view)
        rivals = self._rivals(reached, context)
        most = math.ceil(len(rivals) * self._section.quantile_fraction)
        best = ranked((self._loss(other, reached), other) for other in rivals)[:most]
        return [other for other in best if other.status is Status.LIVE and other is not view]

    def _rivals(self, reached: int, context: SearchContext) -> list[ConfigView]:
        return [
            view
            for view in context.proposed
            if view.status is not Status.FAILED and self._resource.at(view, reached) is not None
        ]

    def _loss(self, view: ConfigView, reached: int) -> float:
        point = self._resource.at(view, reached)
        return math.inf if point is None else self.criterion.loss(point)

    def _end(self, context: SearchContext) -> int:
        return context.epochs * (context.partitions if self._resource.unit == "units" else 1)

    def _explored(self, hparams: HParams, rng: random.Random) -> HParams:
        """Perturbed hyper-parameters that satisfy the constraints; the unchanged ones if none are found."""
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
    """The config in each place of the population: the last one proposed for it."""
    return list({view.origin["member"]: view for view in context.proposed}.values())
