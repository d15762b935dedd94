"""The median stopping rule (Golovin et al. 2017, section 3.2.2), with the names of optuna's
``MedianPruner``."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from cerebro_elastic.core.model.best import epoch_ends
from cerebro_elastic.core.model.configs import Status
from cerebro_elastic.core.model.interfaces import ConfigView, Decision, SearchContext, Stop
from cerebro_elastic.recipes import Recipe
from cerebro_elastic.recipes.search import MedianSearch
from cerebro_elastic.search.criterion import Resource
from cerebro_elastic.search.methods import make_sampler
from cerebro_elastic.search.procedure import Procedure, at_rest
from cerebro_elastic.system.words import counted


class MedianStopping(Procedure):
    """Stops a config at an epoch's end if its best value is worse than the median of the others there.

    Configs are compared once ``n_startup_trials`` others have reached the epoch.
    """

    def __init__(self, recipe: Recipe) -> None:
        section = recipe.search
        assert isinstance(section, MedianSearch)
        super().__init__(recipe, make_sampler(recipe, section.sampler, section))
        self._section = section
        self._resource = Resource("epochs")

    def judge(self, context: SearchContext) -> Sequence[Decision]:
        live = [view for view in context.proposed if view.status is Status.LIVE and at_rest(view)]
        due = [view for view in live if self._is_due(view)]
        reasons = ((view, self._reason_to_stop(view, context)) for view in due)
        return [Stop(view.config, reason) for view, reason in reasons if reason is not None]

    def _is_due(self, view: ConfigView) -> bool:
        """Whether the config is at the end of an epoch after which configs are compared."""
        last = view.curve[-1] if view.curve else None
        behind = view.epochs - self._section.behind - self._section.n_warmup_steps
        at_end = last is not None and last.ends and view.units == last.units
        return at_end and behind > 0 and behind % self._section.interval_steps == 0

    def _reason_to_stop(self, view: ConfigView, context: SearchContext) -> str | None:
        """The reason to stop the config, or ``None`` if it goes on."""
        self.criterion.check_logged_at(epoch_ends(view.curve))
        rivals = [v for v in context.proposed if v is not view and v.status is not Status.FAILED]
        points = [p for rival in rivals if (p := self._resource.at(rival, view.epochs)) is not None]
        losses = [loss for p in points if (loss := self.criterion.loss(p)) < math.inf]
        if len(losses) < self._section.n_startup_trials:
            return None
        own, median = self.criterion.best(view), statistics.median(losses)
        if own <= median:
            return None
        values = (self.criterion.text(own), self.criterion.text(median), counted(view.epochs, "epoch"))
        return "{} is worse than the others' median, {}, after {}".format(*values)
