"""The possible next steps of each config: units, the nodes that lead them, and strategies."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, TypeAlias

from cerebro_elastic.core.decisions.homes import Homes
from cerebro_elastic.core.decisions.next_steps import NextStep, NextSteps, NodeKind, counts, kind_of
from cerebro_elastic.core.decisions.per_config import PerConfig
from cerebro_elastic.core.history.estimates import fetch_seconds
from cerebro_elastic.core.history.progress import is_next, next_partitions
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
class Takers:
    """Which nodes may lead which of a config's next units."""

    partitions: tuple[int, ...]
    leads: Sequence[Sequence[str]]
    """By partition, in that order."""
    by_lead: Mapping[str, Sequence[int]]
    """By node that may lead one: the partitions."""

    @classmethod
    def of(cls, partitions: tuple[int, ...], leads: Sequence[Sequence[str]]) -> Takers:
        by_lead: dict[str, list[int]] = {}
        for partition, names in zip(partitions, leads, strict=True):
            for name in names:
                by_lead.setdefault(name, []).append(partition)
        return cls(partitions, leads, by_lead)


@dataclass(frozen=True, slots=True)
class ConfigPlacements:
    """The possible next units of a config, as if it and all nodes were idle. With thousands of configs on
    hundreds of nodes few placements are looked at, so each is made on demand."""

    config: Config
    plan: Plan
    phase: Phase
    steps: ByNode
    takers: Takers
    """Shared by configs that have the same partitions to visit."""

    def __bool__(self) -> bool:
        """Whether a node may lead one of its units."""
        return bool(self.takers.by_lead)

    def at(self, node: str) -> list[Placement]:
        """The units that the node may lead."""
        return [self._placement(partition, node) for partition in self.takers.by_lead.get(node, ())]

    def units_at(self, node: str) -> list[Unit]:
        """The units that the node may lead, without their placements."""
        config, phase = self.config, Phase.PROFILE if self._profiles(node) else self.phase
        return [Unit(config.id, config.epoch, j, phase) for j in self.takers.by_lead.get(node, ())]

    def _profiles(self, node: str) -> bool:
        return node in self.steps and self.steps[node].profile

    @property
    def placements(self) -> list[Placement]:
        """All of its units on all of their nodes."""
        places = zip(self.takers.partitions, self.takers.leads, strict=True)
        return [self._placement(partition, node) for partition, names in places for node in names]

    @property
    def most_nodes(self) -> int:
        """The number of nodes in the largest of its gangs; 0 without placements."""
        return max((self.steps[name].strategy.nodes for name in self.takers.by_lead), default=0)

    @property
    def plain(self) -> bool:
        """Whether all are training units of one node each."""
        steps = [self.steps[name] for name in self.takers.by_lead]
        trains = self.phase is Phase.TRAIN and not any(step.profile for step in steps)
        return not steps or (trains and all(step.strategy.nodes == 1 for step in steps))

    def _placement(self, partition: int, node: str) -> Placement:
        step = self.steps[node]
        unit = Unit(self.config.id, self.config.epoch, partition, self.phase)
        failed = _failed(self.config, unit, step, self.plan)
        return Placement(_unit_of(unit, step), node, step.strategy, failed)


Placements: TypeAlias = Mapping[str, ConfigPlacements]
"""By config."""
ByNode: TypeAlias = Mapping[str, NextStep]
"""A config's next step on each node that can do it."""


@dataclass(frozen=True, slots=True)
class _Places:
    """The values on which the placements of all configs depend."""

    plan: Plan
    homes: Homes
    kinds: Sequence[tuple[str, NodeKind]]
    _last: dict[str, Any] = field(default_factory=dict, compare=False)
    """The values of the last config, which the next one probably needs, too."""

    def steps(self, next_steps: NextSteps) -> ByNode:
        """A config's next step on each node."""
        known = self._last.get("steps")
        if known is None or known[0] is not next_steps:
            own = {name: next_steps[kind] for name, kind in self.kinds if kind in next_steps}
            known = self._last["steps"] = next_steps, own
        steps: ByNode = known[1]
        return steps

    def takers(self, partitions: tuple[int, ...], steps: ByNode, homes: Homes) -> Takers:
        """The takers of units on which no node has failed; the sequence of one partition's leads is always
        the same object."""
        known = self._last.get("takers")
        if known is None or known[0] is not steps or known[1] is not homes:
            known = self._last["takers"] = steps, homes, dict[int, Sequence[str]](), [Takers((), (), {})]
        of_partition, last = known[2:]
        if last[0].partitions != partitions:
            for j in partitions:
                if j not in of_partition:
                    of_partition[j] = _takers(homes, j, steps, ())
            last[0] = Takers.of(partitions, [of_partition[j] for j in partitions])
        takers: Takers = last[0]
        return takers


_NO_HOMES: Homes = {}


def placements(
    state: State,
    plan: Plan,
    nodes: Mapping[str, Node],
    live: Mapping[str, Config],
    next_steps: Mapping[str, NextSteps],
) -> Placements:
    """The possible next units of each ``live`` config on ``nodes``, as if config and nodes were idle."""
    places = _Places(plan, state.homes, [(name, kind_of(node)) for name, node in nodes.items()])
    return _placements(places, live, next_steps)


@PerConfig
def _placements(places: _Places, config: Config, next_steps: NextSteps) -> ConfigPlacements:
    steps, plan = places.steps(next_steps), places.plan
    phase, partitions = next_partitions(config, plan)
    if phase is Phase.EVALUATE and config.fold is None:
        partitions = partitions[:1]  # in one order by all configs
    homes = places.homes if phase is Phase.TRAIN or config.fold is not None else _NO_HOMES
    if config.tries:
        units = [Unit(config.id, config.epoch, partition, phase) for partition in partitions]
        in_vain = [_tried_in_vain(config, unit, steps, plan) for unit in units]
        leads = [_takers(homes, j, steps, failed) for j, failed in zip(partitions, in_vain, strict=True)]
        takers = Takers.of(partitions, leads)
    else:
        takers = places.takers(partitions, steps, homes)
    return ConfigPlacements(config, plan, phase, steps, takers)


def elsewhere(
    state: State, plan: Plan, node: Node, cached: Collection[int], unit: Unit, next_steps: NextSteps
) -> Placement | None:
    """The placement of a unit on a node on which its partition is not at home.

    The node fetches the partition, unless that is ``cached``. ``None`` if the unit is not next, if the time
    of a fetch is unknown, or if the node cannot do the unit alone, must profile first, or has failed at it.
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
    """The ``units`` that the node should take, out of its possible ones.

    If the node has the partitions of some units ``cached``, it leaves units to other nodes that have theirs.
    """

    own = cached.get(node, ())
    if not any(unit.phase is Phase.EVALUATE or unit.partition in own for unit in units):
        return list(units)
    left = {
        partition
        for partition in {unit.partition for unit in units}
        if partition not in own
        and any(partition in cached.get(other, ()) for other in homes.get(partition, ()))
    }
    return [unit for unit in units if unit.phase is Phase.EVALUATE or unit.partition not in left]


def _takers(homes: Homes, partition: int, able: Collection[str], failed: Collection[str]) -> Sequence[str]:
    """The ``able`` nodes that may lead a unit on the partition.

    They are the partition's homes, or any node if it has no home, like validation data. After a failure they
    are nodes where the unit has not failed, if any. (Once a node gets units again, its own faults are
    forgotten.)
    """
    at_home = [name for name in homes.get(partition, ()) if name in able]
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
