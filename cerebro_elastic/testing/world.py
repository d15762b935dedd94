"""A whole run in one thread, step by step, with every fault at every point.

Real ledger, real controllers, the exact in-memory store or an etcd; only training is replaced, by a pure
function of the same arguments (a hash), so that purity can be checked. Whoever drives a ``World``
(hypothesis, an enumeration, a seeded walk) chooses the order of its steps; after each one
``check`` compares the store's history with the invariants, and the fold with the snapshot.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from cerebro_elastic.clock import Clock
from cerebro_elastic.controller.controller import Controller, Deposed
from cerebro_elastic.core.events import Event
from cerebro_elastic.core.invariants import Violation, check
from cerebro_elastic.core.machine import fold
from cerebro_elastic.core.ports import Policy, Search, Trial
from cerebro_elastic.core.progress import position
from cerebro_elastic.core.state import State
from cerebro_elastic.core.values import (
    Attempt,
    CheckpointRef,
    Config,
    Failure,
    FailureKind,
    HParams,
    Node,
    Phase,
    Plan,
    Spec,
    Visit,
)
from cerebro_elastic.store.base import Store
from cerebro_elastic.store.ledger import Ledger
from cerebro_elastic.store.memory import MemoryStore
from cerebro_elastic.testing.clocks import HandClock

TTL = 10.0
SOON = 10.0
"""Seconds within which a watch shows what has happened."""


@dataclass(frozen=True)
class FixedSearch:
    """Proposes what it was given, once."""

    points: Sequence[HParams]

    def propose(self, trials: Sequence[Trial]) -> Sequence[HParams]:
        return self.points[len(trials) :]


@dataclass
class Worker:
    """A rank that trains one attempt. It may be late, or cut off from its registration."""

    attempt: Attempt
    config: Config


def digest(source: CheckpointRef | None, visit_of: Attempt, hparams: HParams) -> str:
    """The "training": a pure function of input, config, epoch, partition and phase."""
    unit = visit_of.unit
    if unit.phase is Phase.EVALUATE and source is not None:
        return source.digest
    told = [source.digest if source else None, dict(hparams), unit.config, unit.epoch, unit.partition]
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]


class World:
    """One run. Steps are methods; all are safe to call at any moment.

    ``patience`` is how many seconds a watch may take to show what has happened (an etcd's: some).
    """

    def __init__(
        self,
        plan: Plan,
        configs: int,
        policy: Policy,
        *,
        store: Callable[[Clock], Store] = MemoryStore,
        patience: float = 0.0,
    ) -> None:
        self.clock = HandClock()
        self.store = store(self.clock)
        self.ledger = Ledger(self.store, plan.run)
        self.plan = plan
        self.patience = patience
        self.begin = self.store.range("/").revision + 1
        self.policy = policy
        self.search: Search = FixedSearch([{"lr": 0.1 * (i + 1)} for i in range(configs)])
        self.leases: dict[str, int] = {}
        self.registered: dict[str, Node] = {}
        self.workers: list[Worker] = []
        self.controllers: list[Controller] = []
        self.saved: set[str] = set()
        self.acknowledged: list[Visit] = []
        self.elections = 0
        self.leader_lease = 0
        self.ledger.open(Spec(plan, {}, "", "", "", "", "", "", ""))

    # Faults and progress, one step each.

    def elect(self) -> None:
        """A new controller takes over; the old one does not know and may go on trying."""
        if self.leader_lease:
            self.store.revoke(self.leader_lease)
        self.elections += 1
        self.leader_lease = self.store.grant(TTL)
        name = f"controller-{self.elections}"
        while (leader := self.ledger.lead(name, self.leader_lease)) is None:
            pass
        controller = Controller(self.ledger, self.policy, self.search, name=name, leader=leader)
        controller.__enter__()
        self.controllers.append(controller)

    def control(self, which: int = -1) -> None:
        """A controller takes in one revision and acts; the deposed notice and go."""
        if not self.controllers:
            return
        controller = self.controllers[which % len(self.controllers)]
        try:
            controller.step(self.patience)
        except Deposed:
            controller.__exit__()
            self.controllers.remove(controller)

    def join(self, name: str) -> None:
        """A node registers, anew if it is there already."""
        self.leases[name] = self.store.grant(TTL)
        self.registered[name] = self.ledger.register(Node(name, "host"), self.leases[name])

    def lose(self, name: str) -> None:
        """A node's lease ends; its worker trains on."""
        if name in self.leases:
            self.store.revoke(self.leases.pop(name))

    def start(self, name: str) -> None:
        """A node's rank takes its assignment up, also one it has begun before (a restart)."""
        attempt = self.ledger.assignment(name)
        node = self.registered.get(name)
        if attempt is None or node is None or attempt.registration != node.registration:
            return
        config = self.ledger.config(attempt.unit.config)
        if config is not None and config.revision == attempt.config_revision:
            self.workers.append(Worker(attempt, config))

    def commit(self, which: int, *, keep: bool = False) -> None:
        """A worker ends and commits; with ``keep`` it will try to do so once more."""
        if not self.workers:
            return
        worker = self.workers[which % len(self.workers)]
        visit = self.train(worker)
        if self.ledger.commit(worker.attempt, worker.config, visit, self.plan):
            self.acknowledged.append(visit)
        if not keep:
            self.workers.remove(worker)

    def fail(self, which: int) -> None:
        """A worker meets an exception and reports it."""
        if not self.workers:
            return
        worker = self.workers.pop(which % len(self.workers))
        attempt = worker.attempt
        failure = Failure(attempt.unit, attempt.node, attempt.token, FailureKind.EXCEPTION, "boom")
        self.ledger.fail(attempt, worker.config, failure)

    def train(self, worker: Worker) -> Visit:
        """Train and save; deterministic."""
        attempt = worker.attempt
        result = digest(attempt.input, attempt, worker.config.hparams)
        output = CheckpointRef(f"mem:{result}", result, 1)
        self.saved.add(result)
        if attempt.unit.phase is Phase.EVALUATE and attempt.input is not None:
            output = attempt.input
        return Visit(
            attempt.unit,
            position(worker.config),
            attempt.node,
            attempt.token,
            attempt.input,
            output,
            samples=1,
            batches=1,
            seconds=1.0,
            hop_seconds=0.0,
            started=0.0,
        )

    def finish(self, names: Sequence[str], steps: int) -> bool:
        """From here on all is well with the nodes ``names``, and the others are gone: whether the
        run ends within ``steps`` rounds."""
        self.elect()
        self.workers.clear()
        for name in list(self.leases):
            self.lose(name)
        for name in names:
            self.join(name)
        for _ in range(steps):
            self.control()
            for name in names:
                self.start(name)
            while self.workers:
                self.commit(0)
            if self.ledger.ended():
                return True
        return False

    # The verdict.

    def trace(self) -> list[Event]:
        """The run's history from its beginning."""
        events: list[Event] = []
        until = self.ledger.revision()
        with self.ledger.events(self.begin) as stream:
            # Until the last transaction surely; behind it only what ended with a lease.
            while not events or events[-1].revision < until:
                events += stream.next(SOON)
            while batch := stream.next(self.patience):
                events += batch
        return events

    def check(self) -> list[Violation]:
        """The invariants that the history breaks."""

        def retrain(visit: Visit, hparams: HParams) -> str:
            attempt = Attempt(visit.unit, visit.node, 0, 0)
            return digest(visit.input, attempt, hparams)

        return check(
            self.trace(),
            readable=lambda ref: ref.digest in self.saved,
            acknowledged=self.acknowledged,
            retrain=retrain,
        )

    def check_fold(self) -> None:
        """The fold of the history is the snapshot, so a takeover at this point loses nothing."""
        state = State()
        for event in self.trace():
            state = fold(state, event)
        snapshot = self.ledger.state()
        assert replace(state, revision=0) == replace(snapshot, revision=0), (state, snapshot)
