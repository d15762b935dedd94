"""Which rank of an attempt a process is.

The ranks of an attempt are numbered through its nodes: the lead's first, then each member's in the order of
the gang. As many as its choice says take part; the others are idle.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cerebro_elastic.core.model.attempts import Attempt
from cerebro_elastic.core.model.nodes import Node


@dataclass(frozen=True, slots=True)
class Identity:
    """A process of a run: the ``local_rank`` of the node of this name and ``boot`` id."""

    node: str
    boot: str
    local_rank: int = 0


@dataclass(frozen=True, slots=True)
class RankAssignment:
    """Rank ``rank`` of ``size``."""

    rank: int
    size: int

    @property
    def leads(self) -> bool:
        """Whether it is the one that saves and commits."""
        return self.rank == 0


def seat_of(identity: Identity, attempt: Attempt, nodes: Mapping[str, Node]) -> RankAssignment | None:
    """The seat that a process has in an attempt on ``nodes``; ``None`` if it has none."""
    names = attempt.nodes
    before = sum(nodes[name].ranks for name in names[: names.index(identity.node)])
    rank, size = before + identity.local_rank, attempt.strategy.ranks
    return RankAssignment(rank, size) if rank < size else None


def stale(identity: Identity, attempt: Attempt, nodes: Mapping[str, Node]) -> str | None:
    """Why the attempt is not for this process to begin, as far as its ``nodes`` say; ``None`` if it is."""
    for member in attempt.members:
        node = nodes.get(member.node)
        if node is None or node.registration != member.registration:
            return f"stale: the node {member.node} has registered anew"
    if nodes[identity.node].boot != identity.boot:
        return "not ours: another node has registered under our name; give each node its own"
    return None
