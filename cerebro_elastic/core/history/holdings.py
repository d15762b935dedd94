"""Which partitions nodes have in their caches, as far as the history tells."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from cerebro_elastic.core.model.values import Node, Phase, Visit


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
