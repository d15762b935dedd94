"""The ranks of an attempt come together for it, and part again.

Rank 0 listens and tells where by the run's store; the others look there. Who waits looks now and then
whether the attempt still stands: it does not any more when one of its nodes is lost or has failed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from cerebro_elastic.addresses import LOOPBACK
from cerebro_elastic.core.model.attempts import Attempt
from cerebro_elastic.core.model.units import Strategy
from cerebro_elastic.parallel import group
from cerebro_elastic.store.ledger.meetings import Meetings
from cerebro_elastic.worker.rank_assignment import RankAssignment

_PATIENCE = 0.8
"""The part of the time after which a rank counts as hanging that the others wait for it: they outlive it."""
_PAUSE_SECONDS = 0.5


class Withdrawn(Exception):
    """The attempt no longer stands: there is nothing to do for it, and nothing to tell."""


class GroupRendezvous:
    """The meetings of one rank of the node ``node``, one attempt after the other; ``address`` is its host's,
    as others reach it."""

    def __init__(self, meetings: Meetings, node: str, address: str, device: str) -> None:
        self._meetings = meetings
        self._node = node
        self._address = address
        self._device = torch.device(device)

    @contextmanager
    def group(self, attempt: Attempt, seat: RankAssignment, hang: float) -> Iterator[None]:
        """The process group that the attempt's choice needs, if it needs one, as long as the block lasts. A
        rank counts as hanging after ``hang`` seconds.

        Raises ``Withdrawn`` if the attempt does not stand any more before all are there, ``GroupBroken`` if
        one does not come or is lost.
        """
        if not needs_group(attempt.strategy):
            yield
            return
        store = self._store(attempt, seat)
        patience = _PATIENCE * hang
        with group.formed(
            store,
            seat.rank,
            seat.size,
            self._device,
            timeout=patience,
            patience=patience,
            waiting=lambda: self._check(attempt),
        ):
            yield

    def stands(self, attempt: Attempt) -> bool:
        """Whether the attempt is still this node's."""
        return self._meetings.stands(attempt, self._node)

    def waiting(
        self, attempt: Attempt, seat: RankAssignment, beat: Callable[[], None]
    ) -> Callable[[], None] | None:
        """What a rank that does not lead calls to let the one that does get on; ``None`` for that one. It
        raises ``Withdrawn`` if the attempt does not stand any more."""
        if seat.leads:
            return None

        def wait() -> None:
            self._check(attempt)
            time.sleep(_PAUSE_SECONDS)
            beat()

        return wait

    def _check(self, attempt: Attempt) -> None:
        if not self.stands(attempt):
            raise Withdrawn

    def _store(self, attempt: Attempt, seat: RankAssignment) -> TCPStore:
        if seat.rank == 0:
            # The ranks of one node are on one machine.
            store = group.listen(self._address if attempt.gang else LOOPBACK)
            if seat.size > 1:
                self._meetings.announce(attempt, store.host, store.port)
            return store
        place = self._meetings.find(attempt, self._node)
        if place is None:
            raise Withdrawn
        return group.connect(place.host, place.port)


def needs_group(strategy: Strategy) -> bool:
    """Whether a choice's ranks need a process group: any parallelism does but the identity."""
    return strategy.ranks > 1 or strategy.parallelism != "single"
