"""Which rank of an attempt a process is.

The ranks of an attempt are numbered through its nodes: first those of the node that leads, then those of each
member in the order of the gang. As many take part as the strategy has ranks; the others are idle.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cerebro_elastic.core.model.attempts import Attempt
from cerebro_elastic.core.model.nodes import Node


@dataclass(frozen=True, slots=True)
class RankIdentity:
    """A process of a run."""

    node: str
    boot: str
    """The boot id of its node's agent."""
    local_rank: int = 0
    """Its number among the ranks of its node, from 0."""


@dataclass(frozen=True, slots=True)
class RankAssignment:
    """The place of a process in an attempt."""

    rank: int
    """Its number among the attempt's ranks, from 0."""
    size: int
    """How many ranks the attempt has."""

    @property
    def leads(self) -> bool:
        """Whether this rank saves and commits for all."""
        return self.rank == 0


def rank_assignment_of(
    identity: RankIdentity, attempt: Attempt, nodes: Mapping[str, Node]
) -> RankAssignment | None:
    """The place of a process in an attempt on ``nodes``; ``None`` if it takes no part."""
    names = attempt.nodes
    before = sum(nodes[name].ranks for name in names[: names.index(identity.node)])
    rank, size = before + identity.local_rank, attempt.strategy.ranks
    return RankAssignment(rank, size) if rank < size else None


def stale(identity: RankIdentity, attempt: Attempt, nodes: Mapping[str, Node]) -> str | None:
    """Why this process must not begin the attempt, given its ``nodes``; ``None`` if it may."""
    for member in attempt.members:
        node = nodes.get(member.node)
        if node is None or node.registration != member.registration:
            return f"stale: the node {member.node} has registered anew"
    if nodes[identity.node].boot != identity.boot:
        return "not ours: another node has registered under our name; give each node its own"
    return None
