"""The worker's verbs. Each is fenced by the assignment, the config's revision and the registration."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from cerebro_elastic.core.history.progress import advance
from cerebro_elastic.core.model.attempts import Attempt, Failure, ProfileResult, Visit
from cerebro_elastic.core.model.configs import Config
from cerebro_elastic.core.model.events import (
    Event,
    ProfileDone,
    UnitCommitted,
    UnitFailed,
    UnitTrained,
    UnitWithdrawn,
)
from cerebro_elastic.core.model.run import Plan
from cerebro_elastic.errors import TxnUnknown
from cerebro_elastic.store.client.base import Delete, KeyValue, Op, Put, absent, at_revision
from cerebro_elastic.store.ledger.changes import as_begun, cleared, held, value_of
from cerebro_elastic.store.ledger.history import visits_in
from cerebro_elastic.store.ledger.record import Record


class WorkerVerbs(Record):
    """What a node does to a run's record for an attempt of its own."""

    def trained(self, attempt: Attempt) -> Attempt | None:
        """Free the node of the attempt but for its save: the attempt as it is to be committed, or failed,
        from now on. ``None`` if it may not commit any more, or if the node saves another."""
        key = self.keys.saving(attempt.node)
        guard = [*held(self.keys, attempt), *as_begun(self.keys, attempt), absent(key)]
        ops = [*cleared(self.keys, attempt), Put(key, value_of(attempt))]
        event = UnitTrained(0, attempt.node, attempt.token)
        while True:
            refused = False
            with suppress(TxnUnknown):
                revision = self._do(guard, ops, event)
                if revision is not None:
                    return replace(attempt, trained=revision)
                refused = True
            saving = self.saving(attempt.node)  # perhaps by an earlier try of ours
            if saving is not None and saving.token == attempt.token:
                return saving
            if refused or not self._stands(attempt):
                return None

    def commit(self, attempt: Attempt, config: Config, visit: Visit, plan: Plan) -> bool:
        """Make the attempt a visit; ``False`` if it may no longer commit."""
        key = self.keys.visit(visit.unit, visit.k)
        advanced = replace(advance(config, visit, plan), revision=0)
        ops = [Put(key, value_of(visit)), Put(self.keys.config(config.id), value_of(advanced))]
        if self._report(attempt, ops, UnitCommitted(0, visit)):
            return True
        return self._read(key, lambda item: visits_in([item])[0]) == visit

    def fail(self, attempt: Attempt, config: Config, failure: Failure) -> bool:
        """Record that the attempt failed; ``False`` if it is no longer the node's."""
        remembers = replace(config, failures=(*config.failures, failure), revision=0)
        put = Put(self.keys.config(config.id), value_of(remembers))
        if self._report(attempt, [put], UnitFailed(0, failure)):
            return True
        recorded = self.config(config.id)
        return recorded is not None and failure in recorded.failures

    def tried(self, attempt: Attempt, profile: ProfileResult) -> bool:
        """Record what a trial has told; ``False`` if the attempt is no longer the node's."""
        key = self.keys.profile(attempt.unit.config, attempt.token)
        return (
            self._report(attempt, [Put(key, value_of(profile))], ProfileDone(0, profile))
            or self.store.get(key) is not None
        )

    def give_up(self, attempt: Attempt) -> bool:
        """Take the assignment back, by a node of it, which leaves and has nothing to commit; ``False`` if
        it is no longer the node's."""
        return self._report(attempt, [], UnitWithdrawn(0, attempt.node, attempt.token))

    def refuse(self, item: KeyValue) -> None:
        """Take away what is not signed, and stands in the way of what would be."""
        with suppress(TxnUnknown):
            self.store.txn([at_revision(item.key, item.mod_revision)], [Delete(item.key)])

    def _report(self, attempt: Attempt, ops: Sequence[Op], event: Event) -> bool:
        """Sent again while the assignment stands, which is safe: the same guard lets it through
        once. ``False`` means refused, or done by a transaction whose answer was lost."""
        guard = [*held(self.keys, attempt), *as_begun(self.keys, attempt)]
        while True:
            try:
                return self._do(guard, [*ops, *cleared(self.keys, attempt)], event) is not None
            except TxnUnknown:
                if not self._stands(attempt):
                    return False

    def _stands(self, attempt: Attempt) -> bool:
        """Whether it is still its node's, in training or being saved, whichever it says."""
        at = self.saving(attempt.node) if attempt.trained else self.assignment(attempt.node)
        return at is not None and at.token == attempt.token
