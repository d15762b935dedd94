"""What do failures and visits add up to: failure streaks, curves, usage, and the partitions in caches?"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import TypeAlias

from cerebro_elastic.core.history.progress import units_done
from cerebro_elastic.core.model.attempts import Failure, Visit
from cerebro_elastic.core.model.configs import Config
from cerebro_elastic.core.model.nodes import Node
from cerebro_elastic.core.model.run import Plan
from cerebro_elastic.core.model.state import NodeUsage, Point, State, Streak, Usage
from cerebro_elastic.core.model.units import Phase

Curves: TypeAlias = Mapping[str, tuple[Point, ...]]
"""By config: its points in the order of its visits."""
Batches: TypeAlias = Mapping[str, tuple[tuple[int, int], ...]]
"""By node: epochs and partitions."""


def add_failure(streaks: Mapping[str, Streak], failure: Failure) -> Mapping[str, Streak]:
    """``streaks`` after one more failure. One that is the config's own does not count against the node."""
    if failure.kind.of_config:
        return streaks
    streak = Streak(1, failure.attempt, failure.kind, failure.story)
    before = streaks.get(failure.node)
    if before is not None:
        last = streak if failure.attempt > before.last else before
        streak = replace(last, failures=before.failures + 1)
    return {**streaks, failure.node: streak}


def streaks_of(configs: Iterable[Config], committed: Mapping[str, int]) -> Mapping[str, Streak]:
    """All streaks: the failures of ``configs`` that are newer than what their node last ``committed``."""
    streaks: Mapping[str, Streak] = {}
    for config in configs:
        for failure in config.failures:
            if failure.attempt > committed.get(failure.node, 0):
                streaks = add_failure(streaks, failure)
    return streaks


def failed_alike_elsewhere(failure: Failure, config: Config) -> bool:
    """Whether the same exception at the same place ended the same unit on another node, too. Then the config
    is to blame, not the node."""
    return any(
        f.unit == failure.unit and f.node != failure.node and f.place == failure.place != ""
        for f in config.failures
    )


def failures_against(state: State, node: str) -> list[Failure]:
    """The failures since the node's last commit that are not their config's own."""
    committed = state.committed.get(node, 0)
    return [
        failure
        for config in state.configs.values()
        for failure in config.failures
        if failure.node == node and failure.attempt > committed
        if not (failure.kind.of_config or failed_alike_elsewhere(failure, config))
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
    return {**curves, after.id: (*curves.get(after.id, ()), point)}


def add_usage(usage: Usage, visit: Visit) -> Usage:
    """``usage`` after one more visit. A gang's seconds count for each of its nodes."""
    seconds = visit.seconds + visit.hop_seconds + visit.fetch_seconds
    began = visit.started if usage.began is None else min(usage.began, visit.started)
    return replace(
        usage,
        units=usage.units + (visit.unit.phase is Phase.TRAIN and visit.whole),
        seconds=usage.seconds + seconds * len(visit.nodes),
        began=began,
        until=max(usage.until, visit.ended),
        nodes=_add_seconds(usage.nodes, visit.nodes, visit.seconds, visit.freed),
        configs=_add_seconds(usage.configs, (visit.unit.config,), visit.seconds, visit.ended),
        batches_made=usage.batches_made + visit.batches_made,
        batches_shared=usage.batches_shared + visit.batches_shared,
        data_seconds=usage.data_seconds + visit.data_seconds,
    )


def _add_seconds(
    usage: Mapping[str, NodeUsage], names: Iterable[str], seconds: float, until: float
) -> Mapping[str, NodeUsage]:
    before = {name: usage.get(name, NodeUsage()) for name in names}
    after = {name: NodeUsage(b.seconds + seconds, max(b.until, until)) for name, b in before.items()}
    return {**usage, **after}


def add_cached(nodes: Mapping[str, Node], visit: Visit) -> Mapping[str, Node]:
    """``nodes`` after one more visit: its nodes have its partition in their caches, and its lead the replicas
    that it fetched; or its lead has what the visit says. A node that has registered anew since then is left
    as it is."""
    trained = {visit.unit.partition} if visit.unit.phase is Phase.TRAIN else set()
    updated: dict[str, Node] = {}
    for name in visit.nodes:
        node = nodes.get(name)
        cached = trained.union(visit.replicas) if name == visit.node else trained
        if node is None or node.registration >= visit.attempt:
            continue
        if name == visit.node and visit.cached is not None:
            if node.cached_as_of < visit.attempt:  # a later one may have been saved before it
                updated[name] = replace(node, cached=visit.cached, cached_as_of=visit.attempt)
        elif not cached <= set(node.cached):
            updated[name] = replace(node, cached=tuple(sorted(cached.union(node.cached))))
    return {**nodes, **updated} if updated else nodes


def add_batches(held: Batches, visit: Visit, plan: Plan) -> Batches:
    """``held`` after one more visit. Hosts drop the oldest epochs first, so those before the last but one do
    not count."""
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

    If some of them have said what all of the cache was, the last one counts: partitions that others knew of
    may have been dropped since.
    """
    latest: dict[str, int] = {}
    for node in nodes:
        latest[node.host] = max(latest.get(node.host, 0), node.cached_as_of)
    hosts: dict[str, set[int]] = {}
    for node in nodes:
        if node.cached_as_of == latest[node.host]:
            hosts.setdefault(node.host, set()).update(node.cached)
    return {node.name: frozenset(hosts[node.host]) for node in nodes}
