"""Which fields of a state follow from its visits, profiles and failures, and how?

The fold applies these functions to each event in turn. The reader of a snapshot applies them to the whole
content of the store (``derive``). So both arrive at the same state. A new derived field is added only here.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import TypeAlias

from cerebro_elastic.core.history.estimates import (
    add_fetch,
    add_hop,
    add_profile,
    learn,
    learn_epoch,
    refine,
)
from cerebro_elastic.core.history.lineage import born
from cerebro_elastic.core.history.progress import advance, units_done
from cerebro_elastic.core.model.attempts import Failure, ProfileResult, Visit
from cerebro_elastic.core.model.configs import Config
from cerebro_elastic.core.model.entries import with_entry
from cerebro_elastic.core.model.events import ProfileDone, UnitCommitted, UnitFailed
from cerebro_elastic.core.model.nodes import Node
from cerebro_elastic.core.model.run import Plan
from cerebro_elastic.core.model.state import NodeUsage, Point, State, Streak, Usage
from cerebro_elastic.core.model.units import Phase
from cerebro_elastic.system.words import counted

Curves: TypeAlias = Mapping[str, tuple[Point, ...]]
"""By config: its points in the order of its visits."""
Batches: TypeAlias = Mapping[str, tuple[tuple[int, int], ...]]
"""By node: epochs and partitions."""


def after_visit(state: State, visit: Visit, config: Config) -> State:
    """``state`` with its derived fields after ``visit``, which has brought its config to ``config``. A visit
    of an earlier run says nothing about nodes and times of this one."""
    assert state.plan is not None
    if visit.reused:
        return replace(
            state,
            curves=add_point(state.curves, config, visit, state.plan),
            usage=replace(state.usage, reused=state.usage.reused + _whole_units(visit)),
        )
    timings, speed_factors = learn(state.timings, state.speed_factors, visit)
    committed = add_token(state.committed, visit)
    may_end = any(name in state.streaks for name in visit.nodes)
    return replace(
        state,
        nodes=add_cached(state.nodes, visit),
        committed=committed,
        streaks=streaks_of(state.configs.values(), committed) if may_end else state.streaks,
        quarantined_for={
            name: token for name, token in state.quarantined_for.items() if token > committed.get(name, 0)
        },
        timings=timings,
        speed_factors=speed_factors,
        epoch_seconds=learn_epoch(
            state.epoch_seconds, state.speed_factors, visit, ends=config.epoch > visit.unit.epoch
        ),
        fetches=add_fetch(state.fetches, visit),
        hops=add_hop(state.hops, visit),
        curves=add_point(state.curves, config, visit, state.plan),
        usage=add_usage(state.usage, visit),
        batches=add_batches(state.batches, visit, state.plan),
        profiles=refine(state.profiles, visit),
    )


def committed(state: State, event: UnitCommitted) -> State:
    return after_visit(state, event.visit, state.configs[event.visit.unit.config])


def failed(state: State, event: UnitFailed) -> State:
    """A failure older than the node's last commit does not count."""
    failure = event.failure
    if failure.attempt <= state.committed.get(failure.node, 0):
        return state
    return replace(state, streaks=add_failure(state.streaks, failure))


def profiled(state: State, event: ProfileDone) -> State:
    return replace(state, profiles=add_profile(state.profiles, event.profile))


def derive(state: State, visits: Iterable[Visit], profiles: Iterable[ProfileResult]) -> State:
    """``state`` with its derived fields from the whole history.

    Args:
        state: All fields that are not derived; ``nodes`` as they registered, and all of ``quarantined_for``.
        visits: All visits in the order of their commits.
        profiles: All results of profiles, in any order. A config is in one attempt at a time, so the tokens
            order its profiles and visits.
    """
    to_come: defaultdict[str, deque[ProfileResult]] = defaultdict(deque)
    for profile in sorted(profiles, key=lambda profile: profile.attempt):
        config = state.configs.get(profile.unit.config)
        if profile.refusal is None or config is None or profile.attempt > config.retried:
            to_come[profile.unit.config].append(profile)
    configs = {config.id: born(config) for config in state.configs.values()}
    for visit in visits:
        name = visit.unit.config
        while to_come[name] and to_come[name][0].attempt < visit.attempt:
            state = profiled(state, ProfileDone(0, to_come[name].popleft()))
        assert state.plan is not None
        configs[name] = advance(configs[name], visit, state.plan)
        state = after_visit(state, visit, configs[name])
    for profile in (profile for rest in to_come.values() for profile in rest):
        state = profiled(state, ProfileDone(0, profile))
    return replace(state, streaks=streaks_of(state.configs.values(), state.committed))


def add_failure(streaks: Mapping[str, Streak], failure: Failure) -> Mapping[str, Streak]:
    """``streaks`` after one more failure. A failure of the config's own does not count against the node."""
    if failure.kind.of_config:
        return streaks
    streak = Streak(1, failure.attempt, failure.kind, failure.story)
    before = streaks.get(failure.node)
    if before is not None:
        last = streak if failure.attempt > before.last else before
        streak = replace(last, failures=before.failures + 1)
    return {**streaks, failure.node: streak}


def streaks_of(configs: Iterable[Config], committed: Mapping[str, int]) -> Mapping[str, Streak]:
    """All streaks: the failures of ``configs`` newer than their node's last ``committed`` attempt."""
    streaks: Mapping[str, Streak] = {}
    for config in configs:
        for failure in config.failures:
            if failure.attempt > committed.get(failure.node, 0):
                streaks = add_failure(streaks, failure)
    return streaks


def failed_alike_elsewhere(failure: Failure, failures: Iterable[Failure]) -> bool:
    """Whether the same exception at the same place ended the same unit on another node, too, by the
    ``failures`` of its config. Then the config is to blame, not the node."""
    return any(
        f.unit == failure.unit and f.node != failure.node and f.place == failure.place != "" for f in failures
    )


def failures_against(state: State, node: str) -> list[Failure]:
    """The failures since the node's last commit that are not their config's own."""
    committed = state.committed.get(node, 0)
    return [
        failure
        for config in state.configs.values()
        for failure in config.failures
        if failure.node == node and failure.attempt > committed
        if not (failure.kind.of_config or failed_alike_elsewhere(failure, config.failures))
    ]


def add_token(committed: Mapping[str, int], visit: Visit) -> Mapping[str, int]:
    """``committed`` after one more visit: by node, the highest token of its commits."""
    return {**committed, **{name: max(committed.get(name, 0), visit.attempt) for name in visit.nodes}}


def add_point(curves: Curves, after: Config, visit: Visit, plan: Plan) -> Curves:
    """``curves`` after one more visit, which has brought its config to ``after``. A part of a unit adds no
    point, nor does an evaluation that does not end its epoch."""
    ends = after.epoch > visit.unit.epoch
    if not ends and (visit.unit.phase is not Phase.TRAIN or not visit.whole):
        return curves
    metrics = after.metrics if ends else after.pending
    point = Point(units_done(after, plan), after.epoch, metrics, ends, after.head)
    return with_entry(curves, after.id, (*curves.get(after.id, ()), point))


def add_usage(usage: Usage, visit: Visit) -> Usage:
    """``usage`` after one more visit. A gang's seconds count for each of its nodes."""
    seconds = visit.seconds + visit.hop_seconds + visit.fetch_seconds
    began = visit.started if usage.began is None else min(usage.began, visit.started)
    return replace(
        usage,
        units=usage.units + _whole_units(visit),
        seconds=usage.seconds + seconds * len(visit.nodes),
        began=began,
        until=max(usage.until, visit.ended),
        nodes=_with_resources(_add_seconds(usage.nodes, visit.nodes, visit.seconds, visit.freed), visit),
        configs=_add_seconds(usage.configs, (visit.unit.config,), visit.seconds, visit.ended),
        batches_made=usage.batches_made + visit.batches_made,
        batches_shared=usage.batches_shared + visit.batches_shared,
        data_seconds=usage.data_seconds + visit.data_seconds,
        differing=usage.differing or _differing(usage, visit),
    )


def _differing(usage: Usage, visit: Visit) -> str:
    if not visit.differing:
        return ""
    return (
        f"{visit.differing}: seen in {visit.unit} on {visit.node}, which opens each row again from then on; "
        f"{counted(usage.units, 'unit')} before it may have trained on rows that were kept"
    )


def _whole_units(visit: Visit) -> int:
    return int(visit.unit.phase is Phase.TRAIN and visit.whole)


def _add_seconds(
    usage: Mapping[str, NodeUsage], names: Iterable[str], seconds: float, until: float
) -> Mapping[str, NodeUsage]:
    before = {name: usage.get(name, NodeUsage()) for name in names}
    after = {
        name: replace(b, seconds=b.seconds + seconds, until=max(b.until, until)) for name, b in before.items()
    }
    return {**usage, **after}


def _with_resources(usage: Mapping[str, NodeUsage], visit: Visit) -> Mapping[str, NodeUsage]:
    return {**usage, visit.node: replace(usage[visit.node], resources=visit.resources)}


def add_cached(nodes: Mapping[str, Node], visit: Visit) -> Mapping[str, Node]:
    """``nodes`` after one more visit: its nodes have its partition in their caches, and its lead the replicas
    that it fetched; or its lead has the cache that the visit reports. A node that has registered again since
    then is left unchanged."""
    trained = {visit.unit.partition} if visit.unit.phase is Phase.TRAIN else set()
    updated: dict[str, Node] = {}
    for name in visit.nodes:
        node = nodes.get(name)
        cached = trained.union(visit.replicas) if name == visit.node else trained
        if node is None or node.registration >= visit.attempt:
            continue
        if name == visit.node and visit.cached is not None:
            if node.cached_as_of < visit.attempt:  # a later one may have been saved earlier
                updated[name] = replace(node, cached=visit.cached, cached_as_of=visit.attempt)
        elif not cached <= set(node.cached):
            updated[name] = replace(node, cached=tuple(sorted(cached.union(node.cached))))
    return {**nodes, **updated} if updated else nodes


def add_batches(held: Batches, visit: Visit, plan: Plan) -> Batches:
    """``held`` after one more visit. Hosts drop the oldest epochs first, so only the last two epochs
    count."""
    if visit.unit.phase is not Phase.TRAIN or not plan.prefers_made:
        return held
    epoch, partition = visit.unit.epoch, visit.unit.partition
    before = {name: held.get(name, ()) for name in visit.nodes}
    after = {
        name: tuple(sorted([(epoch, partition), *(pair for pair in pairs if pair[0] >= epoch - 1)]))
        for name, pairs in before.items()
        if (epoch, partition) not in pairs
    }
    return {**held, **after} if after else held


def batches_at_hand(nodes: Collection[Node], held: Batches) -> dict[str, frozenset[tuple[int, int]]]:
    """By node: the epochs and partitions whose batches its host has, which all nodes of the host share."""
    hosts: dict[str, set[tuple[int, int]]] = {}
    for node in nodes:
        hosts.setdefault(node.host, set()).update(held.get(node.name, ()))
    return {node.name: frozenset(hosts[node.host]) for node in nodes}


def cached_partitions(nodes: Collection[Node]) -> dict[str, frozenset[int]]:
    """By node: the partitions in the cache of its host, which all nodes of the host share.

    If some of them reported the whole cache, the last report counts: other known partitions may have been
    dropped since.
    """
    latest: dict[str, int] = {}
    for node in nodes:
        latest[node.host] = max(latest.get(node.host, 0), node.cached_as_of)
    hosts: dict[str, set[int]] = {}
    for node in nodes:
        if node.cached_as_of == latest[node.host]:
            hosts.setdefault(node.host, set()).update(node.cached)
    return {node.name: frozenset(hosts[node.host]) for node in nodes}
