"""The base of all methods: a sampler names points as long as the search has room and budget. The methods that
train every config to its end differ in how they choose the next point; the median rule stops some."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from cerebro_elastic.core.model.best import epoch_ends
from cerebro_elastic.core.model.configs import Status, created_by_hand
from cerebro_elastic.core.model.interfaces import (
    ConfigView,
    Decision,
    Proposal,
    Resume,
    Search,
    SearchContext,
    Stop,
)
from cerebro_elastic.core.model.state import Point
from cerebro_elastic.errors import RecipeError
from cerebro_elastic.recipes import Recipe
from cerebro_elastic.recipes.fields import MOST_CONFIGS
from cerebro_elastic.recipes.search import KnownConfig, MedianSearch, SampledSearch
from cerebro_elastic.search.budgets import (
    Room,
    exhausted,
    held,
    is_timed,
    is_trained,
    room_of,
    too_late,
    units_of_epoch,
)
from cerebro_elastic.search.criterion import Criterion, Resource, criteria_of
from cerebro_elastic.search.sampling import GridSampler, RandomSampler, Sample, Sampler, make_sampler
from cerebro_elastic.system.words import counted


class Procedure(Search):
    """Proposes the enqueued points, then the sampler's, and trains every config to its end.

    At most ``num`` configs are proposed, and ``concurrency`` are live at once. By default an ``eager`` search
    has all of them live, any other search 1.5 per node. (One config per node, as in section 6.3 of the paper,
    leaves a tenth of the nodes' time unused: a config that waits for a partition waits for its node.) Methods
    that stop or resume configs override ``judge`` and ``origin``.
    """

    def __init__(
        self, recipe: Recipe, sampler: Sampler, criterion: Criterion | None = None, *, eager: bool = False
    ) -> None:
        num, limit = recipe.search.num, recipe.limits.configs
        if num is not None and num > limit:
            raise RecipeError(
                f"{recipe.source.where(('search', 'num'))}: num is {num}, more than {limit} configs "
                f"(limits.configs); take fewer, or raise the limit (at most {MOST_CONFIGS})"
            )
        self.recipe = recipe
        self.sampler = sampler
        self._overall = criteria_of(recipe)[0]
        self.criterion = criterion or self._overall
        self._eager = eager
        self._ends_epochs = getattr(recipe.search, "resource", "epochs") == "epochs"
        """Configs are compared at the ends of epochs, so a begun epoch should end."""
        self._known = [view_of(config) for config in recipe.search.known_configs]

    def decide(self, context: SearchContext) -> Sequence[Decision]:
        """The decisions of ``judge``; once the budget is used up, stops of all configs that may be stopped;
        before that, stops of those whose epoch cannot end within it."""
        budget = self.recipe.search.budget
        ended, room = exhausted(budget, context, self._overall), self._room_of_budget(context)
        stops = []
        may_stop = ended or room.stops or is_timed(budget)
        for view in filter(at_rest, context.live) if may_stop else ():
            reason = ended or too_late(budget, context, view) or room.stops.get(view.config)
            if reason is not None and not (self._ends_epochs and is_trained(view, context)):
                stops.append(Stop(view.config, reason))
        if stops or ended:
            return stops
        decisions, units = list[Decision](), room.units
        for decision in self.judge(context):
            if isinstance(decision, Resume):
                view = next(view for view in context.configs if view.config == decision.config)
                needed = units_of_epoch(view, context)
                if needed > units or too_late(budget, context, view) is not None:
                    continue
                units -= needed
            decisions.append(decision)
        return decisions

    def held(self, context: SearchContext) -> Sequence[str]:
        """Configs that do not finish within the budget, and those that wait for others to finish first."""
        return held(self.recipe.search.budget, context)

    def _room_of_budget(self, context: SearchContext) -> Room:
        if not self._ends_epochs:
            return Room(math.inf, {})
        return room_of(self.recipe.search.budget, context, self._overall)

    def used_up(self, context: SearchContext) -> str | None:
        """The reason why no more configs are created; ``None`` if some may be."""
        budget = self.recipe.search.budget
        return exhausted(budget, context, self._overall) or too_late(budget, context, ConfigView("", {}))

    def judge(self, context: SearchContext) -> Sequence[Decision]:
        """The configs to stop and to resume."""
        del context
        return ()

    def propose(self, context: SearchContext) -> Sequence[Proposal]:
        if self.used_up(context) is not None:
            return ()
        self._check_logged(context)
        known, proposals, room = list(context.proposed), list[Proposal](), self.room(context)
        while len(proposals) < room and (proposal := self._next(known, context)) is not None:
            proposals.append(proposal)
            known.append(ConfigView("", proposal.hparams, origin=proposal.origin))
        return proposals

    def _check_logged(self, context: SearchContext) -> None:
        """Raise ``SearchError`` if configs have finished but none has logged the objective."""
        if not self._eager:
            finished = (view for view in context.proposed if view.status is Status.FINISHED)
            self._overall.check_logged_at(point for view in finished for point in epoch_ends(view.curve))

    def room(self, context: SearchContext) -> int:
        """The number of configs that may be created now. An eager search creates all: those beyond the budget
        are stopped, and an extended run continues them."""
        room = min(self.slots(context), self.left(context))
        return room if self._eager else min(room, self.affordable(context))

    def affordable(self, context: SearchContext) -> int:
        """The number of further configs for which the budget's units suffice to train an epoch."""
        units, repeats = self._room_of_budget(context).units, self.recipe.repeats
        of_epoch = context.partitions * (self.recipe.folds or 1) * (repeats.min if repeats else 1)
        return self.recipe.limits.configs if units == math.inf else max(0, int(units // of_epoch))

    def left(self, context: SearchContext) -> int:
        """The number of configs that may be created at all."""
        most = self.recipe.search.num or self.limit(context)
        return min(most, self.recipe.limits.configs) - len(context.proposed)

    def limit(self, context: SearchContext) -> int:
        """The number of configs if the recipe has no ``num``."""
        del context
        return self.recipe.limits.configs

    def slots(self, context: SearchContext) -> int:
        """The number of further configs that may be live now."""
        concurrency = self.recipe.search.concurrency
        if concurrency is None:
            concurrency = self.recipe.limits.configs if self._eager else context.nodes + context.nodes // 2
        return concurrency - len(context.live)

    def origin(self, known: Sequence[ConfigView], context: SearchContext) -> dict[str, object]:
        """The notes to record with the config that follows ``known``."""
        del known, context
        return {}

    def sample(self, known: Sequence[ConfigView]) -> Sample | None:
        """The sampler's next point after ``known`` and the configs of other runs."""
        return self.sampler.sample([*self._known, *known])

    def _next(self, known: Sequence[ConfigView], context: SearchContext) -> Proposal | None:
        enqueued = self.recipe.search.enqueue
        if len(known) < len(enqueued):
            return Proposal(enqueued[len(known)], origin=self.origin(known, context))
        sample = self.sample(known)
        if sample is None:
            return None
        return Proposal(sample.hparams, origin={**self.origin(known, context), **sample.notes})


def at_rest(view: ConfigView) -> bool:
    """Whether the search may decide on the config now: it is in no unit, and no person has decided on it."""
    return view.idle and not view.by_hand


def view_of(config: KnownConfig) -> ConfigView:
    """The view of an ended config. Its units are its epochs: samplers do not use the number of partitions."""
    curve = [Point(epoch, epoch, metrics, ends=True) for epoch, metrics in enumerate(config.curve, start=1)]
    return ConfigView(
        config="",
        hparams=config.hparams,
        status=Status.FINISHED if config.finished else Status.STOPPED,
        epochs=len(curve),
        units=len(curve),
        curve=curve,
        origin={"space": dict(config.space)} if config.space else {},
    )


def grid(recipe: Recipe) -> Procedure:
    """Every point of a finite space."""
    return Procedure(recipe, GridSampler(recipe), eager=True)


def random(recipe: Recipe) -> Procedure:
    """``num`` distinct points, drawn by the run's seed.

    Raises:
        RecipeError: The space has fewer points, or ``num`` is above ``limits.configs``.
    """
    num = recipe.search.num
    assert num is not None
    sampler = RandomSampler(recipe)
    procedure = Procedure(recipe, sampler, eager=True)
    distinct = sampler.count(num)
    if distinct < num:
        raise RecipeError(
            f"{recipe.source.where(('search', 'num'))}: num is {num}, but many draws found only {distinct} "
            "distinct points that the constraints allow; lower num"
        )
    return procedure


def sampled(recipe: Recipe) -> Procedure:
    """Points by the sampler of the method's name."""
    section = recipe.search
    assert isinstance(section, SampledSearch)
    return Procedure(recipe, make_sampler(recipe, section.method, section))


class MedianStopping(Procedure):
    """The median stopping rule (Golovin et al. 2017, section 3.2.2), with the names of optuna's
    ``MedianPruner``: stops a config at an epoch's end if its best value is worse than the median of the
    others there.

    Configs are compared once ``n_startup_trials`` others have reached the epoch.
    """

    def __init__(self, recipe: Recipe) -> None:
        section = recipe.search
        assert isinstance(section, MedianSearch)
        super().__init__(recipe, make_sampler(recipe, section.sampler, section))
        self._section = section
        self._resource = Resource("epochs")

    def judge(self, context: SearchContext) -> Sequence[Decision]:
        live = [view for view in context.live if at_rest(view) and not created_by_hand(view.origin)]
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
