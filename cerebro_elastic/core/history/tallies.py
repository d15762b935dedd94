"""What the fold counts beside the configs' progress: each node's failures in a row, each config's curve, what the
visits have cost, and which partitions nodes have in their caches.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import TypeAlias

from cerebro_elastic.core.history.lineage import born
from cerebro_elastic.core.history.progress import advance, units_done
from cerebro_elastic.core.model.attempts import Failure, Visit
from cerebro_elastic.core.model.configs import Config
from cerebro_elastic.core.model.nodes import Node
from cerebro_elastic.core.model.run import Plan
from cerebro_elastic.core.model.state import NodeUsage, Point, State, Streak, Usage
from cerebro_elastic.core.model.units import Phase


def lengthen(streaks: Mapping[str, Streak], failure: Failure) -> Mapping[str, Streak]:
    """``streaks`` after one more failure. One that is the config's own says nothing of the node."""
    if failure.kind.of_config:
        return streaks
    streak = Streak(1, failure.attempt, failure.kind, failure.story)
    before = streaks.get(failure.node)
    if before is not None:
        last = streak if failure.attempt > before.last else before
        streak = Streak(before.failures + 1, last.last, last.kind, last.story)
    return {**streaks, failure.node: streak}


def repeated(failure: Failure, config: Config) -> bool:
    """Whether the same exception at the same place ended the same unit on another node, too: then it is the
    config's own, and says nothing of the node."""
    return any(
        f.unit == failure.unit and f.node != failure.node and f.place == failure.place != ""
        for f in config.failures
    )


def suspicious(state: State, node: str) -> list[Failure]:
    """The failures in the node's streak that speak against it."""
    committed = state.committed.get(node, 0)
    return [
        failure
        for config in state.configs.values()
        for failure in config.failures
        if failure.node == node and failure.attempt > committed
        if not (failure.kind.of_config or repeated(failure, config))
    ]


def streaks_of(configs: Iterable[Config], committed: Mapping[str, int]) -> Mapping[str, Streak]:
    """All streaks, by the failures that the ``configs`` remember and the token of the attempt that each node
    last ``committed``."""
    streaks: Mapping[str, Streak] = {}
    for config in configs:
        for failure in config.failures:
            if failure.attempt > committed.get(failure.node, 0):
                streaks = lengthen(streaks, failure)
    return streaks


Curves: TypeAlias = Mapping[str, tuple[Point, ...]]
"""By config, in the order of its visits."""


def extend(curves: Curves, after: Config, visit: Visit, plan: Plan) -> Curves:
    """``curves`` after one more visit, which has brought its config to ``after``. A part of a unit, or an
    evaluation that does not end its epoch, tells nothing yet."""
    ends = after.epoch > visit.unit.epoch
    if not ends and (visit.unit.phase is not Phase.TRAIN or not visit.whole):
        return curves
    point = Point(units_done(after, plan), after.epoch, after.metrics if ends else after.pending, ends)
    return {**curves, after.id: (*curves.get(after.id, ()), point)}


def add_usage(usage: Usage, visit: Visit) -> Usage:
    """``usage`` after one more visit; a gang's seconds are those of each of its nodes."""
    seconds = visit.seconds + visit.hop_seconds + visit.fetch_seconds
    began = visit.started if usage.began is None else min(usage.began, visit.started)
    return replace(
        usage,
        units=usage.units + (visit.unit.phase is Phase.TRAIN and visit.whole),
        seconds=usage.seconds + seconds * len(visit.nodes),
        began=began,
        until=max(usage.until, visit.ended),
        nodes=_busier(usage.nodes, visit.nodes, visit.seconds, visit.freed),
        configs=_busier(usage.configs, (visit.unit.config,), visit.seconds, visit.ended),
    )


def _busier(
    busy: Mapping[str, NodeUsage], names: Iterable[str], seconds: float, until: float
) -> Mapping[str, NodeUsage]:
    before = {name: busy.get(name, NodeUsage()) for name in names}
    after = {name: NodeUsage(b.seconds + seconds, max(b.until, until)) for name, b in before.items()}
    return {**busy, **after}


def retell(configs: Iterable[Config], visits: Iterable[Visit], plan: Plan | None) -> tuple[Curves, Usage]:
    """The curves and costs that all ``visits``, in the order of their commits, have made."""
    curves, usage = dict[str, tuple[Point, ...]](), Usage()
    at = {config.id: born(config) for config in configs}
    for visit in visits:
        assert plan is not None
        after = at[visit.unit.config] = advance(at[visit.unit.config], visit, plan)
        curves = dict(extend(curves, after, visit, plan))
        usage = add_usage(usage, visit)
    return curves, usage


def with_visit(nodes: Mapping[str, Node], visit: Visit) -> Mapping[str, Node]:
    """``nodes`` after the visit: those that took part have its partition, the one that led has the replicas
    that it got, if they are registered as they were then."""
    trained = {visit.unit.partition} if visit.unit.phase is Phase.TRAIN else set()
    new: dict[str, Node] = {}
    for name in visit.nodes:
        node = nodes.get(name)
        got = trained.union(visit.replicas) if name == visit.node else trained
        if node is not None and node.registration < visit.attempt and not got <= set(node.cached):
            new[name] = replace(node, cached=tuple(sorted(got.union(node.cached))))
    return {**nodes, **new} if new else nodes


def when_ready(node: Node, cached: Collection[int]) -> Node:
    """The node when its ranks are ready and find these partitions in its cache."""
    return replace(node, starting=False, cached=tuple(sorted({*node.cached, *cached})))


def holdings(nodes: Collection[Node]) -> dict[str, frozenset[int]]:
    """By node: what the cache of its host has, which all of its nodes share."""
    hosts: dict[str, set[int]] = {}
    for node in nodes:
        hosts.setdefault(node.host, set()).update(node.cached)
    return {node.name: frozenset(hosts[node.host]) for node in nodes}
