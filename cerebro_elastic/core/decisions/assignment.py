"""Which idle node gets which unit now: the moment as the policy sees it, and the attempts that it makes of
the policy's choice."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from cerebro_elastic.core.decisions.gangs import companions, held, overdue
from cerebro_elastic.core.decisions.membership import used_nodes, waiting
from cerebro_elastic.core.decisions.next_steps import NextSteps, next_steps
from cerebro_elastic.core.decisions.placements import Placement, Placements, at_hand, elsewhere, placements
from cerebro_elastic.core.decisions.remaining_work import remaining_work
from cerebro_elastic.core.decisions.strategies import expected_seconds
from cerebro_elastic.core.history.estimates import all_unit_seconds, speed_factor, unit_seconds
from cerebro_elastic.core.history.progress import skipped, units_left
from cerebro_elastic.core.history.tallies import holdings
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
    """A state in which units are to be assigned: the ``nodes`` in use, the configs' ``next_steps`` on them, what
    may be done (``placements``), which partitions they have (``held``), and how long it takes: the ``seconds`` of
    each config's unit on a node of pace 1, and the nodes' ``speed_factors``. ``remaining`` and ``load`` are those of
    the ``SchedulingContext``."""

    state: State
    plan: Plan
    nodes: Mapping[str, Node]
    next_steps: Mapping[str, NextSteps]
    placements: Placements
    held: Mapping[str, Collection[int]]
    seconds: Mapping[str, float]
    speed_factors: Mapping[str, float]
    remaining: Mapping[str, float]
    load: Mapping[str, float]


def assignments(state: State, plan: Plan, policy: Policy) -> Iterator[Assign]:
    """An attempt for each idle node for which the policy has a unit, but for those that are held back."""
    if waiting(state, plan):
        return
    nodes = {n.name: n for n in used_nodes(state, plan)}
    idle = [name for name in nodes if name not in state.attempts]
    if not idle:
        return
    moment = _moment(state, plan, nodes)
    busy = {attempt.unit.config for attempt in state.underway()}
    taken: list[tuple[Placement, tuple[Node, ...]]] = []
    first = overdue(state, moment.placements, len(nodes))
    if first is not None:
        taken += _taken(moment, policy, idle, state.configs.keys() - {first})
        keep = set() if taken else held(moment.placements[first], nodes, idle)
        idle = [name for name in _left(idle, taken) if name not in keep]
    taken += _taken(moment, policy, idle, busy | _configs(taken))
    busy |= _configs(taken)
    for placement, others in taken:
        gang = (placement.lead, *others)
        hints = policy.choose(_instance(moment, [node.name for node in gang], busy, hint=True))
        hint = next((unit for name, unit in hints if name == placement.lead.name), None)
        yield Assign(_attempt(moment, placement, others, hint))


def remaining_work_now(state: State) -> RemainingWork | None:
    """What is left of the run now, as policies see it; ``None`` if nothing runs, or it cannot be told."""
    plan = state.plan
    if plan is None or state.outcome is not None or not state.attempts or not state.homes:
        return None
    nodes = {n.name: n for n in used_nodes(state, plan)}
    moment = _moment(state, plan, nodes)
    return remaining_work(state, plan, nodes, moment.held, moment.placements)


def _moment(state: State, plan: Plan, nodes: Mapping[str, Node]) -> _Moment:
    able, seconds = next_steps(state, plan, nodes), all_unit_seconds(state)
    may_do = placements(state, plan, nodes, able)
    speed_factors = {name: speed_factor(state, name) for name in nodes}
    return _Moment(
        state,
        plan,
        nodes,
        able,
        may_do,
        held=holdings(nodes.values()),
        seconds=seconds,
        speed_factors=speed_factors,
        remaining={c.id: units_left(c, plan) * seconds[c.id] for c in state.configs.values()},
        load=_load(state, plan, may_do, seconds, speed_factors),
    )


def _taken(
    moment: _Moment, policy: Policy, idle: Sequence[str], busy: Collection[str]
) -> list[tuple[Placement, tuple[Node, ...]]]:
    """What the policy chooses, and the gangs' other nodes. Of two gangs that need one node the one that was
    chosen first gets it, and the policy chooses again."""
    taken: list[tuple[Placement, tuple[Node, ...]]] = []
    again = True
    while again:
        again = False
        free, out = _left(idle, taken), {*busy, *_configs(taken)}
        for name, unit in policy.choose(_instance(moment, free, out)):
            there = (o for o in moment.placements[unit.config] if (o.lead.name, o.unit) == (name, unit))
            placement = next(there, None) or _elsewhere(moment, name, unit)
            assert placement is not None, f"{unit} was not for {name} to take"
            left = _left(idle, taken)
            others = companions(placement, moment.nodes, left) if name in left else None
            if others is None:
                again = True
            else:
                taken.append((placement, others))
    return taken


def _elsewhere(moment: _Moment, name: str, unit: Unit) -> Placement | None:
    next_steps = moment.next_steps[unit.config]
    return elsewhere(moment.state, moment.plan, moment.nodes[name], moment.held[name], unit, next_steps)


def _left(idle: Sequence[str], taken: Sequence[tuple[Placement, Sequence[Node]]]) -> list[str]:
    gone = {node.name for placement, others in taken for node in (placement.lead, *others)}
    return [name for name in idle if name not in gone]


def _configs(taken: Sequence[tuple[Placement, Sequence[Node]]]) -> set[str]:
    return {placement.unit.config for placement, _ in taken}


def _attempt(moment: _Moment, placement: Placement, others: Sequence[Node], hint: Unit | None) -> Attempt:
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
        gang=tuple(Member(node.name, node.registration) for node in others),
        hardware=lead.hardware,
        since=None if state.usage.began is None else state.usage.until,
    )


def _expected(state: State, placement: Placement) -> float | None:
    """A trial's seconds nobody knows."""
    config, lead = placement.unit.config, placement.lead
    if placement.unit.phase is Phase.PROFILE:
        return None
    seconds = expected_seconds(state, config, placement.strategy, lead.hardware)
    if seconds is None and config in state.timings:
        seconds = unit_seconds(state, config) * speed_factor(state, lead.name)
    return None if seconds is None else seconds + placement.fetch


def _prefetch(moment: _Moment, placement: Placement, hint: Unit | None) -> Prefetch | None:
    """What the node would take next if it were idle again now."""
    if hint is None or hint.phase is Phase.EVALUATE:
        return None
    has = {*moment.held[placement.lead.name], placement.unit.partition, hint.partition}
    home = [j for j, names in moment.state.homes.items() if placement.lead.name in names and j not in has]
    replicas = tuple(home) if placement.strategy.nodes == 1 else ()  # companions would get them, too
    return Prefetch(hint.partition, moment.state.configs[hint.config].head, replicas)


def _instance(
    moment: _Moment, idle: Sequence[str], busy: Collection[str], *, hint: bool = False
) -> SchedulingContext:
    state, plan, nodes = moment.state, moment.plan, moment.nodes
    eligible: dict[str, list[Unit]] = {name: [] for name in idle}
    for config, some in moment.placements.items():
        for placement in some if config not in busy else ():
            if placement.lead.name in eligible and companions(placement, nodes, idle) is not None:
                eligible[placement.lead.name].append(placement.unit)

    def besides(name: str, config: str, partition: int) -> Unit | None:
        unit = Unit(config, state.configs[config].epoch, partition)
        idles = name in eligible and config not in busy
        return unit if idles and _elsewhere(moment, name, unit) is not None else None

    return SchedulingContext(
        eligible={name: at_hand(some, name, state.homes, moment.held) for name, some in eligible.items()},
        remaining=moment.remaining,
        load=moment.load,
        seconds=lambda unit, node: moment.seconds[unit.config] * moment.speed_factors[node],
        seed=(plan.seed, state.revision),
        remaining_work=lambda: (
            None if hint else remaining_work(state, plan, nodes, moment.held, moment.placements)
        ),
        elsewhere=besides if plan.on_demand and not hint else None,
        even=plan.progress is Progress.EVEN,
    )


def _load(
    state: State,
    plan: Plan,
    may_do: Placements,
    seconds: Mapping[str, float],
    speed_factors: Mapping[str, float],
) -> dict[str, float]:
    """Each node's expected seconds, if those that may lead a unit share all such units by their speeds."""
    load = dict.fromkeys(speed_factors, 0.0)

    def share(names: Sequence[str], work: float) -> None:
        each = work / sum(1 / speed_factors[name] for name in names)
        for name in names:
            load[name] += each

    for config, some in may_do.items():
        for _, alike in groupby(some, lambda placement: placement.unit.partition):
            share([placement.lead.name for placement in alike], seconds[config])
    live = [config for config in state.configs.values() if config.status is Status.LIVE]
    later = sum((plan.epochs - config.epoch - 1) * seconds[config.id] for config in live)
    for names in state.homes.values():
        if there := [name for name in names if name in load]:
            share(there, later)
    return load
