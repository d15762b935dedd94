"""A run's record and all its ledgers in one hand: a test plays every part of a run but its leader."""

from __future__ import annotations

from collections.abc import Mapping

from cerebro_elastic.core.model.units import RecordHead
from cerebro_elastic.store.ledger.leader import LeaderLedger, become_leader
from cerebro_elastic.store.ledger.nodes import NodeLedger
from cerebro_elastic.store.ledger.operators import OperatorLedger
from cerebro_elastic.store.ledger.record import Record
from cerebro_elastic.store.ledger.worker import WorkerLedger


class Ledger(Record, NodeLedger, OperatorLedger, WorkerLedger):
    """The record, with the verbs of nodes, operators and workers."""

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    @property
    def record(self) -> Record:  # type: ignore[override]
        return self

    def lead(
        self,
        controller: str,
        lease: int,
        versions: Mapping[str, str] | None = None,
        head: RecordHead | None = None,
    ) -> LeaderLedger | None:
        """Become the leader, as ``become_leader``."""
        return become_leader(self, controller, lease, versions, head)
