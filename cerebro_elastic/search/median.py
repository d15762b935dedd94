"""The median stopping rule (Golovin et al. 2017, section 3.2.2), with the names of optuna's
``MedianPruner``."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from cerebro_elastic.core.model.configs import Status
from cerebro_elastic.core.model.interfaces import ConfigView, Decision, SearchContext, Stop
from cerebro_elastic.recipes import Recipe
from cerebro_elastic.recipes.search import MedianSearch
from cerebro_elastic.search.methods import make_sampler
from cerebro_elastic.search.objective import Resource, epoch_ends
from cerebro_elastic.search.procedure import Procedure, at_rest
from cerebro_elastic.words import counted


class MedianStopping(Procedure):
    """At each epoch's end a config stops whose best value so far is worse than the median of what the others
    had at this epoch, once ``n_startup_trials`` of them have come so far."""

    def __init__(self, recipe: Recipe) -> None:
        section = recipe.search
        assert isinstance(section, MedianSearch)
        super().__init__(recipe, make_sampler(recipe, section.sampler, section))
        self._section = section
        self._resource = Resource("epochs")

    def judge(self, context: SearchContext) -> Sequence[Decision]:
        live = [s for s in context.proposed if s.status is Status.LIVE and at_rest(s)]
        due = [s for s in live if self._is_due(s)]
        return [Stop(s.config, told) for s in due if (told := self._verdict(s, context)) is not None]

    def _is_due(self, view: ConfigView) -> bool:
        """Whether it is at the end of an epoch at which configs are judged."""
        last = view.curve[-1] if view.curve else None
        behind = view.epochs - self._section.behind - self._section.n_warmup_steps
        at_end = last is not None and last.ends and view.units == last.units
        return at_end and behind > 0 and behind % self._section.interval_steps == 0

    def _verdict(self, view: ConfigView, context: SearchContext) -> str | None:
        """Why the config stops, if it does."""
        self.objective.check_logged_at(epoch_ends(view))
        others = [s for s in context.proposed if s is not view and s.status is not Status.FAILED]
        points = [p for s in others if (p := self._resource.at(s, view.epochs)) is not None]
        losses = [loss for p in points if (loss := self.objective.loss(p)) < math.inf]
        if len(losses) < self._section.n_startup_trials:
            return None
        own, median = self.objective.best(view), statistics.median(losses)
        if own <= median:
            return None
        told = (self.objective.told(own), self.objective.told(median), counted(view.epochs, "epoch"))
        return "{} is worse than the others' median, {}, after {}".format(*told)
