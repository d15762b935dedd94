"""Where the ranks of an attempt on several of them meet: told by rank 0, by the key ``meeting/<lead>``.

No event: it changes nothing of the run. A place counts for the attempt whose token it bears, and only as
long as that stands.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from cerebro_elastic.core.model.attempts import Attempt
from cerebro_elastic.core.model.codec import encode
from cerebro_elastic.errors import Compacted, TxnUnknown
from cerebro_elastic.store.client.base import KeyValue, Put, at_revision
from cerebro_elastic.store.ledger.foreign import value_in
from cerebro_elastic.store.ledger.ledger import Ledger

_LOOK_SECONDS = 1.0
"""How often who waits for a place looks whether its attempt still stands."""


@dataclass(frozen=True, slots=True)
class MeetingPlace:
    """Where rank 0 of the attempt with this token listens."""

    token: int
    host: str
    port: int


class Meetings:
    """The meeting places of a run."""

    def __init__(self, ledger: Ledger) -> None:
        self._store = ledger.store
        self._ledger = ledger

    def stands(self, attempt: Attempt, node: str) -> bool:
        """Whether the attempt is still the one of its ``node``."""
        assigned = self._ledger.assignment(node)
        return assigned is not None and assigned.token == attempt.token

    def announce(self, attempt: Attempt, host: str, port: int) -> None:
        """Tell the others where the lead listens; nothing happens if the attempt no longer stands."""
        guard = [at_revision(self._ledger.keys.assign(attempt.node), attempt.token)]
        place = MeetingPlace(attempt.token, host, port)
        while True:
            try:
                self._store.txn(guard, [Put(self._key(attempt), encode(place).encode())])
                return
            except TxnUnknown:
                continue  # done twice is done

    def find(self, attempt: Attempt, node: str) -> MeetingPlace | None:
        """Wait for the place, on the attempt's ``node``; ``None`` when the attempt no longer stands."""
        key = self._key(attempt)
        while True:
            snapshot = self._store.range(key)
            for item in snapshot.items:
                place = self._ledger.ours(item, _place) if item.key == key else None
                if place is not None and place.token == attempt.token:
                    return place
            if not self.stands(attempt, node):
                return None
            with self._store.watch(key, snapshot.revision + 1) as watch, suppress(Compacted):
                watch.next(_LOOK_SECONDS)

    def _key(self, attempt: Attempt) -> str:
        return self._ledger.keys.meeting(attempt.node)


def _place(item: KeyValue) -> MeetingPlace:
    return value_in(item, MeetingPlace)
