"""Which partitions nodes have in their caches, as far as the history tells."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from cerebro_elastic.core.values import Node, Phase, Visit


def with_visit(nodes: Mapping[str, Node], visit: Visit) -> Mapping[str, Node]:
    """``nodes`` after the visit: those that took part have its partition, if they are registered as they were
    then."""
    j = visit.unit.partition
    there = [nodes[name] for name in visit.nodes if name in nodes]
    new = [node for node in there if node.registration < visit.attempt and j not in node.cached]
    if visit.unit.phase is not Phase.TRAIN or not new:
        return nodes
    return {**nodes, **{node.name: replace(node, cached=tuple(sorted((*node.cached, j)))) for node in new}}


def holdings(nodes: Collection[Node]) -> dict[str, frozenset[int]]:
    """By node: what the cache of its host has, which all of its nodes share."""
    hosts: dict[str, set[int]] = {}
    for node in nodes:
        hosts.setdefault(node.host, set()).update(node.cached)
    return {node.name: frozenset(hosts[node.host]) for node in nodes}
