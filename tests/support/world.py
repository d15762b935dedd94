"""A whole run in one thread, step by step, with every fault at every point.

Real ledger, real controllers, the exact in-memory store or an etcd; only training is replaced (see
``hashing``). Whoever drives a ``World`` (hypothesis, an enumeration, a seeded walk) chooses the order of its
steps; after each one ``check`` compares the store's history with the invariants, and ``check_fold`` the fold
with the snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import cast

from cerebro_elastic.controller.controller import Controller, Deposed
from cerebro_elastic.core.history.machine import fold
from cerebro_elastic.core.history.view import RunView
from cerebro_elastic.core.invariants import Violation, check
from cerebro_elastic.core.model.attempts import Failure, FailureKind, Member, Visit
from cerebro_elastic.core.model.configs import HParams, Status
from cerebro_elastic.core.model.events import Event, RunExtended, RunOpened, StateRead
from cerebro_elastic.core.model.interfaces import (
    Decision,
    Policy,
    Proposal,
    Resume,
    Search,
    SearchContext,
    Stop,
)
from cerebro_elastic.core.model.nodes import Node
from cerebro_elastic.core.model.reuse import NOTHING
from cerebro_elastic.core.model.run import Extension, Plan, Spec
from cerebro_elastic.core.model.state import State
from cerebro_elastic.core.model.units import Order, Phase, RecordHead
from cerebro_elastic.errors import Compacted, LeaseLost, RunError
from cerebro_elastic.store.client.base import Store
from cerebro_elastic.store.ledger.restoring import restore
from cerebro_elastic.system.clock import Clock
from support import hashing
from support.clocks import HandClock
from support.hashing import BATCHES, Worker
from support.ledger import Leader, Ledger
from support.memory_store import MemoryStore
from support.waiting import SOON

TTL = 10.0
FETCH = 2.0
"""Seconds in which a node gets a partition."""
_KEPT = (RunOpened, RunExtended, StateRead)
"""The events without which there would be no record, or one that does not fit its spec."""


@dataclass(frozen=True)
class FixedSearch(Search):
    """Proposes what it was given, once."""

    points: Sequence[HParams]

    def propose(self, context: SearchContext) -> Sequence[Proposal]:
        return [Proposal(hparams) for hparams in self.points[len(context.proposed) :]]


@dataclass(frozen=True)
class RestlessSearch(FixedSearch):
    """Stops a config after its first unit while others go on, resumes it when none does, and lets each of its
    first configs have a child after its second unit."""

    def decide(self, context: SearchContext) -> Sequence[Decision]:
        live = [s for s in context.configs if s.status is Status.LIVE]
        theirs = [s for s in context.configs if s.idle and not s.by_hand]
        resting = [s for s in theirs if s.status is Status.STOPPED]
        if resting and not live:
            return [Resume(resting[0].config, "nobody else goes on")]
        fresh = [s for s in theirs if s in live and s.units == 1]
        return [Stop(fresh[0].config, "rests")] if fresh and len(live) > 1 else []

    def propose(self, context: SearchContext) -> Sequence[Proposal]:
        if len(context.proposed) < len(self.points):
            return super().propose(context)
        grown = [s for s in context.configs if s.units >= 2 and s.epochs < context.epochs and not s.origin]
        parents = {s.origin.get("of") for s in context.proposed}
        childless = [s for s in grown if s.config not in parents]
        return [Proposal({"lr": 0.5}, s.config, {"of": s.config}) for s in childless[:1]]


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
        search: type[FixedSearch] = FixedSearch,
        store: Callable[[Clock], Store] = MemoryStore,
        patience: float = 0.0,
        forgets: bool = False,
        heads: bool = False,
        reusable: Mapping[str, Sequence[Visit]] = NOTHING.steps,
    ) -> None:
        """Nodes whose caches are limited (``forgets``) drop partitions, and say so. Assignments have what
        their leader had read if it keeps ``heads``. Configs may take over what is ``reusable``."""
        self.forgets, self.heads, self.reusable = forgets, heads, reusable
        self.clock = HandClock()
        self.store = store(self.clock)
        self.ledger = Ledger(self.store, plan.run, unreadable=lambda _error: None)
        self.plan = plan
        self.patience = patience
        self.seen = self.store.range("/").revision
        self.events: list[Event] = []
        self.folded = State()
        self.policy = policy
        self.search: Search = search([{"lr": 0.1 * (i + 1)} for i in range(configs)])
        self.leases: dict[str, int] = {}
        self.registered: dict[str, Node] = {}
        self.asked: set[int] = set()
        self.slowness: dict[str, float] = {}
        self.workers: list[Worker] = []
        self.controllers: list[Controller] = []
        self.saved: set[str] = {visits[-1].output.digest for visits in reusable.values()}
        self.acknowledged: list[Visit] = []
        self.elections = 0
        self.leader_lease = 0
        self.ledger.open_run(Spec(plan, {}, "", "", "", "", {}, "", ""))

    # Faults and progress, one step each.

    def elect(self) -> None:
        """A new controller takes over; the old one does not know and may go on trying."""
        if self.leader_lease:
            self.store.revoke(self.leader_lease)
        self.elections += 1
        self.leader_lease = self.store.grant(TTL)
        name = f"controller-{self.elections}"
        while (ledger := self.ledger.lead(name, self.leader_lease)) is None:
            pass
        controller = Controller(
            ledger,
            self.policy,
            self.search,
            name=name,
            head=lambda: RecordHead(controller.state.revision, "digest") if self.heads else None,
            reusable=self.reusable,
        )
        controller.__enter__()
        self.controllers.append(controller)

    def control(self, which: int = -1) -> None:
        """A controller takes in one revision and acts; the deposed notice and go, and one that finds the
        history compacted stands for election again."""
        if not self.controllers:
            return
        controller = self.controllers[which % len(self.controllers)]
        try:
            controller.step(self.patience)
        except (Deposed, Compacted) as error:
            controller.__exit__()
            self.controllers.remove(controller)
            if isinstance(error, Compacted) and not self.controllers:
                self.elect()

    def order(self, order: Order) -> None:
        """The leader's solver has found an order, whatever it is worth by now."""
        leader = self.store.get(self.ledger.keys.leader)
        if leader is not None:
            Leader(self.ledger, leader.create_revision).set_order(order)

    def stop(self, which: int) -> None:
        """A person stops a config."""
        if self.ids:
            self.ledger.stop(self.ids[which % len(self.ids)], "by hand")

    def resume(self, which: int) -> None:
        """A person resumes a config, or has a failed one tried again."""
        if self.ids:
            self.ledger.resume(self.ids[which % len(self.ids)], "by hand")

    def clone(self, which: int) -> None:
        """A person clones a config, if it is not done."""
        if self.ids and len(self.ids) < 8:
            with suppress(RunError):
                self.ledger.clone(self.ids[which % len(self.ids)], {"lr": 0.7})

    def extend(self, epochs: int, which: int) -> None:
        """A person extends the run, if it has ended: all configs that may go on do so, or all but one. Those
        that have failed are tried again, also without more ``epochs``."""
        state, before = self.ledger.state(), self.ledger.spec()
        assert before is not None
        if state.outcome is None or state.plan is None:
            return
        number, longer = len(before.extensions) + 1, state.plan.epochs + epochs
        left_out = self.ids[which % len(self.ids)] if which % 2 and self.ids else ""
        going_on = {
            config.id: config.epoch
            for config in state.configs.values()
            if config.epoch < longer
            if config.id != left_out
        }
        others = tuple(name for name in state.configs if name not in going_on)
        extension = Extension(number, longer, going_on, (), others, state.plan.epochs)
        plan = replace(before.plan, epochs=longer)
        after = replace(before, plan=plan, extensions=(*before.extensions, extension))
        assert self.ledger.extend_run(before, after)
        assert not self.ledger.extend_run(before, after)  # of two people one wins
        self.plan = plan

    @property
    def ids(self) -> list[str]:
        """The configs that there are."""
        return list(self.ledger.state().configs)

    def join(self, name: str, hardware: str = "cpu", host: str = "host", *, starting: bool = False) -> None:
        """A node registers, anew if it is there already."""
        self.leases[name] = self.store.grant(TTL)
        joined = round(self.clock.wall() + self.store.range("/").revision / 1000, 3)  # never the same twice
        node = Node(name, host, ranks=2, hardware=hardware, starting=starting, joined=joined)
        self.registered[name] = self.ledger.register(node, self.leases[name])

    def ready(self, name: str, cached: Sequence[int]) -> None:
        """The ranks of a node that is starting are ready, and find partitions in its cache."""
        self.ledger.mark_ready(name, "", [j for j in cached if j < self.plan.partitions])

    def lose(self, name: str) -> None:
        """A node's lease ends; its worker trains on."""
        if name in self.leases:
            self.store.revoke(self.leases.pop(name))

    def drain(self, name: str, grace: float = 30.0) -> None:
        """A node is asked to leave."""
        if self.ledger.drain(name, grace) and (node := self.ledger.node(name)) is not None:
            self.asked.add(node.registration)

    def slow(self, name: str, seconds: float) -> None:
        """From now on a node needs so many seconds for a batch, not 1."""
        self.slowness[name] = seconds

    def pass_time(self, seconds: float) -> None:
        """Time goes by, and whoever is alive keeps its lease."""
        for _ in range(int(seconds / TTL * 2)):
            self.clock.sleep(TTL / 2)
            for lease in [*self.leases.values(), self.leader_lease]:
                with suppress(LeaseLost):
                    self.store.keep(lease)

    def forget(self, events: int) -> None:
        """The store's history is compacted, and of its last ``events`` nobody had read a word."""
        del self.trace()[len(self.events) - min(events, len(self.events)) :]
        read = self.ledger.read()
        self.take([read])
        cast(MemoryStore, self.store).compact(read.revision)

    def lose_etcd(self, events: int) -> None:
        """The etcd is lost with its disk, and a new one gets the record, which lacks the last ``events``: but
        for the run's opening and extensions. All leases are over; workers and leaders know of nothing."""
        history = self.trace()
        kept = max(at for at, event in enumerate(history) if isinstance(event, _KEPT)) + 1
        del history[max(kept, len(history) - events) :]
        spec = self.store.get(self.ledger.keys.spec)
        assert spec is not None
        self.store = store = MemoryStore(self.clock)
        self.ledger = Ledger(store, self.plan.run, unreadable=lambda _error: None)
        restore(store, self.ledger, history, spec.value, margin=max(9, events))
        self.leases.clear()
        self.leader_lease = 0
        for controller in self.controllers:
            controller.__exit__()
        self.controllers.clear()
        known = {visit.attempt for visit in RunView(history).log}
        self.acknowledged = [visit for visit in self.acknowledged if visit.attempt in known]
        self.take([self.ledger.read()])

    def start(self, name: str) -> None:
        """A node's rank takes its assignments up, also those it has begun before (a restart): what is queued
        may end before what is ahead of it, if that is slow to be saved. The leading node of a gang reports
        for all its nodes."""
        node = self.registered.get(name)
        for attempt in self.ledger.assignments(name):
            if node is not None and attempt.members[0] == Member(name, node.registration):
                config = self.ledger.config(attempt.unit.config)
                if config is not None and config.revision == attempt.config_revision:
                    self.workers.append(Worker(attempt, config, self.forgets))

    def trained(self, which: int) -> None:
        """A worker has trained its unit and saves it behind what its node does next, if it may."""
        if not self.workers:
            return
        worker = self.workers[which % len(self.workers)]
        attempt = worker.attempt
        if attempt.strategy.nodes == 1 and attempt.unit.phase is not Phase.PROFILE and not attempt.trained:
            worker.attempt = self.ledger.mark_trained(attempt) or attempt

    def commit(self, which: int, *, keep: bool = False) -> None:
        """A worker ends and commits; with ``keep`` it will try to do so once more."""
        if not self.workers:
            return
        worker = self.workers[which % len(self.workers)]
        self._commit(worker, BATCHES)
        if not keep:
            self.workers.remove(worker)

    def split(self, which: int, batches: int) -> None:
        """A worker whose node was asked to leave does so many of its unit's batches and commits."""
        leaving = self._leaving()
        if leaving:
            worker = leaving[which % len(leaving)]
            self.workers.remove(worker)
            upto = worker.attempt.skip + batches
            self._commit(worker, upto if worker.attempt.unit.phase is Phase.TRAIN else BATCHES)

    def give_up(self, which: int) -> None:
        """A worker whose node was asked to leave, and cannot split its unit, leaves."""
        leaving = self._leaving()
        if leaving:
            worker = leaving[which % len(leaving)]
            self.workers.remove(worker)
            self.ledger.give_up(worker.attempt)

    def fail(self, which: int, kind: FailureKind = FailureKind.EXCEPTION) -> None:
        """A worker meets trouble, on any node of a gang, and reports it."""
        if not self.workers:
            return
        worker = self.workers.pop(which % len(self.workers))
        attempt = worker.attempt
        node = attempt.nodes[which % len(attempt.nodes)]
        failure = Failure(
            attempt.unit,
            node,
            attempt.token,
            kind,
            "boom",
            strategy=attempt.strategy,
            hardware=attempt.hardware,
            place="KeyError at net.py:7" if kind is FailureKind.EXCEPTION and which % 2 else "",
        )
        self.ledger.fail(attempt, worker.config, failure)

    def refuse(self, which: int) -> None:
        """A worker finds that what it tries is not feasible."""
        trying = [w for w in self.workers if w.attempt.unit.phase is Phase.PROFILE]
        if trying:
            worker = trying[which % len(trying)]
            self.workers.remove(worker)
            self.ledger.record_profile(worker.attempt, worker.profile(1.0, "too large"))

    def _leaving(self) -> list[Worker]:
        """The workers of nodes that were asked to leave."""
        return [w for w in self.workers if self.asked & {m.registration for m in w.attempt.members}]

    def _commit(self, worker: Worker, upto: int) -> None:
        seconds = max(self.slowness.get(name, 1.0) for name in worker.attempt.nodes)
        if worker.attempt.unit.phase is Phase.PROFILE:
            self.ledger.record_profile(worker.attempt, worker.profile(seconds))
            return
        trained = worker.train(min(upto, BATCHES), seconds)
        visit = replace(trained, fetch_seconds=self._fetch_seconds(worker))
        self.saved.add(visit.output.digest)
        if self.ledger.commit(worker.attempt, worker.config, visit, self.plan):
            self.acknowledged.append(visit)

    def _fetch_seconds(self, worker: Worker) -> float:
        """What its partition keeps a worker waiting whose node is not known to have it."""
        node = self.folded.nodes.get(worker.attempt.node)
        return 0.0 if node is not None and worker.attempt.unit.partition in node.cached else FETCH

    def finish(self, names: Sequence[str], steps: int) -> bool:
        """From here on all is well with the nodes ``names``, and the others are gone: whether the
        run ends within ``steps`` rounds of a minute."""
        self.elect()
        self.workers.clear()
        for name in list(self.leases):
            self.lose(name)
        for name in names:
            self.join(name)
        for _ in range(steps):
            self.pass_time(60.0)
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
        """The run's history, as far as anybody has read it."""
        until = self.ledger.revision()
        with self.ledger.events(self.seen + 1) as stream:
            # Until the last transaction surely; behind it only what ended with a lease.
            while max(self.seen, stream.revision) < until:
                self.take(stream.next(SOON))
            while batch := stream.next(self.patience):
                self.take(batch)
        return self.events

    def take(self, events: Sequence[Event]) -> None:
        """Add to the trace, and to the state that it makes."""
        for event in events:
            self.events.append(event)
            self.folded = fold(self.folded, event)
            self.seen = event.revision

    def check(self) -> list[Violation]:
        """The invariants that the history breaks."""

        def retrain(visit: Visit, hparams: HParams) -> str:
            return hashing.digest(
                visit.input, visit.unit, hparams, range(visit.skip, visit.skip + visit.batches)
            )

        return check(
            self.trace(),
            readable=lambda ref: ref.digest in self.saved,
            acknowledged=self.acknowledged,
            retrain=retrain,
        )

    def check_fold(self) -> None:
        """The fold of the history is the snapshot, so a takeover at this point loses nothing."""
        self.trace()
        snapshot = self.ledger.state()
        assert replace(self.folded, revision=0) == replace(snapshot, revision=0), (self.folded, snapshot)
