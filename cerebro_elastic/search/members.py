"""Searches over configs that are trained on folds, or with several seeds.

Any search decides on such a config as on any other: it sees the mean of the results so far, and its decisions
hold for all of the config's trainings. Decided here:

- Which trainings wait. A search that judges configs while they train compares them at the ends of epochs, so
  their trainings advance together. Under any other search only some begin at a time: each config's first
  fold, then further ones of the best configs so far.
- *Forgiving early stop* (Bergman, Purucker and Hutter 2024, section 3): when the mean of the trained folds is
  worse than the worst fold of the best config, the other folds are not trained. A measured constraint has the
  same tolerance: it counts as broken once the mean breaks it by more than a fold of the best config exceeds
  its mean. (Not under a search that judges configs itself: it may resume stopped configs, and folds advance
  together there.)
- More seeds for the best. When the search is finished, the better half of the configs get another seed, or as
  many as keep all nodes busy; then the better half of these, until at least two have ``repeats.max``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate

from cerebro_elastic.core.history.members import came_to, mean_curve, status_of
from cerebro_elastic.core.model.best import best, loss
from cerebro_elastic.core.model.configs import Status
from cerebro_elastic.core.model.interfaces import ConfigView, Decision, Proposal, Search, SearchContext, Stop
from cerebro_elastic.core.model.state import Point
from cerebro_elastic.recipes import Recipe
from cerebro_elastic.recipes.folds import Folds
from cerebro_elastic.search.budgets import exhausted, room_of
from cerebro_elastic.search.criterion import criteria_of, ranked
from cerebro_elastic.search.procedure import Procedure

BEGUN_PER_NODE = 2
"""The number of trainings per node that have begun and not ended. (Fewer leave fewer folds to spare, more
begin folds of configs that are then dropped.)"""


class MemberSearch(Search):
    """A search of a ``recipe`` whose configs have members."""

    def __init__(self, search: Search, recipe: Recipe) -> None:
        self.search = search
        """The search that decides on configs."""
        self._together = not (isinstance(search, Procedure) and type(search).judge is Procedure.judge)
        self._recipe = recipe
        criteria = criteria_of(recipe)
        self._criterion = criteria[0]
        validation = recipe.validation
        early_stop = isinstance(validation, Folds) and validation.early_stop
        self._forgives = early_stop and not self._together and len(criteria) == 1

    def held(self, context: SearchContext) -> Sequence[str]:
        if self._together:
            return [each.config for view in context.configs for each in _ahead(view)]
        live = [each for view in context.configs for each in _live(view)]
        if self._forgives:
            room = BEGUN_PER_NODE * context.nodes - sum(map(_has_begun, live))
            return [each.config for each in self._waiting(context)[max(0, room) :]]
        return ()

    def _waiting(self, context: SearchContext) -> list[ConfigView]:
        """The trainings that have not begun, in the order in which they will: first one of each config
        without any, then those of the best configs."""
        keyed = []
        for place, view in enumerate(context.configs):
            waiting = [each for each in _live(view) if not _has_begun(each)]
            begun = len(view.members) > len(waiting)
            mean = self._criterion.best(_ended(view)) if begun else -math.inf
            for number, each in enumerate(waiting):
                first = not begun and not number
                keyed.append(((not first, mean if begun else math.inf, place, number), each))
        return [each for _, each in sorted(keyed, key=lambda pair: pair[0])]

    def decide(self, context: SearchContext) -> Sequence[Decision]:
        return self.search.decide(context) or (list(self._forgiving(context)) if self._forgives else ())

    def _forgiving(self, context: SearchContext) -> Iterator[Stop]:
        complete = [view for view in context.configs if view.status is Status.FINISHED]
        leaders = ranked((self._criterion.best(view), view) for view in complete)
        if not leaders:
            return
        folds, mean_of_best = self._best_end(leaders[0])
        # Constraints hold for means: a fold of the best config that breaks one counts with its value.
        worst = max(loss(self._criterion.value(point), self._criterion.mode) for point in folds)
        forgiving = self._criterion.forgiving(folds, mean_of_best)
        for view in context.configs:
            mean = forgiving.best(_ended(view))
            ended = len(_ended(view).members)
            if ended and mean > worst and not view.by_hand and any(each.idle for each in _live(view)):
                yield Stop(
                    view.config,
                    f"{self._criterion.text(mean)} over {ended} of {len(view.members)} folds is worse than "
                    f"the worst fold of {leaders[0].config}, {self._criterion.text(worst)}",
                )

    def _best_end(self, view: ConfigView) -> tuple[Sequence[Point], Point]:
        """The logged values of a complete config's members at its best epoch, and their mean."""
        place = best(map(self._criterion.loss, view.curve))
        assert place is not None
        at = came_to([each.curve for each in view.members], [True] * len(view.members))
        return at[view.curve[place].epochs], view.curve[place]

    def propose(self, context: SearchContext) -> Sequence[Proposal]:
        proposals = self.search.propose(context)
        if proposals or any(view.status is Status.LIVE for view in context.configs):
            return proposals
        return self._contenders(context)

    def _contenders(self, context: SearchContext) -> Sequence[Proposal]:
        """Further seeds for the best configs. The configs are ranked for each number of seeds, by the values
        of these seeds alone: so further begun seeds make no difference."""
        repeats, budget = self._recipe.repeats, self._recipe.search.budget
        if repeats is None or exhausted(budget, context, self._criterion) is not None:
            return ()
        rivals, most = [view for view in context.configs if _from_scratch(view)], repeats.min
        while most < repeats.max and rivals:
            views = ((view, _of_first_seeds(view, most)) for view in rivals)
            ended = [(view, of) for view, of in views if of.status is Status.FINISHED]
            order = ranked((self._criterion.best(of), view) for view, of in ended)
            rivals = order[: max(2, -(-len(order) // 2))]
            step = (
                -(-context.nodes // (len(rivals) * max(1, self._recipe.folds))) if rivals[2:] else repeats.max
            )
            most = min(most + step, repeats.max)
            lacking = [view for view in rivals if _repeats(view) < most and not _draws_nothing(view)]
            if lacking:
                return self._affordable(lacking, most, context)
        return ()

    def _affordable(
        self, views: Sequence[ConfigView], repeats: int, context: SearchContext
    ) -> list[Proposal]:
        """Proposals of this many seeds, for the configs whose trainings the budget's units can finish."""
        units = room_of(self._recipe.search.budget, context, self._criterion).units
        of_seed = context.epochs * context.partitions * max(1, self._recipe.folds)
        needed = accumulate((repeats - _repeats(view)) * of_seed for view in views)
        return [
            Proposal(view.hparams, view.config, repeats=repeats)
            for view, of_these in zip(views, needed, strict=True)
            if of_these <= units
        ]


def _live(view: ConfigView) -> list[ConfigView]:
    return [each for each in view.members if each.status is Status.LIVE]


def _ahead(view: ConfigView) -> list[ConfigView]:
    """The trainings that have ended an epoch before others."""
    live = _live(view)
    return [each for each in live if each.epochs > min(other.epochs for other in live)]


def _has_begun(view: ConfigView) -> bool:
    return view.by_hand or not view.idle or bool(view.curve)


def _ended(view: ConfigView) -> ConfigView:
    """The config as if it had only its fully trained members."""
    return _with(view, [each for each in view.members if each.status is Status.FINISHED])


def _of_first_seeds(view: ConfigView, count: int) -> ConfigView:
    """The config as if it had only this number of seeds."""
    return view if _repeats(view) <= count else _with(view, [m for m in view.members if m.repeat < count])


def _with(view: ConfigView, members: Sequence[ConfigView]) -> ConfigView:
    ended = [each.status is Status.FINISHED for each in members]
    curve = mean_curve([each.curve for each in members], ended)
    status = status_of(each.status for each in members) if members else view.status
    return replace(view, status=status, members=members, curve=curve)


def _from_scratch(view: ConfigView) -> bool:
    """Whether the config started from scratch. A clone gets no further seeds: its states come from its
    parent's seeds."""
    return all(each.parent is None for each in view.members)


def _draws_nothing(view: ConfigView) -> bool:
    """Whether another seed has changed none of the config's logged values: then no further one will."""
    ended = [each for each in view.members if each.status is Status.FINISHED]
    first = [each for each in ended if each.fold == ended[0].fold]
    return len(first) > 1 and all(
        [point.metrics for point in each.curve] == [point.metrics for point in first[0].curve]
        for each in first
    )


def _repeats(view: ConfigView) -> int:
    return 1 + max(each.repeat for each in view.members)
