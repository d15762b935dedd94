"""What all methods have in common: a sampler names points, as long as there is room and budget for them."""

from __future__ import annotations

from collections.abc import Sequence

from cerebro_elastic.core.model.configs import Status
from cerebro_elastic.core.model.interfaces import ConfigView, Decision, Proposal, Search, SearchContext, Stop
from cerebro_elastic.recipes import Recipe
from cerebro_elastic.search.budget import exhausted
from cerebro_elastic.search.objective import Objective, epoch_ends, objectives_of
from cerebro_elastic.search.sampling import Sample, Sampler
from cerebro_elastic.search.warm import standing_of


class Procedure(Search):
    """Proposes the points that are enqueued, then the sampler's, and lets every config train to its end.

    At most ``num`` configs, of which ``concurrency`` are live at once: by default all if it is ``eager``,
    else half as many again as nodes work. (As many as nodes, as in section 6.3 of the paper, leave a tenth of
    the nodes' time unused: who waits for a partition waits for its node.) Methods that decide more override
    ``judge`` and ``origin``.
    """

    def __init__(
        self, recipe: Recipe, sampler: Sampler, objective: Objective | None = None, *, eager: bool = False
    ) -> None:
        self.recipe = recipe
        self.sampler = sampler
        self._overall = objectives_of(recipe)[0]
        self.objective = objective or self._overall
        self._eager = eager
        self._elsewhere = [standing_of(trial) for trial in recipe.search.trials]

    def decide(self, context: SearchContext) -> Sequence[Decision]:
        """When the budget is used up, every config stops that may; before, what ``judge`` says."""
        ended = exhausted(self.recipe.search.budget, context, self._overall)
        if ended is None:
            return self.judge(context)
        return [Stop(s.config, ended) for s in context.configs if at_rest(s) and s.status is Status.LIVE]

    def judge(self, context: SearchContext) -> Sequence[Decision]:
        """Who stops and who goes on."""
        del context
        return ()

    def propose(self, context: SearchContext) -> Sequence[Proposal]:
        if exhausted(self.recipe.search.budget, context, self._overall) is not None:
            return ()
        self._check_logged(context)
        known, made = list(context.proposed), list[Proposal]()
        while len(made) < self.room(context) and (proposal := self._next(known, context)) is not None:
            made.append(proposal)
            known.append(ConfigView("", proposal.hparams, origin=proposal.origin))
        return made

    def _check_logged(self, context: SearchContext) -> None:
        """Raise ``SearchError`` if configs have come to their end, and none has logged the objective."""
        done = [s for s in context.proposed if s.status is Status.FINISHED]
        if not self._eager:
            self._overall.check_logged_at([point for s in done for point in epoch_ends(s)])

    def room(self, context: SearchContext) -> int:
        """How many more configs may be created now."""
        return min(self.slots(context), self.left(context))

    def left(self, context: SearchContext) -> int:
        """How many more configs may be created at all."""
        most = self.recipe.search.num or self.limit(context)
        return min(most, self.recipe.limits.configs) - len(context.proposed)

    def limit(self, context: SearchContext) -> int:
        """How many configs there shall be if the recipe has no ``num``."""
        del context
        return self.recipe.limits.configs

    def slots(self, context: SearchContext) -> int:
        """How many more configs may be live now."""
        concurrency = self.recipe.search.concurrency
        if concurrency is None:
            concurrency = self.recipe.limits.configs if self._eager else context.nodes + context.nodes // 2
        return concurrency - sum(s.status is Status.LIVE for s in context.configs)

    def origin(self, known: Sequence[ConfigView], context: SearchContext) -> dict[str, object]:
        """What is to be noted of the config after ``known``."""
        del known, context
        return {}

    def sample(self, known: Sequence[ConfigView]) -> Sample | None:
        """What the sampler names after ``known``, in the knowledge of what other runs have come to."""
        return self.sampler.sample([*self._elsewhere, *known])

    def _next(self, known: Sequence[ConfigView], context: SearchContext) -> Proposal | None:
        enqueued = self.recipe.search.enqueue
        if len(known) < len(enqueued):
            return Proposal(enqueued[len(known)], origin=self.origin(known, context))
        sample = self.sample(known)
        if sample is None:
            return None
        return Proposal(sample.hparams, origin={**self.origin(known, context), **sample.notes})


def at_rest(view: ConfigView) -> bool:
    """Whether the search may decide on the config now: it is in no unit, and no person has."""
    return view.idle and not view.by_hand
