"""Which node gets which unit now? The policy sees the moment and picks; each pick becomes an attempt.

May a node's next unit be assigned while it trains? A node that waits for its next unit waits for a commit, a
decision and an assignment: tens of milliseconds. Then it loads the unit's state: seconds, if that is large. A
unit that is queued behind the one in training begins at once, and its state is loaded during that unit. But
it is chosen one unit earlier, by an older state, and no other node can take it any more. Simulated runs of 2
to 8 nodes show where that pays: there the run is nearly as short as without any waits, elsewhere it may be
some percent longer. So a unit is queued only in a run without gangs, which need nodes that are idle together,
and only

- if a hop takes a large part of a unit; or
- behind a short unit (behind a long one the wait does not count), if the choice among configs stays large.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from math import inf

from cerebro_elastic.core.decisions.gangs import companions, held_back, overdue
from cerebro_elastic.core.decisions.moment import Moment
from cerebro_elastic.core.decisions.next_steps import expected_seconds
from cerebro_elastic.core.decisions.placements import Placement, at_hand, elsewhere
from cerebro_elastic.core.history.estimates import hop_seconds, speed_factor, unit_seconds
from cerebro_elastic.core.history.progress import skipped
from cerebro_elastic.core.model.attempts import Attempt, Member, Prefetch
from cerebro_elastic.core.model.events import UnitAssigned
from cerebro_elastic.core.model.interfaces import Policy, SchedulingContext
from cerebro_elastic.core.model.nodes import Node
from cerebro_elastic.core.model.run import Progress
from cerebro_elastic.core.model.state import State
from cerebro_elastic.core.model.units import Phase, Unit

SHORT_SECONDS = 3.0
"""Nothing is queued behind a unit with more expected seconds, unless hops are long."""
LONG_HOP = 0.2
"""The share of a unit's expected seconds from which on a hop is long: loading the next state behind a unit
then gains more than the early choice loses (``benchmarks/queueing.py``)."""
MOST_AT_ONCE = 8
"""If hundreds of nodes are idle at once, this many choose in one decision, so that none waits long."""
CONFIGS_PER_NODE = 2
"""Units are queued while more configs than this are free for each node."""


def assignments(moment: Moment, policy: Policy) -> Iterator[UnitAssigned]:
    """An attempt for each idle node for which the policy has a unit, except nodes held back for a gang."""
    state, nodes = moment.state, moment.nodes
    if moment.waits_for_nodes:
        return
    idle = [name for name in nodes if name not in state.attempts]
    soon_idle = list(_may_queue(moment))
    if not idle and not soon_idle:
        return
    busy = set(moment.busy)
    chosen: list[tuple[Placement, tuple[Node, ...]]] = []
    first = overdue(moment)
    if first is not None:
        chosen += _choose(moment, policy, idle, state.configs.keys() - {first})
        keep = set() if chosen else held_back(moment.placements[first].placements, nodes, idle)
        idle = [name for name in _still_idle(idle, chosen) if name not in keep]
    for some in _in_parts(moment, idle):
        chosen += _choose(moment, policy, some, busy | _configs_of(chosen))
        if chosen:
            break
    busy |= _configs_of(chosen)
    for placement, companion_nodes in chosen:
        hint = _hint(moment, policy, placement.lead, companion_nodes, busy)
        yield UnitAssigned(0, _attempt(moment, placement, companion_nodes, hint))
    for name in soon_idle:
        if _loads_behind(moment, state.attempts[name]) or _leaves_choice(moment, busy):
            for attempt in _queued(moment, policy, name, busy):
                busy.add(attempt.unit.config)
                yield UnitAssigned(0, attempt)


def _in_parts(moment: Moment, idle: Sequence[str]) -> Iterator[Sequence[str]]:
    """The idle nodes, ``MOST_AT_ONCE`` at a time: the others choose when these have their units. Nodes of
    gangs are needed together."""
    size = len(idle) if moment.has_gangs else MOST_AT_ONCE
    return (idle[at : at + size] for at in range(0, len(idle), max(size, 1)))


def _may_queue(moment: Moment) -> Iterator[str]:
    """The nodes behind whose units others may be queued. A node with failed units must first be idle: it may
    have to be quarantined."""
    state = moment.state
    for name in moment.nodes:
        attempt = state.attempts.get(name)
        if attempt is None or name in state.queued or name in state.streaks:
            continue
        if _seconds_ahead(moment, attempt) <= SHORT_SECONDS or _loads_behind(moment, attempt):
            yield name


def _loads_behind(moment: Moment, attempt: Attempt) -> bool:
    """Whether a unit is queued behind the attempt as soon as a config is free, because its load is long."""
    return hop_seconds(moment.state.hops) > LONG_HOP * _seconds_ahead(moment, attempt)


def _seconds_ahead(moment: Moment, attempt: Attempt) -> float:
    """The expected seconds of an attempt behind which a unit may be queued; infinite for any other."""
    return inf if moment.has_gangs or not attempt.may_queue or attempt.expected is None else attempt.expected


def _leaves_choice(moment: Moment, busy: Collection[str]) -> bool:
    """Whether a config may be queued: the nodes keep many to choose from, or only one node chooses."""
    placements = moment.placements.items()
    free = sum(bool(options) for config, options in placements if config not in busy)
    return len(moment.nodes) == 1 or free > CONFIGS_PER_NODE * len(moment.nodes)


def _queued(moment: Moment, policy: Policy, name: str, busy: Collection[str]) -> Iterator[Attempt]:
    """The next attempt of the busy node ``name``, chosen as if it were idle; nothing if the choice must
    wait."""
    for _, unit in policy.choose(_context(moment, [name], busy, freed=name)):
        (placement,) = (p for p in moment.placements[unit.config].at(name) if p.unit == unit)
        hint = _hint(moment, policy, name, (), {*busy, unit.config})
        ahead, attempt = moment.state.attempts[name], _attempt(moment, placement, (), hint)
        if attempt.may_queue:
            yield replace(attempt, queued_behind=ahead.token, second_key=not ahead.second_key)


def _hint(
    moment: Moment, policy: Policy, lead: str, companion_nodes: Sequence[Node], busy: Collection[str]
) -> Unit | None:
    """The unit that ``lead`` would get next in this state."""
    gang = [lead, *(node.name for node in companion_nodes)]
    hints = policy.choose(_context(moment, gang, busy, hint=True))
    return next((unit for name, unit in hints if name == lead), None)


def _choose(
    moment: Moment, policy: Policy, idle: Sequence[str], busy: Collection[str]
) -> list[tuple[Placement, tuple[Node, ...]]]:
    """The policy's choice, with the other nodes of each gang. If two gangs need the same node, the one chosen
    first gets it, and the policy chooses again."""
    chosen: list[tuple[Placement, tuple[Node, ...]]] = []
    choose_again = True
    while choose_again:
        choose_again = False
        free, unavailable = _still_idle(idle, chosen), {*busy, *_configs_of(chosen)}
        for name, unit in policy.choose(_context(moment, free, unavailable)):
            offered = moment.placements[unit.config].at(name)
            matching = (placement for placement in offered if placement.unit == unit)
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


def _forms(moment: Moment, name: str, unit: Unit, idle: Sequence[str]) -> bool:
    """Whether the other nodes of the unit's gang are idle."""
    (placement,) = (p for p in moment.placements[unit.config].at(name) if p.unit == unit)
    return companions(placement, moment.nodes, idle) is not None


def _elsewhere(moment: Moment, name: str, unit: Unit) -> Placement | None:
    next_steps = moment.next_steps[unit.config]
    return elsewhere(moment.state, moment.plan, moment.nodes[name], moment.cached[name], unit, next_steps)


def _still_idle(idle: Sequence[str], chosen: Sequence[tuple[Placement, Sequence[Node]]]) -> list[str]:
    taken_nodes = {placement.lead for placement, _ in chosen}
    taken_nodes |= {node.name for _, companion_nodes in chosen for node in companion_nodes}
    return [name for name in idle if name not in taken_nodes]


def _configs_of(chosen: Sequence[tuple[Placement, Sequence[Node]]]) -> set[str]:
    return {placement.unit.config for placement, _ in chosen}


def _attempt(
    moment: Moment, placement: Placement, companion_nodes: Sequence[Node], hint: Unit | None
) -> Attempt:
    state, unit, lead = moment.state, placement.unit, moment.nodes[placement.lead]
    config = state.configs[unit.config]
    attempt = Attempt(
        unit=unit,
        node=lead.name,
        registration=lead.registration,
        config_revision=config.revision,
        input=config.head,
        strategy=placement.strategy,
        skip=skipped(config),
        expected=_expected(state, placement, lead),
        gang=tuple(Member(node.name, node.registration) for node in companion_nodes),
        hardware=lead.hardware,
        last_visit_ended=None if state.usage.began is None else state.usage.until,
    )
    return replace(attempt, prefetch=_prefetch(moment, placement, hint, attempt))


def _expected(state: State, placement: Placement, lead: Node) -> float | None:
    """The expected seconds of the attempt; unknown for a profile."""
    config = placement.unit.config
    if placement.unit.phase is Phase.PROFILE:
        return None
    seconds = expected_seconds(state, config, placement.strategy, lead.hardware)
    if seconds is None and config in state.timings:
        seconds = unit_seconds(state, config) * speed_factor(state, lead.name)
    return None if seconds is None else seconds + placement.fetch


def _prefetch(moment: Moment, placement: Placement, hint: Unit | None, attempt: Attempt) -> Prefetch | None:
    """The node's possible fetches during the attempt: ``hint`` is the unit that it would get if it were idle
    now. Its state is not worth a load if the next unit will be queued."""
    if hint is None or hint.phase is Phase.EVALUATE:
        return None
    present = {*moment.cached[placement.lead], placement.unit.partition, hint.partition}
    home = [j for j, names in moment.state.homes.items() if placement.lead in names and j not in present]
    # The other nodes of a gang would fetch replicas, too.
    replicas = tuple(home) if placement.strategy.nodes == 1 else ()
    head = None if _loads_behind(moment, attempt) else moment.state.configs[hint.config].head
    return Prefetch(hint.partition, head, replicas)


def _context(
    moment: Moment,
    idle: Sequence[str],
    busy: Collection[str],
    *,
    hint: bool = False,
    freed: str | None = None,
) -> SchedulingContext:
    state, plan, nodes = moment.state, moment.plan, moment.nodes
    free = moment.placements.keys() - busy
    held = [config for config in moment.held if config in free]
    first = free - {*held}

    def units(name: str, configs: Collection[str]) -> list[Unit]:
        return [
            unit
            for unit in moment.units_at(name)
            if unit.config in configs and (not moment.has_gangs or _forms(moment, name, unit, idle))
        ]

    eligible = {
        name: units(name, first) or next(filter(None, (units(name, {config}) for config in held)), [])
        for name in idle
    }

    def unit_elsewhere(name: str, config: str, partition: int) -> Unit | None:
        unit = Unit(config, state.configs[config].epoch, partition)
        is_free = name in eligible and config in free  # and does not wait for others to begin
        return unit if is_free and _elsewhere(moment, name, unit) is not None else None

    return SchedulingContext(
        eligible={name: at_hand(units, name, state.homes, moment.cached) for name, units in eligible.items()},
        remaining=moment.remaining,
        load=lambda node: moment.loads[node],
        seconds=lambda unit, node: moment.seconds[unit.config] * moment.speed_factors[node],
        seed=(plan.seed, state.revision),
        remaining_work=lambda: None if hint else moment.remaining_work(freed),
        size=sum(moment.remaining[name] > 0 for name in moment.placements) * plan.partitions * len(nodes),
        elsewhere=unit_elsewhere if plan.on_demand and not hint and freed is None else None,
        even=plan.progress is Progress.EVEN,
        batches=moment.batches,
    )
