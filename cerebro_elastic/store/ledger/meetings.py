"""Where the ranks of an attempt of several ranks meet: rank 0 writes its address to ``meeting/<lead>``.

No event: it changes nothing of the run. An address holds for the attempt whose token it bears, as long as
that is assigned.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from cerebro_elastic.core.model.attempts import Attempt
from cerebro_elastic.core.model.codec import encode
from cerebro_elastic.errors import Compacted, TxnUnknown
from cerebro_elastic.store.client.base import Put, at_revision
from cerebro_elastic.store.ledger.record import Record

_LOOK_SECONDS = 1.0
"""How often a rank that waits for the address looks whether its attempt is still assigned."""


@dataclass(frozen=True, slots=True)
class MeetingPlace:
    """Where rank 0 of an attempt listens."""

    token: int
    host: str
    """The address of the lead node."""
    port: int
    """The port of the group's store."""


class Meetings:
    """The meeting places of a run."""

    def __init__(self, record: Record) -> None:
        self._store = record.store
        self._record = record

    def is_assigned(self, attempt: Attempt, node: str) -> bool:
        """Whether the attempt is still the one of its ``node``."""
        assigned = self._record.assignment(node)
        return assigned is not None and assigned.token == attempt.token

    def announce(self, attempt: Attempt, host: str, port: int) -> None:
        """Write where the lead listens. Guard: the attempt is assigned to its lead node."""
        guard = [at_revision(self._record.keys.assign(attempt.node), attempt.token)]
        place = MeetingPlace(attempt.token, host, port)
        while True:
            try:
                self._store.txn(guard, [Put(self._key(attempt), encode(place).encode())])
                return
            except TxnUnknown:
                continue  # done twice is done

    def find(self, attempt: Attempt, node: str) -> MeetingPlace | None:
        """Wait for the address, on the attempt's ``node``; ``None`` if the attempt is no longer assigned."""
        key = self._key(attempt)
        while True:
            snapshot = self._store.range(key)
            for item in snapshot.items:
                place = self._record.value_in(item, MeetingPlace) if item.key == key else None
                if place is not None and place.token == attempt.token:
                    return place
            if not self.is_assigned(attempt, node):
                return None
            with self._store.watch(key, snapshot.revision + 1) as watch, suppress(Compacted):
                watch.next(_LOOK_SECONDS)

    def _key(self, attempt: Attempt) -> str:
        return self._record.keys.meeting(attempt.node)
