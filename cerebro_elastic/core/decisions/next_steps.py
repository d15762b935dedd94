"""What does each config do next on each kind of node: train with which strategy, or profile one?

Each strategy is profiled before it is used: a profile trains a few batches and measures seconds and memory,
or reports why the strategy is not feasible (the Trial Runner of Saturn: cerebro-platform-thesis-2023, section
3.2.4). Every visit refines the estimate of its strategy. A strategy is refused for good on a kind of node
when its profile refuses it, when a unit runs out of memory with it, or when its profiles keep failing. A
config that continues from another's checkpoint inherits the estimates of feasible strategies; it profiles
refused ones itself. With a single strategy in the plan nothing is profiled, and nothing refused.

Of the strategies for one number of nodes the fastest is used, after each was profiled. A forecast chooses the
number of nodes (``gang_sizes``). It assumes linear speed-up for strategies that were not profiled yet: so
gangs are not profiled before they may be useful.

A gang of n nodes ends one unit sooner than a single node, but seldom n times as fast, so it costs more node
time. Gangs are therefore useful only where nodes would be idle otherwise: when there are fewer configs than
nodes (paper, section 5.7, forms them once configs are at most half as many), or when the longest config would
run long after all others.

The forecast: a run ends no sooner than its longest config, and no sooner than its nodes finish all the work.
The sizes should make the later of the two early. At first every config takes the size that costs the least
node time. Then, for the shortest horizon for which that is possible, configs that would exceed the horizon
get more nodes. (This is the heuristic of the joint problem in ``openshop``, with a kind of nodes as one node
of many devices.)
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

from cerebro_elastic.core.history.estimates import Profiles, all_unit_seconds, estimates_of
from cerebro_elastic.core.history.progress import next_units, units_left
from cerebro_elastic.core.model.attempts import Failure, FailureKind
from cerebro_elastic.core.model.configs import Config
from cerebro_elastic.core.model.nodes import Node
from cerebro_elastic.core.model.run import Plan
from cerebro_elastic.core.model.state import State
from cerebro_elastic.core.model.units import Phase, Strategy
from cerebro_elastic.system.words import counted

NodeKind: TypeAlias = tuple[str, int]
"""The hardware of nodes, and the number of ranks of each."""
GangSeconds: TypeAlias = Mapping[NodeKind, Mapping[int, float]]
"""A config's remaining work: seconds by kind of nodes and size of the gang."""
GangSizes: TypeAlias = Mapping[NodeKind, int]
"""The size of a config's gang on each kind of nodes."""

WORTH = 0.9
"""Gangs are used if they shorten the forecast to this share or less: nodes of a gang wait for one another,
and fetch partitions that are not at home on them."""
EXACT = 0.01
"""The relative accuracy of the horizon."""


@dataclass(frozen=True, slots=True)
class NextStep:
    """A config's next step on a kind of node."""

    strategy: Strategy
    profile: bool = False
    """Profile the strategy, instead of a whole unit."""
    seconds: float | None = None
    """The expected seconds of a unit, if known."""


NextSteps: TypeAlias = Mapping[NodeKind, NextStep]
"""By kind of nodes that can take a step."""
StepsBySize: TypeAlias = Mapping[NodeKind, Mapping[int, NextStep]]
"""By kind of nodes and size of the gang, smallest first."""


def kind_of(node: Node) -> NodeKind:
    """The hardware and number of ranks, which the nodes of a gang have in common."""
    return node.hardware, node.ranks


def next_steps(
    state: State, plan: Plan, nodes: Mapping[str, Node], live: Mapping[str, Config]
) -> Mapping[str, NextSteps]:
    """By ``live`` config: its next step on each kind of ``nodes``, as if config and nodes were idle."""
    node_counts = Counter(map(kind_of, nodes.values()))
    if not chooses(plan):
        (only,) = plan.strategies
        return dict.fromkeys(live, _only_steps(only, frozenset(node_counts.items())))
    by_size: dict[str, StepsBySize] = {}
    for config in live.values():
        if units := next_units(config, plan):
            by_kind = {
                kind: steps_by_size(config, units[0].phase, kind, n, state, plan)
                for kind, n in node_counts.items()
            }
            by_size[config.id] = {kind: steps for kind, steps in by_kind.items() if steps}
    sizes = gang_sizes(_remaining_seconds(by_size, state, plan, nodes), node_counts)
    return {
        config: {kind: steps[sizes[config][kind]] for kind, steps in by_size.get(config, {}).items()}
        for config in live
    }


@lru_cache(maxsize=1)  # one object for all moments: values that depend on it are not recomputed
def _only_steps(only: Strategy, node_counts: frozenset[tuple[NodeKind, int]]) -> NextSteps:
    return {kind: NextStep(only) for kind, _ in node_counts if _fits(only, kind, dict(node_counts))}


def steps_by_size(
    config: Config, phase: Phase, kind: NodeKind, most: int, state: State, plan: Plan
) -> dict[int, NextStep]:
    """The config's next step on a ``kind`` of which ``most`` nodes exist, by size of the gang, smallest
    first.

    Before a training unit: a strategy not profiled yet. Otherwise the fastest feasible one.
    """
    hardware, _ = kind
    refused = refusals(config, hardware, state.profiles, plan)
    known = {e.strategy: e.seconds for e in estimates_of(config, state) if e.hardware == hardware}
    steps: dict[int, NextStep] = {}
    for size in sorted({strategy.nodes for strategy in plan.strategies}):
        feasible = [
            c
            for c in plan.strategies
            if c.nodes == size and c not in refused and _fits(c, kind, {kind: most})
        ]
        untried = [strategy for strategy in feasible if strategy not in known]
        if untried and phase is Phase.TRAIN:
            steps[size] = NextStep(untried[0], profile=True)
        elif feasible:
            fastest = min(feasible, key=lambda strategy: known.get(strategy, math.inf))
            steps[size] = NextStep(fastest, seconds=known.get(fastest))
    return steps


def _fits(strategy: Strategy, kind: NodeKind, node_counts: Mapping[NodeKind, int]) -> bool:
    """Whether enough nodes of the kind exist, with enough ranks for the strategy."""
    return strategy.nodes <= node_counts[kind] and strategy.ranks <= strategy.nodes * kind[1]


def _remaining_seconds(
    by_size: Mapping[str, StepsBySize], state: State, plan: Plan, nodes: Mapping[str, Node]
) -> dict[str, GangSeconds]:
    """Each config's remaining work, spread over the kinds of nodes like the partitions' homes."""
    at_home = Counter(kind_of(nodes[n]) for names in state.homes.values() for n in names if n in nodes)
    unit_seconds = all_unit_seconds(state, by_size)
    work: dict[str, GangSeconds] = {}
    for config, by_kind in by_size.items():
        homes = {kind: at_home[kind] for kind in by_kind}
        shares = homes if any(homes.values()) else dict.fromkeys(by_kind, 1)
        units_per_share = units_left(state.configs[config], plan) / max(sum(shares.values()), 1)
        work[config] = {
            kind: {
                n: units_per_share * shares[kind] * seconds
                for n, seconds in _seconds(steps, unit_seconds[config]).items()
            }
            for kind, steps in by_kind.items()
        }
    return work


def _seconds(steps: Mapping[int, NextStep], unit_seconds: float) -> dict[int, float]:
    """The seconds of a unit by size of the gang. Until it is profiled, the smallest size is the only one."""
    seconds: dict[int, float] = {}
    for size, step in steps.items():
        if step.seconds is not None:
            seconds[size] = step.seconds
        elif step.profile:
            if not seconds:
                return {size: unit_seconds}
            seconds[size] = min(n * known for n, known in seconds.items()) / size
    return seconds or {min(steps): unit_seconds}


def refusals(config: Config, hardware: str, profiles: Profiles, plan: Plan) -> dict[Strategy, str]:
    """The strategies that are not feasible for the config on this kind of node, and why."""
    if not chooses(plan):
        return {}
    reasons = {
        estimate.strategy: estimate.refusal
        for estimate in profiles.get(config.id, ())
        if estimate.hardware == hardware and estimate.refusal is not None
    }
    failed = [failure for failure in config.tries if failure.hardware == hardware]
    for failure in failed:
        if failure.kind is FailureKind.OUT_OF_MEMORY:
            reasons.setdefault(failure.strategy, failure.story)
    for strategy in plan.strategies:
        failures = [f for f in failed if f.strategy == strategy and _of_profile(f)]
        if len(failures) >= plan.tries or any(f.kind.of_config for f in failures):
            times = counted(len(failures), "time")
            reasons.setdefault(strategy, f"its profile failed {times}, at last with {failures[-1].story}")
    return reasons


def infeasible(config: Config, hardware: Iterable[str], profiles: Profiles, plan: Plan) -> str | None:
    """Why no strategy can train the config on any kind of node; ``None`` if one may.

    Kinds are those of ``hardware`` and of its profiles. Equal reasons are stated once. A single strategy is
    never refused.
    """
    if not chooses(plan):
        return None
    kinds = sorted({*hardware, *(estimate.hardware for estimate in profiles.get(config.id, ()))})
    refused = {kind: refusals(config, kind, profiles, plan) for kind in kinds}
    if not kinds or any(len(refused[kind]) < len(plan.strategies) for kind in kinds):
        return None
    by_reason: dict[str, list[str]] = {}
    for kind in kinds:
        for strategy in plan.strategies:
            by_reason.setdefault(refused[kind][strategy], []).append(f"{strategy} on {kind}")
    return "no strategy is feasible: " + "; ".join(
        f"{', '.join(where)}: {why}" for why, where in by_reason.items()
    )


def chooses(plan: Plan) -> bool:
    """Whether the plan has several strategies."""
    return len(plan.strategies) > 1


def counts(failure: Failure, plan: Plan) -> bool:
    """Whether a failure counts as one of the unit's tries. A fault of the node does not, nor an
    out-of-memory error that another strategy may avoid."""
    refuses = chooses(plan) and failure.kind is FailureKind.OUT_OF_MEMORY
    return not failure.kind.of_node and not refuses


def expected_seconds(state: State, config: str, strategy: Strategy, hardware: str) -> float | None:
    """The expected seconds of the config's unit with this strategy; ``None`` without a profile."""
    known = estimates_of(state.configs[config], state)
    matching = (e for e in known if (e.strategy, e.hardware) == (strategy, hardware))
    return next((estimate.seconds for estimate in matching if estimate.refusal is None), None)


def _of_profile(failure: Failure) -> bool:
    """Whether a profile failed through its own fault, not its node's."""
    return failure.unit.phase is Phase.PROFILE and not failure.kind.of_node


def gang_sizes(work: Mapping[str, GangSeconds], nodes: Mapping[NodeKind, int]) -> dict[str, GangSizes]:
    """The sizes of each config's gangs, given its remaining work and the number of nodes of each kind."""
    thrifty = {name: _thriftiest(config_work) for name, config_work in work.items()}
    without_gangs = _forecast(work, thrifty, nodes)
    low = max(
        max(_loads(work, thrifty, nodes).values(), default=0.0),
        max(
            (sum(min(by_size.values()) for by_size in config_work.values()) for config_work in work.values()),
            default=0.0,
        ),
    )
    best, high = thrifty, WORTH * without_gangs
    while high - low > EXACT * high:
        # The first horizon checks whether gangs are worthwhile at all.
        horizon = high if best is thrifty else (low + high) / 2
        sizes_within = {
            name: _within(horizon, config_work, thrifty[name], nodes) for name, config_work in work.items()
        }
        if _forecast(work, sizes_within, nodes) <= horizon:
            best, high = sizes_within, horizon
        elif best is thrifty:
            break
        else:
            low = horizon
    return best


def _thriftiest(config_work: GangSeconds) -> GangSizes:
    """The sizes that cost the least node time; the smallest of equals."""
    return {kind: min(by_size, key=lambda n: (n * by_size[n], n)) for kind, by_size in config_work.items()}


def _within(
    horizon: float, config_work: GangSeconds, sizes: GangSizes, nodes: Mapping[NodeKind, int]
) -> GangSizes:
    """``sizes``, enlarged until the config ends within the horizon, if it can. Each step takes the size that
    costs the least node time per second saved."""
    while _length(config_work, sizes) > horizon:
        changes = [
            ((n * by_size[n] - sizes[kind] * by_size[sizes[kind]]) / nodes[kind] / saved, kind, n)
            for kind, by_size in config_work.items()
            for n in by_size
            if n > sizes[kind] and (saved := by_size[sizes[kind]] - by_size[n]) > 0
        ]
        if not changes:
            break
        _, kind, n = min(changes)
        sizes = {**sizes, kind: n}
    return sizes


def _forecast(
    work: Mapping[str, GangSeconds], sizes: Mapping[str, GangSizes], nodes: Mapping[NodeKind, int]
) -> float:
    lengths = (_length(config_work, sizes[name]) for name, config_work in work.items())
    return max(*_loads(work, sizes, nodes).values(), *lengths, 0.0, 0.0)


def _length(config_work: GangSeconds, sizes: GangSizes) -> float:
    return sum(by_size[sizes[kind]] for kind, by_size in config_work.items())


def _loads(
    work: Mapping[str, GangSeconds], sizes: Mapping[str, GangSizes], nodes: Mapping[NodeKind, int]
) -> dict[NodeKind, float]:
    """By kind: the seconds of its nodes, if they share all work evenly."""
    loads = dict.fromkeys(nodes, 0.0)
    for name, config_work in work.items():
        for kind, by_size in config_work.items():
            size = sizes[name][kind]
            loads[kind] += size * by_size[size] / nodes[kind]
    return loads
