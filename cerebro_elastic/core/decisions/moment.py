"""The moment at which units are to be assigned: the state, and what decisions derive from it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from cerebro_elastic.core.decisions.next_steps import NextSteps, next_steps
from cerebro_elastic.core.decisions.per_config import PerConfig
from cerebro_elastic.core.decisions.placements import Placements, placements
from cerebro_elastic.core.history.derived import batches_at_hand, cached_partitions
from cerebro_elastic.core.history.estimates import all_unit_seconds, speed_factors
from cerebro_elastic.core.history.progress import units_left
from cerebro_elastic.core.model.configs import Config, Status
from cerebro_elastic.core.model.nodes import Node
from cerebro_elastic.core.model.run import Plan
from cerebro_elastic.core.model.state import State


@dataclass(frozen=True, slots=True)
class Moment:
    """A state in which units are to be assigned. Fields without a description are those of
    ``SchedulingContext``."""

    state: State
    plan: Plan
    nodes: Mapping[str, Node]
    """The nodes in use."""
    next_steps: Mapping[str, NextSteps]
    """By config: what it does next on each kind of node."""
    placements: Placements
    """What each config may do next, and where."""
    cached: Mapping[str, Collection[int]]
    """By node: the partitions in its cache."""
    batches: Mapping[str, Collection[tuple[int, int]]]
    seconds: Mapping[str, float]
    """By config: the seconds of its unit on a node of factor 1."""
    speed_factors: Mapping[str, float]
    """By node: its speed factor."""
    remaining: Mapping[str, float]


def moment_of(state: State, plan: Plan, nodes: Mapping[str, Node]) -> Moment:
    """The moment of ``state``, with ``nodes`` in use."""
    steps, seconds = next_steps(state, plan, nodes), all_unit_seconds(state)
    units = _units_left(plan, ((config, None) for config in state.configs.values()))
    return Moment(
        state,
        plan,
        nodes,
        steps,
        placements(state, plan, nodes, steps),
        cached=cached_partitions(nodes.values()),
        batches=batches_at_hand(nodes.values(), state.batches) if plan.prefers_made else {},
        seconds=seconds,
        speed_factors=speed_factors(state, nodes),
        remaining={name: left * seconds[name] for name, left in units.items()},
    )


@PerConfig
def _units_left(plan: Plan, config: Config, _own: None) -> int:
    return units_left(config, plan)


class NodeLoads(Mapping[str, float]):
    """Each node's expected seconds, if the nodes that may lead a unit share such units by their speeds. It is
    computed for a policy that looks at it: most moments have one idle node."""

    def __init__(self, moment: Moment) -> None:
        self._moment = moment

    def __getitem__(self, node: str) -> float:
        return self._seconds[node]

    def __iter__(self) -> Iterator[str]:
        return iter(self._moment.nodes)

    def __len__(self) -> int:
        return len(self._moment.nodes)

    @cached_property
    def _seconds(self) -> dict[str, float]:
        moment = self._moment
        state, plan, factors = moment.state, moment.plan, moment.speed_factors
        seconds = dict.fromkeys(factors, 0.0)

        def share_work(names: Sequence[str], work: float) -> None:
            node_work = work / sum(1 / factors[name] for name in names)
            for name in names:
                seconds[name] += node_work

        for config, options in moment.placements.items():
            for names in filter(None, options.leads):  # no node can lead a gang that lacks nodes
                share_work(names, moment.seconds[config])
        live = [config for config in state.configs.values() if config.status is Status.LIVE]
        later = sum((plan.epochs - config.epoch - 1) * moment.seconds[config.id] for config in live)
        for homes in state.homes.values():
            if present := [name for name in homes if name in seconds]:
                share_work(present, later)
        return seconds
