"""What the visits tell a search: each config's curve, and what all of them have cost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TypeAlias

from cerebro_elastic.core.history.lineage import born
from cerebro_elastic.core.history.progress import advance, units_done
from cerebro_elastic.core.model.state import Busy, Point, Spent
from cerebro_elastic.core.model.values import Config, Phase, Plan, Visit

Curves: TypeAlias = Mapping[str, tuple[Point, ...]]
"""By config, in the order of its visits."""


def extend(curves: Curves, after: Config, visit: Visit, plan: Plan) -> Curves:
    """``curves`` after one more visit, which has brought its config to ``after``. A part of a unit, or an
    evaluation that does not end its epoch, tells nothing yet."""
    ends = after.epoch > visit.unit.epoch
    if not ends and (visit.unit.phase is not Phase.TRAIN or not visit.whole):
        return curves
    point = Point(units_done(after, plan), after.epoch, after.metrics if ends else after.pending, ends)
    return {**curves, after.id: (*curves.get(after.id, ()), point)}


def spend(spent: Spent, visit: Visit) -> Spent:
    """``spent`` after one more visit; a gang's seconds are those of each of its nodes."""
    seconds = visit.seconds + visit.hop_seconds + visit.fetch_seconds
    began = visit.started if spent.began is None else min(spent.began, visit.started)
    return replace(
        spent,
        units=spent.units + (visit.unit.phase is Phase.TRAIN and visit.whole),
        seconds=spent.seconds + seconds * len(visit.nodes),
        began=began,
        until=max(spent.until, visit.ended),
        nodes=_busier(spent.nodes, visit.nodes, visit.seconds, visit.freed),
        configs=_busier(spent.configs, (visit.unit.config,), visit.seconds, visit.ended),
    )


def _busier(
    busy: Mapping[str, Busy], names: Iterable[str], seconds: float, until: float
) -> Mapping[str, Busy]:
    before = {name: busy.get(name, Busy()) for name in names}
    after = {name: Busy(b.seconds + seconds, max(b.until, until)) for name, b in before.items()}
    return {**busy, **after}


def retell(configs: Iterable[Config], visits: Iterable[Visit], plan: Plan | None) -> tuple[Curves, Spent]:
    """The curves and costs that all ``visits``, in the order of their commits, have made."""
    curves, spent = dict[str, tuple[Point, ...]](), Spent()
    at = {config.id: born(config) for config in configs}
    for visit in visits:
        assert plan is not None
        after = at[visit.unit.config] = advance(at[visit.unit.config], visit, plan)
        curves = dict(extend(curves, after, visit, plan))
        spent = spend(spent, visit)
    return curves, spent
