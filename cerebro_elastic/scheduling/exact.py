"""``exact`` in live runs: ``auto`` with one more rule for the dry runs, the order that CP-SAT has found.

The solver works while units run, and its answer is an event of the run's history: a decision depends on the
state alone, of which the last answer is a part. There are no times in it, and it is followed only as long as
it is better than what ``auto`` would do, in dry runs as far ahead as the order reaches.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Any, ClassVar

from cerebro_elastic.core.model.interfaces import RemainingWork
from cerebro_elastic.core.model.run import Progress
from cerebro_elastic.openshop.dispatch import DispatchState, Rule, ScheduledUnit
from cerebro_elastic.openshop.rules import Planned
from cerebro_elastic.scheduling import orders
from cerebro_elastic.scheduling.look_ahead import Auto, dry_run, mean_unit
from cerebro_elastic.scheduling.moment import least_end

WORTH = 0.001
"""By what share the run must be longer than it must be for the solver to be asked."""


class Exact(Auto):
    """The order's rule, or that of ``auto`` if it is better by now."""

    waits: ClassVar[bool] = True
    solver = "cerebro_elastic.openshop.cp_sat"

    def _rule(self, left: RemainingWork, seed: tuple[int, ...]) -> tuple[DispatchState, Rule]:
        shop, usual = super()._rule(left, seed)
        order = _planned(left)
        if not order or left.progress is Progress.EVEN:
            return shop, usual
        own = shop.fork()
        own.horizon = shop.horizon
        own.assign(_owners(left, shop))
        rule = Planned(order)
        whole = len(order) == orders.units(left)
        ahead = inf if whole else len(order) * mean_unit(shop) / len(shop.held)
        as_ordered, _ = dry_run(own, rule, ahead, inf)
        as_usual, _ = dry_run(shop, usual, ahead, inf)
        return (own, rule) if as_ordered <= as_usual else (shop, usual)

    due = staticmethod(orders.due)
    order = staticmethod(orders.order)

    def question(self, left: RemainingWork, seed: int) -> Mapping[str, Any] | None:
        """Where the run could end sooner than by the rule that is followed now."""
        if not orders.units(left) or len(left.configs) < 2:
            return None
        shop, rule = self._rule(left, (seed,))
        least = least_end(shop, [at for at, _, _ in shop.events])
        known: list[ScheduledUnit] = []
        if shop.run(rule, record=known.append) <= least * (1 + WORTH):
            return None
        return orders.question(left, known, seed)


def _planned(left: RemainingWork) -> list[tuple[int, int, int]]:
    """What is left of the order, by numbers: epochs from the present one on."""
    nodes, configs = _numbers(left.nodes), _numbers(left.configs)
    planned = []
    for node, config, epoch, partition in left.order:
        if node in nodes and config in configs:
            later = epoch - left.epochs.get(config, 0)
            if 0 < later <= left.later[config] or (later == 0 and partition in left.undone[config]):
                planned.append((nodes[node], configs[config], later))
    return planned


def _owners(left: RemainingWork, shop: DispatchState) -> list[list[int]]:
    """As the order has them, where its nodes may still do it."""
    owners = [row.copy() for row in shop.owner]
    nodes, configs = _numbers(left.nodes), _numbers(left.configs)
    for node, config, _, partition in reversed(left.order):
        if config in configs and partition < len(left.holders) and node in left.holders[partition]:
            owners[configs[config]][partition] = nodes.get(node, owners[configs[config]][partition])
    return owners


def _numbers(names: Mapping[str, Any]) -> dict[str, int]:
    return {name: number for number, name in enumerate(names)}
