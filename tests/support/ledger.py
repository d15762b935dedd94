"""A run's record and all its ledgers in one hand: a test plays every part of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from cerebro_elastic.core.model import events as ev
from cerebro_elastic.core.model.attempts import Attempt, Failure, FailureKind, Visit
from cerebro_elastic.core.model.configs import Config, Status
from cerebro_elastic.core.model.nodes import Node
from cerebro_elastic.core.model.run import Plan
from cerebro_elastic.core.model.state import State, Streak
from cerebro_elastic.core.model.units import Order, PartialUnit, Phase, RecordHead
from cerebro_elastic.store.ledger.leader import LeaderLedger, become_leader
from cerebro_elastic.store.ledger.nodes import NodeLedger
from cerebro_elastic.store.ledger.operators import OperatorLedger
from cerebro_elastic.store.ledger.record import Record
from cerebro_elastic.store.ledger.worker import WorkerLedger

MANY = 64


class Leader(LeaderLedger):
    """A leader that writes what a test decides. It believes that the run is so that this is possible: whether
    the store lets it through is up to the guard."""

    def create_config(self, config: Config, parent: int = 0) -> int | None:
        """Add a config whose parent is believed to be at this revision."""
        edge, configs = config.parent, {}
        if edge is not None and edge.config:
            begun = (edge.epoch, edge.visited)
            stood = Config(
                edge.config, edge.hparams, Status.LIVE, *begun, head=edge.checkpoint, revision=parent
            )
            configs[edge.config] = stood
        return self.write(State(plan=Plan("", MANY, MANY), configs=configs), ev.ConfigCreated(0, config))

    def end_config(self, config: Config, status: Status, reason: str) -> int | None:
        state = State(configs={config.id: config})
        return self.write(state, ev.ConfigEnded(0, config.id, status, reason))

    def resume_config(self, config: Config, reason: str) -> int | None:
        stopped = Config(config.id, config.hparams, Status.STOPPED, revision=config.revision)
        return self.write(State(configs={config.id: stopped}), ev.ConfigResumed(0, config.id, reason))

    def assign_homes(self, homes: Mapping[int, tuple[str, ...]]) -> int | None:
        return self.write(State(plan=Plan("", len(homes), 1)), ev.HomesAssigned(0, homes))

    def set_order(self, order: Order) -> int | None:
        return self.write(State(leader="it"), ev.Ordered(0, order))

    def assign(self, attempt: Attempt) -> int | None:
        """Assign the attempt to nodes that are believed to be idle or, if it is queued, in the attempt that
        it is behind; returns its token."""
        unit, lead = attempt.unit, attempt.node
        visited = tuple(range(MANY)) if unit.phase is Phase.EVALUATE else ()
        partial_unit = PartialUnit(unit.partition, attempt.skip) if attempt.skip else None
        begun = (unit.epoch, visited)
        config = Config(unit.config, {}, Status.LIVE, *begun, partial_unit=partial_unit)
        another = replace(unit, config="another")
        ahead = Attempt(another, lead, 0, 0, token=attempt.queued_behind, second_key=not attempt.second_key)
        state = State(
            plan=Plan("", MANY, MANY, MANY, strategies=(attempt.strategy,)),
            configs={unit.config: replace(config, revision=attempt.config_revision)},
            nodes={m.node: Node(m.node, "", registration=m.registration) for m in attempt.members},
            attempts={lead: ahead} if attempt.queued_behind else {},
            saving=self._saving(*attempt.nodes),
        )
        return self.write(state, ev.UnitAssigned(0, attempt))

    def withdraw(self, attempt: Attempt) -> int | None:
        saving = {attempt.node: attempt} if attempt.trained else {}
        state = State(attempts={} if saving else dict.fromkeys(attempt.nodes, attempt), saving=saving)
        return self.write(state, ev.UnitWithdrawn(0, attempt.node, attempt.token))

    def quarantine(self, node: str, why: str, failure: int, seconds: float) -> int | None:
        streaks = {node: Streak(1, failure, FailureKind.CRASH, why)}
        state = State(streaks=streaks, saving=self._saving(node))
        return self.write(state, ev.NodeQuarantined(0, node, why, failure, seconds))

    def end_run(self, outcome: str, asked: int = 0) -> int | None:
        """End a run of which a person is believed to have asked for something at this revision at last."""
        return self.write(State(asked=asked), ev.RunEnded(0, outcome))

    def _saving(self, *nodes: str) -> dict[str, Attempt]:
        return {name: saving for name in nodes if (saving := self.record.saving(name)) is not None}


class Ledger(Record, NodeLedger, OperatorLedger, WorkerLedger):
    """The record, with the verbs of nodes, operators and workers."""

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def attempt_events(self) -> list[tuple[type, str]]:
        """What the history says of units, with their configs."""
        found, configs = [], {}
        for event in self.history():
            match event:
                case ev.UnitAssigned(revision=token, attempt=attempt):
                    configs[token] = attempt.unit.config
                case ev.UnitTrained(token=token) | ev.UnitCommitted(visit=Visit(attempt=token)):
                    pass
                case ev.UnitFailed(failure=Failure(attempt=token)):
                    pass
                case _:
                    continue
            found.append((type(event), configs[token]))
        return found

    @property
    def record(self) -> Record:  # type: ignore[override]
        return self

    def lead(
        self,
        controller: str,
        lease: int,
        versions: Mapping[str, str] | None = None,
        head: RecordHead | None = None,
    ) -> Leader | None:
        """Become the leader, as ``become_leader``."""
        ledger = become_leader(self, controller, lease, versions, head)
        return Leader(ledger.record, ledger.fence) if ledger is not None else None
