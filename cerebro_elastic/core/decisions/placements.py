"""What may each config do next: which units, led by which nodes, with which strategy?"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import TypeAlias

from cerebro_elastic.core.decisions.homes import Homes
from cerebro_elastic.core.decisions.next_steps import NextStep, NextSteps, NodeKind, counts, kind_of
from cerebro_elastic.core.decisions.per_config import PerConfig
from cerebro_elastic.core.history.estimates import fetch_seconds
from cerebro_elastic.core.history.progress import is_next, next_units
from cerebro_elastic.core.model.configs import Config
from cerebro_elastic.core.model.nodes import Node
from cerebro_elastic.core.model.run import Plan
from cerebro_elastic.core.model.state import State
from cerebro_elastic.core.model.units import Phase, Strategy, Unit


@dataclass(frozen=True, slots=True)
class Placement:
    """A unit that a node may lead."""

    unit: Unit
    """The unit, or a profile of it."""
    lead: str
    """The node, or the gang's lead."""
    strategy: Strategy
    failed: frozenset[str] = frozenset()
    """The nodes on which it has failed."""
    fetch: float = 0.0
    """Seconds for which the node will wait for the partition."""


@dataclass(frozen=True, slots=True)
class ConfigPlacements:
    """What a config may do next, as if it and all nodes were idle."""

    placements: Sequence[Placement]
    """The units that it may do, and where."""
    by_lead: Mapping[str, Sequence[Placement]]
    leads: Sequence[Sequence[str]]
    """By unit: the nodes that may lead it."""
    most_nodes: int
    """How many nodes the largest of its gangs has; 0 without placements."""
    plain: bool
    """All are training units of one node each."""


Placements: TypeAlias = Mapping[str, ConfigPlacements]
"""By config."""
ByNode: TypeAlias = Mapping[str, NextStep]
"""A config's next step on each node that can do it."""


@dataclass(frozen=True, slots=True)
class _Places:
    """What the placements of all configs depend on."""

    plan: Plan
    homes: Homes
    kinds: Sequence[tuple[str, NodeKind]]


def placements(
    state: State,
    plan: Plan,
    nodes: Mapping[str, Node],
    live: Mapping[str, Config],
    next_steps: Mapping[str, NextSteps],
) -> Placements:
    """What each ``live`` config may do next on ``nodes``, as if the config and they were idle."""
    places = _Places(plan, state.homes, [(name, kind_of(node)) for name, node in nodes.items()])
    return _placements(places, live, next_steps)


@PerConfig
def _placements(places: _Places, config: Config, next_steps: NextSteps) -> ConfigPlacements:
    steps = {name: next_steps[kind] for name, kind in places.kinds if kind in next_steps}
    placements: list[Placement] = []
    leads: list[Sequence[str]] = []
    units = next_units(config, places.plan)
    if units and units[0].phase is Phase.EVALUATE and config.fold is None:
        units = units[:1]  # in one order by all configs
    for unit in units:
        in_vain = _tried_in_vain(config, unit, steps, places.plan)
        at_homes = unit.phase is Phase.TRAIN or config.fold is not None
        leads.append(_takers(places.homes if at_homes else {}, unit, steps, in_vain))
        placements += [
            Placement(
                _unit_of(unit, steps[name]),
                name,
                steps[name].strategy,
                _failed(config, unit, steps[name], places.plan),
            )
            for name in leads[-1]
        ]
    by_lead: dict[str, list[Placement]] = {}
    for placement in placements:
        by_lead.setdefault(placement.lead, []).append(placement)
    most_nodes = max((placement.strategy.nodes for placement in placements), default=0)
    trains = all(placement.unit.phase is Phase.TRAIN for placement in placements)
    return ConfigPlacements(placements, by_lead, leads, most_nodes, trains and most_nodes <= 1)


def elsewhere(
    state: State, plan: Plan, node: Node, cached: Collection[int], unit: Unit, next_steps: NextSteps
) -> Placement | None:
    """The placement of a unit on a node on which its partition is not at home.

    The node fetches the partition, unless that is ``cached``. ``None`` if the unit is not next, if the time
    of a fetch is not known, or if the node cannot do the unit alone, has to profile first, or has failed at
    it.
    """
    config = state.configs[unit.config]
    fetch = 0.0 if unit.partition in cached else fetch_seconds(state.fetches)
    if fetch == inf or not is_next(config, unit, plan) or node.name in state.homes[unit.partition]:
        return None
    step = next_steps.get(kind_of(node))
    if step is None or step.profile or step.strategy.nodes > 1:
        return None
    failed = _failed(config, unit, step, plan)
    return None if node.name in failed else Placement(unit, node.name, step.strategy, failed, fetch)


def at_hand(
    units: Sequence[Unit], node: str, homes: Homes, cached: Mapping[str, Collection[int]]
) -> list[Unit]:
    """The ``units`` that the node should take, of those that it may take now.

    If the node has the partitions of some units ``cached``, it leaves units to other nodes that have theirs.
    """

    def has(name: str, unit: Unit) -> bool:
        return unit.phase is Phase.EVALUATE or unit.partition in cached.get(name, ())

    if not any(has(node, unit) for unit in units):
        return list(units)
    return [
        unit
        for unit in units
        if has(node, unit) or not any(has(other, unit) for other in homes.get(unit.partition, ()))
    ]


def _takers(homes: Homes, unit: Unit, able: Collection[str], failed: Collection[str]) -> Sequence[str]:
    """The nodes that may lead the unit, of those that are ``able`` to.

    They are the partition's homes, or any node if it has none: validation data have not. After a failure they
    are nodes where the unit has not failed, if one is left. (Once a node gets units again, faults of its own
    are forgotten.)
    """
    at_home = [name for name in homes.get(unit.partition, ()) if name in able]
    for candidates in (at_home, able):
        if untried := [name for name in candidates if name not in failed]:
            return untried
    return at_home or list(able)


def _tried_in_vain(config: Config, unit: Unit, steps: ByNode, plan: Plan) -> frozenset[str]:
    """The nodes on which the config has failed at its next step there."""
    if not config.tries:
        return frozenset()
    return frozenset(name for name, step in steps.items() if name in _failed(config, unit, step, plan))


def _unit_of(unit: Unit, step: NextStep) -> Unit:
    return replace(unit, phase=Phase.PROFILE) if step.profile else unit


def _failed(config: Config, unit: Unit, step: NextStep, plan: Plan) -> frozenset[str]:
    """The nodes on which the unit has failed, or its profile with this strategy."""
    if not config.tries:
        return frozenset()
    unit = _unit_of(unit, step)
    failures = [f for f in config.tries if f.unit == unit and counts(f, plan)]
    return frozenset(f.node for f in failures if not step.profile or f.strategy == step.strategy)
