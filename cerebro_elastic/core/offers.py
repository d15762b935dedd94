"""What each config may do next: which units, led by which nodes, and by which choice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from cerebro_elastic.core.choosing import Turn, chooses, counts, next_turn
from cerebro_elastic.core.estimates import fetch_seconds
from cerebro_elastic.core.placement import Homes
from cerebro_elastic.core.progress import is_next, next_units
from cerebro_elastic.core.state import State
from cerebro_elastic.core.values import Choice, Config, Node, Phase, Plan, Unit


@dataclass(frozen=True, slots=True)
class Offer:
    """A unit, or the trial of one, that ``lead`` may take, by ``choice``; ``failed`` are the nodes on which
    it has failed. It begins ``fetch`` seconds later than others, for which its partition is fetched."""

    unit: Unit
    lead: Node
    choice: Choice
    failed: frozenset[str] = frozenset()
    fetch: float = 0.0


Offers: TypeAlias = Mapping[str, Sequence[Offer]]
"""By config."""
Turns: TypeAlias = Mapping[str, Turn]
"""By node."""


def holders(state: State, plan: Plan, held: Mapping[str, Collection[int]]) -> Homes:
    """By partition the nodes that it is for: its homes and, where nodes fetch on demand, who else of those in
    use holds it (``held``: by node)."""
    if not plan.on_demand:
        return state.homes
    return {
        j: (*homes, *(name for name, has in held.items() if j in has and name not in homes))
        for j, homes in state.homes.items()
    }


def offers(state: State, plan: Plan, nodes: Mapping[str, Node], homes: Homes) -> Offers:
    """What each live config could do next on ``nodes``, were it and they idle, each partition on its
    ``homes``."""
    kinds = {kind_of(node): node for node in nodes.values()}
    alike = Counter(map(kind_of, nodes.values()))

    def turns_of(config: Config, phase: Phase) -> Turns:
        """By node: what is the config's turn there, if anything is."""
        turns = {kind: next_turn(config, phase, n, alike[kind], state, plan) for kind, n in kinds.items()}
        return {name: turn for name, node in nodes.items() if (turn := turns[kind_of(node)]) is not None}

    found: dict[str, list[Offer]] = {}
    same: Turns | None = None
    for config in state.configs.values():
        units = next_units(config, plan)
        if units and (same is None or chooses(plan)):
            same = turns_of(config, units[0].phase)
        found[config.id] = list(_offers(plan, config, units, nodes, homes, same or {}))
    return found


def _offers(
    plan: Plan, config: Config, units: Sequence[Unit], nodes: Mapping[str, Node], homes: Homes, able: Turns
) -> Iterator[Offer]:
    for unit in units:
        for name in _takers(homes, unit, able, _tried_in_vain(config, unit, able, plan)):
            turn = able[name]
            yield Offer(_offered(unit, turn), nodes[name], turn.choice, _failed(config, unit, turn, plan))


def fetching(state: State, plan: Plan, nodes: Mapping[str, Node], unit: Unit, name: str) -> Offer | None:
    """The unit as an offer to a node that would have to fetch its partition; ``None`` if it is not next, or
    the node cannot do it alone, has to try something out before, or has failed to do it."""
    config, node = state.configs[unit.config], nodes[name]
    alike = sum(kind_of(other) == kind_of(node) for other in nodes.values())
    turn = next_turn(config, unit.phase, node, alike, state, plan) if is_next(config, unit, plan) else None
    if turn is None or turn.trial or turn.choice.nodes > 1:
        return None
    failed = _failed(config, unit, turn, plan)
    return None if name in failed else Offer(unit, node, turn.choice, failed, fetch_seconds(state.fetches))


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


def kind_of(node: Node) -> tuple[str, int]:
    """What the nodes of a gang have in common: their hardware, and the number of their ranks."""
    return node.hardware, node.ranks


def _takers(homes: Homes, unit: Unit, able: Collection[str], failed: Collection[str]) -> Collection[str]:
    """Of the nodes that are ``able`` those that may lead the unit: the partition's homes, or any for an
    evaluation, but after a failure those where it has not failed, as long as there is one. (A node's own
    trouble is over when it gets units again.)"""
    there = homes.get(unit.partition, ()) if unit.phase is Phase.TRAIN else ()
    at_home = [name for name in there if name in able]
    for some in (at_home, able):
        if fresh := [name for name in some if name not in failed]:
            return fresh
    return at_home or able


def _tried_in_vain(config: Config, unit: Unit, able: Turns, plan: Plan) -> frozenset[str]:
    """The nodes on which it has failed what would be its turn there."""
    if not config.failures:
        return frozenset()
    return frozenset(name for name, turn in able.items() if name in _failed(config, unit, turn, plan))


def _offered(unit: Unit, turn: Turn) -> Unit:
    return replace(unit, phase=Phase.TRIAL) if turn.trial else unit


def _failed(config: Config, unit: Unit, turn: Turn, plan: Plan) -> frozenset[str]:
    """Where the unit has failed, or the trial of this choice."""
    if not config.failures:
        return frozenset()
    offered = _offered(unit, turn)
    failures = [f for f in config.failures if f.unit == offered and counts(f, plan)]
    return frozenset(f.node for f in failures if not turn.trial or f.choice == turn.choice)
