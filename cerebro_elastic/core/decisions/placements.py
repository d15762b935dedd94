"""What each config may do next: which units, led by which nodes, and by which choice."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import TypeAlias

from cerebro_elastic.core.decisions.homes import Homes
from cerebro_elastic.core.decisions.next_steps import NextStep, NextSteps, kind_of
from cerebro_elastic.core.decisions.strategies import counts
from cerebro_elastic.core.history.estimates import fetch_seconds
from cerebro_elastic.core.history.progress import is_next, next_units
from cerebro_elastic.core.model.configs import Config
from cerebro_elastic.core.model.nodes import Node
from cerebro_elastic.core.model.run import Plan
from cerebro_elastic.core.model.state import State
from cerebro_elastic.core.model.units import Phase, Strategy, Unit


@dataclass(frozen=True, slots=True)
class Placement:
    """A unit, or the trial of one, that ``lead`` may take, by ``strategy``; ``failed`` are the nodes on which
    it has failed. Its partition will be waited for, for ``fetch`` seconds."""

    unit: Unit
    lead: Node
    strategy: Strategy
    failed: frozenset[str] = frozenset()
    fetch: float = 0.0


Placements: TypeAlias = Mapping[str, Sequence[Placement]]
"""By config."""
ByNode: TypeAlias = Mapping[str, NextStep]
"""What is the config's turn on each node that is able to do it."""


def placements(
    state: State, plan: Plan, nodes: Mapping[str, Node], next_steps: Mapping[str, NextSteps]
) -> Placements:
    """What each live config could do next on ``nodes``, were it and they idle; ``next_steps`` are theirs."""
    kinds = {name: kind_of(node) for name, node in nodes.items()}
    found: dict[str, list[Placement]] = {}
    for name, by_kind in next_steps.items():
        able = {node: by_kind[kind] for node, kind in kinds.items() if kind in by_kind}
        found[name] = list(_offers(state, plan, state.configs[name], nodes, able))
    return found


def _offers(
    state: State, plan: Plan, config: Config, nodes: Mapping[str, Node], able: ByNode
) -> Iterator[Placement]:
    for unit in next_units(config, plan):
        for name in _takers(state, unit, able, _tried_in_vain(config, unit, able, plan)):
            step = able[name]
            yield Placement(
                _offered(unit, step), nodes[name], step.strategy, _failed(config, unit, step, plan)
            )


def elsewhere(
    state: State, plan: Plan, node: Node, held: Collection[int], unit: Unit, next_steps: NextSteps
) -> Placement | None:
    """The unit as an offer to a node that its partition is not at home on, and that fetches it, if it is not
    among those that it holds anyway (``held``); ``next_steps`` are the config's. ``None`` if the unit is not next,
    if nobody knows what a fetch takes, or if the node cannot do it alone, has to try something out before, or
    has failed at it."""
    config = state.configs[unit.config]
    fetch = 0.0 if unit.partition in held else fetch_seconds(state.fetches)
    if fetch == inf or not is_next(config, unit, plan) or node.name in state.homes[unit.partition]:
        return None
    step = next_steps.get(kind_of(node))
    if step is None or step.profile or step.strategy.nodes > 1:
        return None
    failed = _failed(config, unit, step, plan)
    return None if node.name in failed else Placement(unit, node, step.strategy, failed, fetch)


def at_hand(
    units: Sequence[Unit], node: str, homes: Homes, held: Mapping[str, Collection[int]]
) -> list[Unit]:
    """Of the ``units`` that a node may take now those that are for it: as long as it holds what some of them
    need (``held``: by node in use), it leaves to others what they hold and it would have to fetch."""

    def has(name: str, unit: Unit) -> bool:
        return unit.phase is Phase.EVALUATE or unit.partition in held.get(name, ())

    if not any(has(node, unit) for unit in units):
        return list(units)
    return [
        unit
        for unit in units
        if has(node, unit) or not any(has(other, unit) for other in homes.get(unit.partition, ()))
    ]


def _takers(state: State, unit: Unit, able: Collection[str], failed: Collection[str]) -> Collection[str]:
    """Of the nodes that are ``able`` those that may lead the unit: the partition's homes, or any for an
    evaluation, but after a failure those where it has not failed, as long as there is one. (A node's own
    trouble is over when it gets units again.)"""
    homes = state.homes.get(unit.partition, ()) if unit.phase is Phase.TRAIN else ()
    at_home = [name for name in homes if name in able]
    for some in (at_home, able):
        if fresh := [name for name in some if name not in failed]:
            return fresh
    return at_home or able


def _tried_in_vain(config: Config, unit: Unit, able: ByNode, plan: Plan) -> frozenset[str]:
    """The nodes on which it has failed what would be its turn there."""
    if not config.failures:
        return frozenset()
    return frozenset(name for name, step in able.items() if name in _failed(config, unit, step, plan))


def _offered(unit: Unit, step: NextStep) -> Unit:
    return replace(unit, phase=Phase.PROFILE) if step.profile else unit


def _failed(config: Config, unit: Unit, step: NextStep, plan: Plan) -> frozenset[str]:
    """Where the unit has failed, or the trial of this choice."""
    if not config.failures:
        return frozenset()
    offered = _offered(unit, step)
    failures = [f for f in config.failures if f.unit == offered and counts(f, plan)]
    return frozenset(f.node for f in failures if not step.profile or f.strategy == step.strategy)
