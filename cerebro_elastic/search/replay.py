"""One config, trained by the schedule of hyper-parameters that population based training found."""

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
    """Each stage of the schedule is a config that continues from the previous one's last state."""

    def __init__(self, recipe: Recipe) -> None:
        section = recipe.search
        assert isinstance(section, ReplaySearch)
        self._stages = section.schedule
        self._behind = section.behind

    def decide(self, context: SearchContext) -> Sequence[Decision]:
        stages = context.proposed
        if not stages or len(stages) >= len(self._stages):
            return ()
        present, end = stages[-1], self._stages[len(stages)].units
        units = present.units - self._behind * context.partitions
        due = present.status is Status.LIVE and at_rest(present) and units >= end
        return [Stop(present.config, f"the schedule goes on after {counted(end, 'unit')}")] if due else ()

    def propose(self, context: SearchContext) -> Sequence[Proposal]:
        stages = context.proposed
        if not stages:
            return [Proposal(self._stages[0].hparams)]
        present = stages[-1]
        ready = present.status is Status.STOPPED and not present.by_hand and len(stages) < len(self._stages)
        return [Proposal(self._stages[len(stages)].hparams, present.config)] if ready else ()


def schedule_of(config: str, configs: Mapping[str, Config], plan: Plan) -> list[dict[str, Any]]:
    """The ``schedule`` that led to a config: the hyper-parameters of its ancestors and its own, each with the
    units from which on they held. Units count from the begin of the first ancestor."""
    schedule: list[dict[str, Any]] = []
    name: str | None = config
    while name is not None:
        present = configs[name]
        schedule.insert(0, {"units": units_done(born(present), plan), "hparams": dict(present.hparams)})
        name = present.parent.config if present.parent and present.parent.config else None
    begin = schedule[0]["units"]
    schedule = [{**stage, "units": stage["units"] - begin} for stage in schedule]
    follows = [*(stage["units"] for stage in schedule[1:]), math.inf]
    return [stage for stage, end in zip(schedule, follows, strict=True) if stage["units"] < end]
