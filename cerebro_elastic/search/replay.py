"""A schedule of hyper-parameters, as population based training has found it, done again by one config."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from cerebro_elastic.core.history.lineage import born
from cerebro_elastic.core.history.progress import units_done
from cerebro_elastic.core.model.configs import Config, Status
from cerebro_elastic.core.model.interfaces import Decision, Proposal, Search, SearchContext, Stop
from cerebro_elastic.core.model.run import Plan
from cerebro_elastic.recipes import Recipe
from cerebro_elastic.recipes.search import ReplaySearch
from cerebro_elastic.search.procedure import at_rest
from cerebro_elastic.words import counted


class PbtReplay(Search):
    """Each stage of the schedule is a config that goes on from where the one before it was stopped."""

    def __init__(self, recipe: Recipe) -> None:
        section = recipe.search
        assert isinstance(section, ReplaySearch)
        self._stages = section.schedule
        self._behind = section.behind

    def decide(self, context: SearchContext) -> Sequence[Decision]:
        made = context.proposed
        if not made or len(made) >= len(self._stages):
            return ()
        present, end = made[-1], self._stages[len(made)].units
        done = present.units - self._behind * context.partitions
        due = present.status is Status.LIVE and at_rest(present) and done >= end
        return [Stop(present.config, f"the schedule goes on after {counted(end, 'unit')}")] if due else ()

    def propose(self, context: SearchContext) -> Sequence[Proposal]:
        made = context.proposed
        if not made:
            return [Proposal(self._stages[0].hparams)]
        present = made[-1]
        ready = present.status is Status.STOPPED and not present.by_hand and len(made) < len(self._stages)
        return [Proposal(self._stages[len(made)].hparams, present.config)] if ready else ()


def schedule_of(config: str, configs: Mapping[str, Config], plan: Plan) -> list[dict[str, Any]]:
    """The ``schedule`` that led to a config: the hyper-parameters of its ancestors and its own, and from how
    many units on they held, counted from where the first of them began."""
    found: list[dict[str, Any]] = []
    name: str | None = config
    while name is not None:
        present = configs[name]
        found.insert(0, {"units": units_done(born(present), plan), "hparams": dict(present.hparams)})
        name = present.parent.config if present.parent and present.parent.config else None
    begin = found[0]["units"]
    found = [{**stage, "units": stage["units"] - begin} for stage in found]
    follows = [*(stage["units"] for stage in found[1:]), math.inf]
    return [stage for stage, end in zip(found, follows, strict=True) if stage["units"] < end]
