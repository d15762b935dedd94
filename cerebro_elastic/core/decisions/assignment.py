"""Which idle node gets which unit now? The policy sees the moment and picks; each pick becomes an attempt."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from cerebro_elastic.core.decisions.gangs import companions, held_back, overdue
from cerebro_elastic.core.decisions.membership import used_nodes, waiting
from cerebro_elastic.core.decisions.next_steps import NextSteps, next_steps
from cerebro_elastic.core.decisions.placements import Placement, Placements, at_hand, elsewhere, placements
from cerebro_elastic.core.decisions.remaining_work import remaining_work
from cerebro_elastic.core.decisions.strategies import expected_seconds
from cerebro_elastic.core.history.estimates import all_unit_seconds, speed_factor, unit_seconds
from cerebro_elastic.core.history.progress import skipped, units_left
from cerebro_elastic.core.history.tallies import cached_partitions
from cerebro_elastic.core.model.actions import Assign
from cerebro_elastic.core.model.attempts import Attempt, Member, Prefetch
from cerebro_elastic.core.model.configs import Status
from cerebro_elastic.core.model.interfaces import Policy, RemainingWork, SchedulingContext
from cerebro_elastic.core.model.nodes import Node
from cerebro_elastic.core.model.run import Plan, Progress
from cerebro_elastic.core.model.state import State
from cerebro_elastic.core.model.units import Phase, Unit


@dataclass(frozen=True, slots=True)
class _Moment:
    """A state in which units are to be assigned. Fields without a description are those of
    ``SchedulingContext``."""

    state: State
    plan: Plan
    nodes: Mapping[str, Node]
    """The nodes in use."""
    next_steps: Mapping[str, NextSteps]
    """By config: what it does next on each kind of node."""
    placements: Placements
    """By config: the units that it may do, and where."""
    cached: Mapping[str, Collection[int]]
    """By node: the partitions in its cache."""
    seconds: Mapping[str, float]
    """By config: the seconds of its unit on a node of factor 1."""
    speed_factors: Mapping[str, float]
    """By node: its speed factor."""
    remaining: Mapping[str, float]
    load: Mapping[str, float]


def assignments(state: State, plan: Plan, policy: Policy) -> Iterator[Assign]:
    """An attempt for each idle node for which the policy has a unit, without the nodes that are held back for
    a gang."""
    if waiting(state, plan):
        return
    nodes = {n.name: n for n in used_nodes(state, plan)}
    idle = [name for name in nodes if name not in state.attempts]
    if not idle:
        return
    moment = _moment(state, plan, nodes)
    busy = {attempt.unit.config for attempt in state.underway()}
    chosen: list[tuple[Placement, tuple[Node, ...]]] = []
    first = overdue(state, moment.placements, len(nodes))
    if first is not None:
        chosen += _choose(moment, policy, idle, state.configs.keys() - {first})
        keep = set() if chosen else held_back(moment.placements[first], nodes, idle)
        idle = [name for name in _still_idle(idle, chosen) if name not in keep]
    chosen += _choose(moment, policy, idle, busy | _configs_of(chosen))
    busy |= _configs_of(chosen)
    for placement, companion_nodes in chosen:
        gang = (placement.lead, *companion_nodes)
        hints = policy.choose(_context(moment, [node.name for node in gang], busy, hint=True))
        hint = next((unit for name, unit in hints if name == placement.lead.name), None)
        yield Assign(_attempt(moment, placement, companion_nodes, hint))


def remaining_work_now(state: State) -> RemainingWork | None:
    """What is left of the run in ``state``; ``None`` if nothing runs, or if it cannot be forecast."""
    plan = state.plan
    if plan is None or state.outcome is not None or not state.attempts or not state.homes:
        return None
    nodes = {n.name: n for n in used_nodes(state, plan)}
    moment = _moment(state, plan, nodes)
    return remaining_work(state, plan, nodes, moment.cached, moment.placements)


def _moment(state: State, plan: Plan, nodes: Mapping[str, Node]) -> _Moment:
    steps, seconds = next_steps(state, plan, nodes), all_unit_seconds(state)
    options_by_config = placements(state, plan, nodes, steps)
    speed_factors = {name: speed_factor(state, name) for name in nodes}
    return _Moment(
        state,
        plan,
        nodes,
        steps,
        options_by_config,
        cached=cached_partitions(nodes.values()),
        seconds=seconds,
        speed_factors=speed_factors,
        remaining={c.id: units_left(c, plan) * seconds[c.id] for c in state.configs.values()},
        load=_load(state, plan, options_by_config, seconds, speed_factors),
    )


def _choose(
    moment: _Moment, policy: Policy, idle: Sequence[str], busy: Collection[str]
) -> list[tuple[Placement, tuple[Node, ...]]]:
    """What the policy chooses, with the other nodes of each gang. If two gangs need the same node, the one
    that was chosen first gets it, and the policy chooses again."""
    chosen: list[tuple[Placement, tuple[Node, ...]]] = []
    choose_again = True
    while choose_again:
        choose_again = False
        free, unavailable = _still_idle(idle, chosen), {*busy, *_configs_of(chosen)}
        for name, unit in policy.choose(_context(moment, free, unavailable)):
            matching = (o for o in moment.placements[unit.config] if (o.lead.name, o.unit) == (name, unit))
            placement = next(matching, None) or _elsewhere(moment, name, unit)
            assert placement is not None, (
                f"the policy gave {name} the unit {unit}, for which it is not eligible"
            )
            left = _still_idle(idle, chosen)
            companion_nodes = companions(placement, moment.nodes, left) if name in left else None
            if companion_nodes is None:
                choose_again = True
            else:
                chosen.append((placement, companion_nodes))
    return chosen


def _elsewhere(moment: _Moment, name: str, unit: Unit) -> Placement | None:
    next_steps = moment.next_steps[unit.config]
    return elsewhere(moment.state, moment.plan, moment.nodes[name], moment.cached[name], unit, next_steps)


def _still_idle(idle: Sequence[str], chosen: Sequence[tuple[Placement, Sequence[Node]]]) -> list[str]:
    taken_nodes = {
        node.name for placement, companion_nodes in chosen for node in (placement.lead, *companion_nodes)
    }
    return [name for name in idle if name not in taken_nodes]


def _configs_of(chosen: Sequence[tuple[Placement, Sequence[Node]]]) -> set[str]:
    return {placement.unit.config for placement, _ in chosen}


def _attempt(
    moment: _Moment, placement: Placement, companion_nodes: Sequence[Node], hint: Unit | None
) -> Attempt:
    state, unit, lead = moment.state, placement.unit, placement.lead
    config = state.configs[unit.config]
    return Attempt(
        unit=unit,
        node=lead.name,
        registration=lead.registration,
        config_revision=config.revision,
        input=config.head,
        strategy=placement.strategy,
        prefetch=_prefetch(moment, placement, hint),
        skip=skipped(config),
        expected=_expected(state, placement),
        gang=tuple(Member(node.name, node.registration) for node in companion_nodes),
        hardware=lead.hardware,
        since=None if state.usage.began is None else state.usage.until,
    )


def _expected(state: State, placement: Placement) -> float | None:
    """The expected seconds of the attempt; unknown for a profile."""
    config, lead = placement.unit.config, placement.lead
    if placement.unit.phase is Phase.PROFILE:
        return None
    seconds = expected_seconds(state, config, placement.strategy, lead.hardware)
    if seconds is None and config in state.timings:
        seconds = unit_seconds(state, config) * speed_factor(state, lead.name)
    return None if seconds is None else seconds + placement.fetch


def _prefetch(moment: _Moment, placement: Placement, hint: Unit | None) -> Prefetch | None:
    """What the node may fetch during the unit: ``hint`` is the unit that it would get if it were idle now."""
    if hint is None or hint.phase is Phase.EVALUATE:
        return None
    present = {*moment.cached[placement.lead.name], placement.unit.partition, hint.partition}
    home = [j for j, names in moment.state.homes.items() if placement.lead.name in names and j not in present]
    replicas = (
        tuple(home) if placement.strategy.nodes == 1 else ()
    )  # the gang's other nodes would fetch them, too
    return Prefetch(hint.partition, moment.state.configs[hint.config].head, replicas)


def _context(
    moment: _Moment, idle: Sequence[str], busy: Collection[str], *, hint: bool = False
) -> SchedulingContext:
    state, plan, nodes = moment.state, moment.plan, moment.nodes
    eligible: dict[str, list[Unit]] = {name: [] for name in idle}
    for config, options in moment.placements.items():
        for placement in options if config not in busy else ():
            if placement.lead.name in eligible and companions(placement, nodes, idle) is not None:
                eligible[placement.lead.name].append(placement.unit)

    def unit_elsewhere(name: str, config: str, partition: int) -> Unit | None:
        unit = Unit(config, state.configs[config].epoch, partition)
        is_free = name in eligible and config not in busy
        return unit if is_free and _elsewhere(moment, name, unit) is not None else None

    return SchedulingContext(
        eligible={
            name: at_hand(options, name, state.homes, moment.cached) for name, options in eligible.items()
        },
        remaining=moment.remaining,
        load=moment.load,
        seconds=lambda unit, node: moment.seconds[unit.config] * moment.speed_factors[node],
        seed=(plan.seed, state.revision),
        remaining_work=lambda: (
            None if hint else remaining_work(state, plan, nodes, moment.cached, moment.placements)
        ),
        elsewhere=unit_elsewhere if plan.on_demand and not hint else None,
        even=plan.progress is Progress.EVEN,
    )


def _load(
    state: State,
    plan: Plan,
    options_by_config: Placements,
    seconds: Mapping[str, float],
    speed_factors: Mapping[str, float],
) -> dict[str, float]:
    """Each node's expected seconds, if the nodes that may lead a unit share such units by their speeds."""
    load = dict.fromkeys(speed_factors, 0.0)

    def share_work(names: Sequence[str], work: float) -> None:
        node_work = work / sum(1 / speed_factors[name] for name in names)
        for name in names:
            load[name] += node_work

    for config, options in options_by_config.items():
        for _, same_unit in groupby(options, lambda placement: placement.unit.partition):
            share_work([placement.lead.name for placement in same_unit], seconds[config])
    live = [config for config in state.configs.values() if config.status is Status.LIVE]
    later = sum((plan.epochs - config.epoch - 1) * seconds[config.id] for config in live)
    for names in state.homes.values():
        if present := [name for name in names if name in load]:
            share_work(present, later)
    return load
