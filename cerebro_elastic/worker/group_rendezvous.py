"""The ranks of an attempt: a process's place among them, and the process group in which they meet and part.

The ranks are numbered through the attempt's nodes: first those of the node that leads, then those of each
member in the order of the gang. As many take part as the strategy has ranks; the others are idle.

Rank 0 listens and announces its address in the run's store, where the others find it. While ranks wait they
check whether the attempt is still valid: it ends when one of its nodes is lost or has failed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cerebro_elastic.core.model.attempts import Attempt
from cerebro_elastic.core.model.nodes import Node
from cerebro_elastic.core.model.units import Strategy
from cerebro_elastic.errors import StoreError
from cerebro_elastic.store.ledger.worker import WorkerLedger
from cerebro_elastic.system.addresses import LOOPBACK
from cerebro_elastic.system.devices import is_accelerator

if TYPE_CHECKING:
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

_PATIENCE = 0.8
"""The part of the hang time that ranks wait for another one: a rank that hangs ends first."""
_PAUSE_SECONDS = 0.5


class Withdrawn(Exception):
    """The attempt is no longer valid: nothing is done or recorded for it."""


class GroupRendezvous:
    """Forms the groups of one rank, one attempt after the other.

    Args:
        ledger: Says where the run's ranks meet.
        node: The name of the rank's node.
        address: Returns the address of its host, as other nodes reach it.
        device: The rank's device.
    """

    def __init__(self, ledger: WorkerLedger, node: str, address: Callable[[], str], device: str) -> None:
        self._ledger = ledger
        self._node = node
        self._address = address
        self._device = device

    @contextmanager
    def group(self, attempt: Attempt, rank_assignment: RankAssignment, hang: float) -> Iterator[None]:
        """Within the block: the process group that the attempt's strategy needs, if it needs one. A rank
        counts as hanging after ``hang`` seconds.

        Raises:
            Withdrawn: The attempt was withdrawn before all ranks had come.
            GroupBroken: A rank does not come, or is lost.
        """
        if not needs_group(attempt.strategy):
            yield
            return
        import torch

        from cerebro_elastic.training.parallel import group

        store = self._store(attempt, rank_assignment)
        patience = _PATIENCE * hang
        with group.formed(
            store,
            rank_assignment.rank,
            rank_assignment.size,
            torch.device(self._device),
            timeout=patience,
            patience=patience,
            waiting=lambda: self._check(attempt),
        ):
            if is_accelerator(self._device):
                with self._aborting(attempt):
                    yield
            else:  # gloo fails at once
                yield

    @contextmanager
    def _aborting(self, attempt: Attempt) -> Iterator[None]:
        """NCCL and its like do not notice that a peer has died. Its agent or the leader does, and withdraws
        the attempt: within the block that ends the collectives that this rank waits in."""
        import torch

        from cerebro_elastic.training.parallel import group

        over = threading.Event()

        def look() -> None:
            while not over.wait(_PAUSE_SECONDS):
                with suppress(StoreError):  # the store may be away
                    if not self.is_assigned(attempt):
                        group.abort(torch.device(self._device))
                        return

        thread = threading.Thread(target=look, name="group-abort", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def is_assigned(self, attempt: Attempt) -> bool:
        """Whether the attempt is still this node's."""
        return self._ledger.is_assigned(attempt, self._node)

    def waiting(
        self, attempt: Attempt, rank_assignment: RankAssignment, beat: Callable[[], None]
    ) -> Callable[[], None] | None:
        """A function by which a rank waits for the one that leads; ``None`` on the one that leads. It raises
        ``Withdrawn`` if the attempt is no longer valid."""
        if rank_assignment.leads:
            return None

        def wait() -> None:
            self._check(attempt)
            time.sleep(_PAUSE_SECONDS)
            beat()

        return wait

    def _check(self, attempt: Attempt) -> None:
        if not self.is_assigned(attempt):
            raise Withdrawn

    def _store(self, attempt: Attempt, rank_assignment: RankAssignment) -> TCPStore:
        from cerebro_elastic.training.parallel import group

        if rank_assignment.rank == 0:
            # The ranks of one node are on one machine.
            store = group.listen(self._address() if attempt.gang else LOOPBACK)
            if rank_assignment.size > 1:
                self._ledger.announce(attempt, store.host, store.port)
            return store
        meeting = self._ledger.meeting_place(attempt, self._node)
        if meeting is None:
            raise Withdrawn
        return group.connect(meeting.host, meeting.port)


def needs_group(strategy: Strategy) -> bool:
    """Whether a strategy's ranks need a process group: every parallelism but ``single`` does."""
    return strategy.ranks > 1 or strategy.parallelism != "single"


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
            return f"stale: the node {member.node} has registered again"
    if nodes[identity.node].boot != identity.boot:
        return "not ours: another node has registered under our name; give each node its own"
    return None
