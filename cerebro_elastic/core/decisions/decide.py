"""What shall happen next? ``decide`` is a pure function of the state.

The controller writes the events that are decided, and sees them happen before it decides again. So nothing
here remembers what was decided.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from cerebro_elastic.core.decisions.assignment import assignments
from cerebro_elastic.core.decisions.homes import Homes, rebalance
from cerebro_elastic.core.decisions.membership import quarantines, used_nodes, waiting
from cerebro_elastic.core.decisions.per_config import PerConfig
from cerebro_elastic.core.decisions.strategies import chooses, counts, infeasible
from cerebro_elastic.core.history.derived import cached_partitions, failed_alike_elsewhere
from cerebro_elastic.core.history.estimates import speed_factors
from cerebro_elastic.core.history.lineage import born, child, fresh_names, in_order, may_go_on
from cerebro_elastic.core.history.progress import next_units, units_done
from cerebro_elastic.core.model.attempts import Failure
from cerebro_elastic.core.model.configs import Config, Status
from cerebro_elastic.core.model.events import (
    ConfigCreated,
    ConfigEnded,
    ConfigResumed,
    Event,
    HomesAssigned,
    RunEnded,
    UnitWithdrawn,
)
from cerebro_elastic.core.model.interfaces import (
    ConfigView,
    Policy,
    Proposal,
    Resume,
    Search,
    SearchContext,
    Stop,
)
from cerebro_elastic.core.model.nodes import Node
from cerebro_elastic.core.model.run import Plan
from cerebro_elastic.core.model.state import Point, State
from cerebro_elastic.system.words import counted

WORTH_MOVING = 0.75
"""Partitions move for speed alone if that shortens the busiest node's share to this part of it or less."""


def decide(state: State, policy: Policy, search: Search) -> list[Event]:
    """The events that shall happen now, in order; empty if the run only waits. The store knows their
    revisions.

    Repairs come first. Units are assigned only in a state that needs no repair.
    """
    plan = state.plan
    if plan is None or state.outcome is not None:
        return []
    repairs: list[Event] = [
        *withdrawals(state),
        *failures(state, plan),
        *quarantines(state),
        *(list(continuations(state)) or searches(state, plan, search)),
        *home_changes(state, plan),
    ]
    if repairs:
        return repairs
    if not any(c.status is Status.LIVE for c in state.configs.values()):
        return [RunEnded(0, "finished")]
    return list(assignments(state, plan, policy))


def withdrawals(state: State) -> Iterator[UnitWithdrawn]:
    """Assignments whose node or config is gone."""
    for attempt in state.underway():
        if not state.may_report(attempt):
            yield UnitWithdrawn(0, attempt.node, attempt.token)


def failures(state: State, plan: Plan) -> Iterator[ConfigEnded]:
    """Configs to fail: a unit was tried often enough, or another try would be in vain, or no strategy is
    feasible."""
    hardware = {node.hardware for node in used_nodes(state, plan)}
    busy = {attempt.unit.config for attempt in state.underway()}
    may_fail = chooses(plan)
    for config in state.configs.values():
        if (config.failures or may_fail) and config.status is Status.LIVE and config.id not in busy:
            reason = _hopeless(config, plan) or infeasible(config, hardware, state.profiles, plan)
            if reason is not None:
                yield ConfigEnded(0, config.id, Status.FAILED, reason)


def continuations(state: State) -> Iterator[ConfigResumed]:
    """Configs that the last extension lets go on. The search decides when it sees all of them."""
    extension = state.extension
    if extension is not None and extension.configs:
        for config in in_order(state.configs.values()):
            if may_go_on(config, extension):
                reason = f"the run was extended to {counted(extension.epochs, 'epoch')}"
                by_hand = config.id in extension.by_hand
                yield ConfigResumed(0, config.id, reason, by_hand, extension.number)


def home_changes(state: State, plan: Plan) -> Iterator[HomesAssigned]:
    """New homes for partitions, if some are on a node that is not in use, if a new node should get some, or
    if the nodes' speeds make it worthwhile."""
    nodes = _hosting(state, plan)
    if not nodes or waiting(state, plan):
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
    """Whether other homes could be better by enough, if partitions could be cut: no homes are better than
    those."""
    counts = _count(homes)
    ideal = sum(counts.values()) / sum(1 / factor for factor in factors.values())
    return ideal * (1 - 1e-9) <= WORTH_MOVING * _longest(homes, factors)


def _hosting(state: State, plan: Plan) -> list[Node]:
    """The nodes that may be homes. A new node gets partitions only when it is ready, as their units would
    wait for it until then."""
    nodes, homes = used_nodes(state, plan), _count(state.homes)
    return [node for node in nodes if not node.starting or node.name in homes] or nodes


def _hopeless(config: Config, plan: Plan) -> str | None:
    """Why no further try at one of the config's next units can help; ``None`` if one may."""
    for unit in next_units(config, plan) if config.failures else ():
        tries = [f for f in config.failures if f.unit == unit and counts(f, plan)]
        where = f"epoch {unit.epoch + 1}, partition {unit.partition}"
        vain = next((f for f in tries if f.kind.of_config), None)
        if vain is not None:
            return f"{where} failed on {vain.node} with {_in_words(vain)}"
        alike = [f.node for f in tries if failed_alike_elsewhere(f, config)]
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
    """The busiest node's share: how long it takes to visit each of its partitions once."""
    return max(count * speed_factors[name] for name, count in _count(homes).items())


def _count(homes: Homes) -> Counter[str]:
    """The number of partitions at home on each node."""
    return Counter(name for names in homes.values() for name in names)


def observe(state: State, plan: Plan) -> SearchContext:
    """The run as a search sees it."""
    busy = {attempt.unit.config for attempt in state.underway()}
    seen = (
        (config, (state.curves.get(config.id, ()), config.id not in busy))
        for config in in_order(state.configs.values())
    )
    return SearchContext(
        configs=list(_view(plan, seen).values()),
        partitions=plan.partitions,
        epochs=plan.epochs,
        nodes=max(len(used_nodes(state, plan)), plan.min_nodes),
        usage=state.usage,
    )


@PerConfig
def _view(plan: Plan, config: Config, own: tuple[Sequence[Point], bool]) -> ConfigView:
    curve, idle = own
    return ConfigView(
        config=config.id,
        hparams=config.hparams,
        status=config.status,
        epochs=config.epoch,
        units=units_done(config, plan),
        curve=curve,
        idle=idle,
        parent=(config.parent.config or None) if config.parent else None,
        origin=config.origin,
        by_hand=config.by_hand,
    )


def searches(
    state: State, plan: Plan, search: Search
) -> Iterator[ConfigCreated | ConfigEnded | ConfigResumed]:
    """What the search wants."""
    context = observe(state, plan)
    decisions = search.decide(context)
    for decision in decisions:
        match decision:
            case Stop(config, reason):
                yield ConfigEnded(0, config, Status.STOPPED, reason)
            case Resume(config, reason):
                yield ConfigResumed(0, config, reason)
    proposals = () if decisions else search.propose(context)
    if proposals:
        for name, proposal in zip(fresh_names(state.configs), proposals, strict=False):
            yield ConfigCreated(0, _new(state, plan, name, proposal))


def _new(state: State, plan: Plan, name: str, proposal: Proposal) -> Config:
    if proposal.parent is None:
        return born(Config(name, proposal.hparams, parent=plan.start, origin=proposal.origin))
    return child(state.configs[proposal.parent], name, proposal.hparams, proposal.origin)
