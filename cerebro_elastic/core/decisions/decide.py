"""What happens next? ``decide`` is a pure function of the state.

The controller writes the decided events, and sees them happen before it decides again. So nothing here
remembers a decision.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from cerebro_elastic.core.decisions.assignment import assignments
from cerebro_elastic.core.decisions.homes import Homes, rebalance
from cerebro_elastic.core.decisions.moment import Moment
from cerebro_elastic.core.decisions.next_steps import chooses, counts, infeasible
from cerebro_elastic.core.decisions.observing import observed
from cerebro_elastic.core.decisions.per_config import PerConfig
from cerebro_elastic.core.history.costs import stays_of
from cerebro_elastic.core.history.derived import cached_partitions, failed_alike_elsewhere, failures_against
from cerebro_elastic.core.history.estimates import speed_factors
from cerebro_elastic.core.history.lineage import (
    born,
    edge_from,
    fresh_names,
    in_order,
    may_go_on,
    number_of,
    tried_again,
)
from cerebro_elastic.core.history.members import (
    by_config,
    first_members,
    member,
    members_of_repeats,
    named,
)
from cerebro_elastic.core.history.progress import next_units
from cerebro_elastic.core.model.attempts import Failure, FailureKind, Visit
from cerebro_elastic.core.model.configs import Config, Status
from cerebro_elastic.core.model.events import (
    ConfigCreated,
    ConfigEnded,
    ConfigResumed,
    Event,
    HomesAssigned,
    NodeQuarantined,
    RunEnded,
    StayEnded,
    UnitsReused,
    UnitWithdrawn,
)
from cerebro_elastic.core.model.interfaces import (
    Policy,
    Proposal,
    Resume,
    Search,
    Stop,
)
from cerebro_elastic.core.model.nodes import Node
from cerebro_elastic.core.model.reuse import NOTHING, standing
from cerebro_elastic.core.model.run import Plan
from cerebro_elastic.core.model.state import State, Streak
from cerebro_elastic.system.words import counted

IN_A_ROW = 3
"""Failures in a row, of more than one config, after which a node is quarantined."""
COOLDOWN = 60.0
"""Seconds of the first quarantine; each further failure doubles them."""
LONGEST_COOLDOWN = 3600.0
"""Seconds of the longest quarantine."""
WORTH_MOVING = 0.75
"""Partitions move for speed alone if that shortens the busiest node's share to this part of it or less."""


def decide(
    state: State, policy: Policy, search: Search, reusable: Mapping[str, Sequence[Visit]] = NOTHING.steps
) -> list[Event]:
    """The events to write now, in order; empty if the run only waits. The store gives them their revisions.

    Repairs come first. Units are assigned only in a state that needs no repair, and in which no config may
    take over results of earlier runs (``reusable``, as ``Reusable.steps``).
    """
    plan = state.plan
    if plan is None or state.outcome is not None:
        return []
    moment = Moment(state, plan)
    repairs: list[Event] = [
        *withdrawals(state),
        *failures(moment),
        *quarantines(state),
        *departures(state),
        *(_before_the_search(moment, reusable) or searches(moment, search)),
        *home_changes(moment),
    ]
    if repairs:
        return repairs
    if not moment.live:
        return [RunEnded(0, "finished")]
    if plan.has_members or plan.finishes_first:
        moment = Moment(state, plan, search.held(observed(moment)))
    return list(assignments(moment, policy))


def departures(state: State) -> Iterator[StayEnded]:
    """Stays whose nodes are gone; in an order that does not depend on how the state was read."""
    left = {stay.name: stay.left for stay in stays_of(state) if stay.left is not None}
    for name, moment in sorted(left.items()):
        if state.stays[name].left is None:
            yield StayEnded(0, name, moment)


def withdrawals(state: State) -> Iterator[UnitWithdrawn]:
    """Assignments whose node or config is gone."""
    for attempt in state.underway():
        if not state.may_report(attempt):
            yield UnitWithdrawn(0, attempt.node, attempt.token)


def failures(moment: Moment) -> Iterator[ConfigEnded]:
    """Configs to fail: a unit has used up its tries, or another try would be in vain, or no strategy is
    feasible."""
    state, plan = moment.state, moment.plan
    hardware = {node.hardware for node in moment.nodes.values()}
    may_fail = chooses(plan)
    for config in [config for config in moment.live.values() if config.failures or may_fail]:
        if (config.tries or may_fail) and config.id not in moment.busy:
            reason = _hopeless(config, plan) or infeasible(config, hardware, state.profiles, plan)
            if reason is not None:
                yield ConfigEnded(0, config.id, Status.FAILED, reason)


def quarantines(state: State) -> Iterator[NodeQuarantined]:
    """Idle nodes on which units keep failing. Each quarantine lasts longer than the previous one. A busy node
    is considered when it is idle. A node with a lasting fault that has registered since is considered when it
    fails again: its disk may have been freed before the run was restarted."""
    for name, streak in state.streaks.items():
        node = state.nodes.get(name)
        if node is None or name in state.attempts or name in state.quarantined:
            continue
        known = max(state.quarantined_for.get(name, 0), node.registration if streak.kind.lasting else 0)
        if streak.last > known and _too_many(state, name, streak):
            yield NodeQuarantined(0, name, _why(streak), streak.last, _cooldown(state, streak))


def _too_many(state: State, name: str, streak: Streak) -> bool:
    """Whether the streak is long enough. After a quarantine in the same streak one more failure suffices. If
    only one config fails on the node, in one or several of its trainings, the config is to blame, unless the
    kind of failure is the node's."""
    against = failures_against(state, name)
    failed = {state.configs[failure.unit.config].seen_as for failure in against}
    of_several = streak.kind.of_node or len(failed) > 1
    return streak.kind.lasting or (len(against) >= IN_A_ROW and of_several) or name in state.quarantined_for


def _why(streak: Streak) -> str:
    times = "once" if streak.failures == 1 else f"{streak.failures} times in a row"
    return f"units failed on it {times}, at last with {streak.kind.value}: {streak.story}"


def _cooldown(state: State, streak: Streak) -> float:
    """Seconds: doubled with each failure after the first that could quarantine the node; not while no node
    reaches the storage, since the storage is then to blame and soon worth another try."""
    kinds = [state.streaks[name].kind if name in state.streaks else None for name in state.nodes]
    if all(kind is FailureKind.STORAGE for kind in kinds):
        return COOLDOWN
    further = max(0, streak.failures - (1 if streak.kind.lasting else IN_A_ROW))
    return float(min(COOLDOWN * 2 ** min(further, 10), LONGEST_COOLDOWN))


def continuations(state: State) -> Iterator[ConfigResumed]:
    """Configs that the last extension resumes. The search decides only once it sees all of them."""
    extension = state.extension
    if extension is not None and extension.configs:
        for config in in_order(each for each in state.configs.values() if may_go_on(each, extension)):
            reason = f"the run was extended to {counted(extension.epochs, 'epoch')}"
            if config.status is Status.FAILED:
                reason = tried_again(extension.by)
            by_hand = config.id in extension.by_hand
            yield ConfigResumed(0, config.id, reason, by_hand, extension.number)


def memberships(moment: Moment) -> Iterator[ConfigEnded]:
    """Live members whose config was stopped while they were in a unit."""
    configs = moment.state.configs.values()
    for members in by_config(configs).values() if moment.plan.has_members else ():
        stopped = next((each for each in members if each.status is Status.STOPPED), None)
        if stopped is not None:
            for each in members:
                if _may_stop(moment, each):
                    yield ConfigEnded(0, each.id, Status.STOPPED, stopped.reason)


def _may_stop(moment: Moment, config: Config) -> bool:
    return config.status is Status.LIVE and not config.by_hand and config.id not in moment.busy


def home_changes(moment: Moment) -> Iterator[HomesAssigned]:
    """New homes for partitions, if some are on a node out of use, if a new node should get some, or if the
    nodes' speeds make it worthwhile."""
    state, plan, nodes = moment.state, moment.plan, _hosting(moment)
    if not nodes or moment.waits_for_nodes:
        return
    factors = speed_factors(state, (node.name for node in nodes))
    before = set(_count(state.homes))
    homeless = before - set(factors) or len(state.homes) < plan.partitions
    if not homeless and before == set(factors) and not _may_be_worthwhile(state.homes, factors):
        return
    balanced = rebalance(
        state.homes, nodes, cached_partitions(nodes), plan.partitions, factors, plan.replicas
    )
    after = set(_count(balanced))
    newcomer = after - before and len(after) > len(before)
    worthwhile = (
        homeless or newcomer or _longest(balanced, factors) <= WORTH_MOVING * _longest(state.homes, factors)
    )
    if worthwhile and balanced != state.homes:
        yield HomesAssigned(0, balanced)


def _may_be_worthwhile(homes: Homes, factors: Mapping[str, float]) -> bool:
    """Whether homes of divisible partitions, which are the best possible, would be better by enough."""
    counts = _count(homes)
    ideal = sum(counts.values()) / sum(1 / factor for factor in factors.values())
    return ideal * (1 - 1e-9) <= WORTH_MOVING * _longest(homes, factors)


def _hosting(moment: Moment) -> list[Node]:
    """The nodes that may be homes. A new node gets partitions only when it is ready, as their units would
    wait for it until then."""
    nodes, homes = list(moment.nodes.values()), _count(moment.state.homes)
    return [node for node in nodes if not node.starting or node.name in homes] or nodes


def _hopeless(config: Config, plan: Plan) -> str | None:
    """Why no further try at one of the config's next units can help; ``None`` if a try may."""
    for unit in next_units(config, plan) if config.tries else ():
        tries = [f for f in config.tries if f.unit == unit and counts(f, plan)]
        where = f"epoch {unit.epoch + 1}, partition {unit.partition}"
        vain = next((f for f in tries if f.kind.of_config), None)
        if vain is not None:
            return f"{where} failed on {vain.node} with {_in_words(vain)}"
        alike = [f.node for f in tries if failed_alike_elsewhere(f, config.tries)]
        if alike:
            return f"{where} failed alike on {', '.join(alike)}: {_in_words(tries[-1])}"
        if len(tries) >= plan.tries:
            nodes = ", ".join(f.node for f in tries)
            times = counted(len(tries), "time")
            return f"{where} failed {times} (on {nodes}), at last with {_in_words(tries[-1])}"
    return None


def _in_words(failure: Failure) -> str:
    return f"{failure.kind.value}: {failure.story}"


def _longest(homes: Homes, speed_factors: Mapping[str, float]) -> float:
    """The busiest node's share: its time for one visit to each of its partitions."""
    return max(count * speed_factors[name] for name, count in _count(homes).items())


def _count(homes: Homes) -> Counter[str]:
    """The number of partitions at home on each node."""
    return Counter(name for names in homes.values() for name in names)


def _before_the_search(
    moment: Moment, reusable: Mapping[str, Sequence[Visit]]
) -> list[ConfigResumed | UnitsReused | ConfigEnded]:
    """Events of configs that come before the search: those of an extension first, members last."""
    return [*continuations(moment.state)] or [*reuses(moment, reusable)] or [*memberships(moment)]


def reuses(moment: Moment, reusable: Mapping[str, Sequence[Visit]]) -> Iterator[UnitsReused]:
    """Idle configs in a state from which an earlier run continued: they get its visits. A run with nodes of
    the kind on which these were trained would have made the same."""
    if not reusable:
        return
    state = moment.state
    kinds = {node.hardware for node in state.nodes.values()}
    for name, place in _standing(None, moment.live).items():
        visits, config = reusable.get(place, ()) if name not in moment.busy else (), state.configs[name]
        if visits and visits[-1].unit.epoch < moment.plan.epochs and {v.hardware for v in visits} <= kinds:
            own = [replace(visit, unit=replace(visit.unit, config=name)) for visit in visits]
            own[0] = replace(own[0], input=config.head)  # the same state, perhaps at another place
            yield UnitsReused(0, tuple(own))


@PerConfig
def _standing(_shared: None, config: Config) -> str:
    return standing(config)


def searches(moment: Moment, search: Search) -> Iterator[ConfigCreated | ConfigEnded | ConfigResumed]:
    """The search's decisions. A decision on a config that has members holds for each of them; a member in a
    unit follows when it is idle (``memberships``)."""
    context, configs = observed(moment), moment.state.configs
    decisions = search.decide(context)
    for decision in decisions:
        members = named(configs, decision.config)
        for config in members:
            rests = config.status is Status.STOPPED and not config.by_hand
            match decision:
                case Stop(_, reason) if len(members) == 1 or _may_stop(moment, config):
                    yield ConfigEnded(0, config.id, Status.STOPPED, reason)
                case Resume(_, reason) if len(members) == 1 or rests:
                    yield ConfigResumed(0, config.id, reason)
    proposals = () if decisions else search.propose(context)
    if proposals:
        names = fresh_names(_number(None, configs).values())
        for proposal in proposals:
            first, *others = _new(moment.state, moment.plan, names, proposal)
            yield ConfigCreated(0, first, tuple(others))


@PerConfig
def _number(_shared: None, config: Config) -> int:
    return number_of(config.id)


def _new(state: State, plan: Plan, names: Iterator[str], proposal: Proposal) -> list[Config]:
    """The proposed config, or its members; or further members of one that exists."""
    if proposal.repeats:
        of = named(state.configs, proposal.parent or "")
        known = {(config.fold, config.repeat) for config in of}
        wanted = members_of_repeats(plan, range(proposal.repeats))
        return [_sibling(state, plan, of[0], *each) for each in wanted if each not in known]
    name = next(names)
    return [
        _member(state, plan, member(name, proposal.hparams, *each, plan), proposal.parent, proposal.origin)
        for each in first_members(plan)
    ]


def _sibling(state: State, plan: Plan, like: Config, fold: int | None, repeat: int) -> Config:
    """Another member of a config that already has one."""
    new = member(like.member_of, like.hparams, fold, repeat, plan)
    parent = state.configs[like.parent.config].member_of if like.parent and like.parent.config else None
    return _member(state, plan, new, parent, like.origin)


def _member(state: State, plan: Plan, new: Config, parent: str | None, origin: Mapping[str, Any]) -> Config:
    """A ``new`` config that begins from the present state of ``parent``, or of the parent's matching member;
    without a parent, from the start of all configs."""
    others = named(state.configs, parent) if parent is not None else []
    assert others or parent is None, f"no config {parent!r} exists for {new.id} to begin at"
    of = next((c for c in others if (c.fold, c.repeat) == (new.fold, new.repeat)), None)
    return born(replace(new, parent=plan.start if of is None else edge_from(of), origin=origin))
