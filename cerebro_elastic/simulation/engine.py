"""The engine of a simulation: a run under way on a virtual clock.

Decisions are those of ``core.decisions.decide``, on the state of ``core.history.machine.fold``. As in a live
run, each decision is made when all earlier events are known, and an action whose guard does not hold does
nothing. Without a leading controller nothing is decided; units continue and commit.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

from cerebro_elastic.core.decisions.decide import COOLDOWN, decide
from cerebro_elastic.core.decisions.moment import LEAST, Questions
from cerebro_elastic.core.history.derived import cached_partitions
from cerebro_elastic.core.history.estimates import begun_at
from cerebro_elastic.core.history.machine import fold
from cerebro_elastic.core.history.progress import position, units_done
from cerebro_elastic.core.model.attempts import Attempt, ProfileResult, Visit
from cerebro_elastic.core.model.events import (
    Event,
    LeaderChanged,
    NodeJoined,
    NodeLeft,
    NodeQuarantined,
    NodeReady,
    NodeReleased,
    Ordered,
    ProfileDone,
    RunOpened,
    UnitAssigned,
    UnitCommitted,
    UnitTrained,
    UnitWithdrawn,
)
from cerebro_elastic.core.model.interfaces import Planner, Policy, Search
from cerebro_elastic.core.model.nodes import Node
from cerebro_elastic.core.model.run import Plan
from cerebro_elastic.core.model.state import State
from cerebro_elastic.core.model.units import CheckpointRef, Order, Phase
from cerebro_elastic.errors import IllegalEvent
from cerebro_elastic.simulation.metrics import Logged, MetricSource
from cerebro_elastic.simulation.times import Times, UnitSizes, ends_epoch, noise
from cerebro_elastic.system.subprocess_call import NO_FORK, call

LEASE_SECONDS = 5.0
"""The seconds of the leases of nodes and controllers: a death is noticed when its lease ends."""
SOLVING_SECONDS = 10.0
"""The seconds that a policy's solver takes, on the virtual clock."""

Callback: TypeAlias = Callable[[], object]


@dataclass(frozen=True, slots=True)
class RunningUnit:
    """An attempt under way."""

    attempt: Attempt
    started: float
    """When its nodes took it up, in seconds of the virtual clock."""
    fetch: float
    """The seconds of the fetch of its partition."""
    hop: float
    """The seconds of loading and saving, besides the fetch."""
    seconds: float
    saving: float
    """The seconds of the save that may overlap the node's next unit."""
    batches: int
    shared: bool = False
    """Whether its host has made its batches for another config."""
    whole: bool = True
    """Whether the unit is trained to its end."""

    @property
    def training_starts(self) -> float:
        """When the nodes start training."""
        return self.started + self.fetch + self.hop

    @property
    def training_ends(self) -> float:
        """When the unit is trained."""
        return self.training_starts + self.seconds


@dataclass(frozen=True, slots=True)
class Conditions:
    times: Times
    metrics: MetricSource
    sizes: UnitSizes
    spread: float
    """The standard deviation of the logarithm of the units' seconds."""
    lease: float
    """The seconds after which a death is noticed."""
    start: float
    """The wall clocks' time at the start: seconds since the epoch."""


class Engine:
    """One simulation under way. ``at`` schedules later actions."""

    def __init__(self, plan: Plan, policy: Policy, search: Search, conditions: Conditions) -> None:
        self.plan, self.policy, self.search, self.conditions = plan, policy, search, conditions
        self.now = 0.0
        """Seconds of the virtual clock."""
        self.state = State()
        self.events: list[Event] = []
        self.led = True
        """Whether a controller leads."""
        self.dead: set[int] = set()
        """The registrations of nodes that have died."""
        self.slow: dict[str, list[float]] = {}
        """By node: the factors on the seconds of units that it begins; the last one counts."""
        self.away: dict[str, float] = {}
        """By node that was killed or has left: the end of its absence."""
        self.units: dict[int, RunningUnit] = {}
        """By attempt."""
        self.when_idle: dict[str, Callback] = {}
        """By node that must leave: its action once it is idle."""
        self._settled: State | None = None
        self._agenda: list[tuple[float, int, Callback]] = []
        self._scheduled = 0
        self._begun: set[str] = set()
        self._fetched: dict[tuple[str, int], float] = {}
        self._made: set[tuple[str, int, int]] = set()
        self._waiting: dict[str, RunningUnit] = {}
        self._questions = Questions(policy, plan.seed) if isinstance(policy, Planner) else None
        self._solving = False

    def run(self, most_units: float = math.inf) -> None:
        """Play a new run to its end, or until no events are left, or until ``most_units`` have begun."""
        self.open()
        self.play(most_units)

    def open(self) -> None:
        """Start a new run."""
        self.record(RunOpened(self.revision, self.plan))
        self.record(LeaderChanged(self.revision, "simulated"))

    def take_over(self, state: State) -> None:
        """Start from a live run at ``Conditions.start``. Its nodes continue their units, for as long as these
        are expected to take. Its solver is not asked: answers take seconds."""
        self.state, self._questions = state, None
        if state.leader is None:
            self.record(LeaderChanged(self.revision, "simulated"))
        times = self.conditions.times
        self._begun = {name for name, node in state.nodes.items() if not node.starting}
        for attempt in {attempt.token: attempt for attempt in state.attempts.values()}.values():
            self.go_on(self._under_way(attempt))
        for attempt in state.saving.values():
            self.at(times.saving / 2, partial(self.saved, self._under_way(attempt)))
        for name in state.quarantined:
            self.at(COOLDOWN, partial(self.release, name))
        for name, node in state.nodes.items():
            if node.starting:
                ready = partial(NodeReady, node=name, cached=node.cached)
                self.at(max(times.startup.values(), default=0.0), partial(self._record_if_there, name, ready))
            if node.drain is not None:
                self.when_idle[name] = partial(self.leave, name)
                self.at(0.0, partial(self.leave_if_idle, name))
        self.at(0.0, lambda: None)

    def _record_if_there(self, node: str, event: Callable[[int], Event]) -> None:
        if node in self.state.nodes:
            self.record(event(self.revision))

    def _under_way(self, attempt: Attempt) -> RunningUnit:
        """An attempt begun before the simulation."""
        config = self.state.configs[attempt.unit.config]
        costs = self.conditions.times.costs(attempt, ends_epoch=ends_epoch(config, self.plan.trained))
        begun = begun_at(self.state, attempt)
        started = 0.0 if begun is None else min(0.0, begun - self.conditions.start)
        batches = max(1, self.conditions.sizes.batches - attempt.skip)
        seconds = costs.training * batches / self.conditions.sizes.batches
        # It may be late, but is not over.
        seconds = max(seconds, LEAST * seconds - started - costs.hop)
        saving = costs.saving if attempt.unit.phase is Phase.TRAIN else 0.0
        return RunningUnit(attempt, started, 0.0, costs.hop, seconds, saving, batches)

    def play(self, most_units: float = math.inf) -> None:
        """Play on to the run's end, or until no events are left, or until ``most_units`` have begun."""
        while self._agenda and self.state.outcome is None and len(self.units) < most_units:
            self.now, _, callback = heapq.heappop(self._agenda)
            callback()
            self.settle()

    # The store.

    @property
    def revision(self) -> int:
        """The revision of the next event."""
        return self.state.revision + 1

    def record(self, event: Event) -> None:
        """Record the event: it happens now. A node whose unit it ends begins the next in its queue."""
        queued = self.state.queued
        self.state = fold(self.state, event)
        self.events.append(event)
        for name, attempt in queued.items():
            if self.state.attempts.get(name) is attempt and self.reports(attempt):
                self._begin_queued(attempt)

    def at(self, time: float, callback: Callback) -> None:
        """Call ``callback`` at ``time``. Callbacks of the same time run in the order of their scheduling."""
        self._scheduled += 1
        heapq.heappush(self._agenda, (time, self._scheduled, callback))

    # The controller.

    def settle(self) -> None:
        """Decide, and apply the decisions, until the run only waits."""
        while (
            self.led
            and self.state is not self._settled
            and (decided := decide(self.state, self.policy, self.search))
        ):
            before = self.state.revision
            for event in decided:
                with suppress(IllegalEvent):
                    self.record(replace(event, revision=self.revision))
                    if isinstance(event, UnitAssigned) and event.attempt.node not in self.state.queued:
                        self.begin(self.state.attempts[event.attempt.node])
                    elif isinstance(event, NodeQuarantined):
                        self.at(self.now + event.seconds, partial(self.release, event.node))
            if self.state.revision == before:
                raise IllegalEvent(f"nothing of {decided} can happen in {self.state}")
        if self.led:
            self._settled = self.state
        if self.led and not self._solving:
            order = self._solve()
            if order is not None:
                self._solving = True
                self.at(self.now + SOLVING_SECONDS, partial(self._solved, order))

    def release(self, name: str) -> None:
        """The node's quarantine ends."""
        self.record(NodeReleased(self.revision, name))

    def _solve(self) -> Order | None:
        """The order of the policy's solver, if it has one, at a moment when a controller would ask it (see
        ``controller.Solving``); ``None`` without a question."""
        if not isinstance(self.policy, Planner) or self._questions is None:
            return None
        question = self._questions.due(self.state)
        if question is None:
            return None
        solver = self.policy.solver
        answer = call(solver, f"the solver {solver}", question, NO_FORK)
        return self._questions.order(answer["answer"])

    def _solved(self, order: Order) -> None:
        """The solver has answered."""
        self._solving = False
        if self.led and order:
            self.record(Ordered(self.revision, order))

    # Nodes.

    def join(self, node: Node) -> None:
        """The node registers; its older registration ends first."""
        self.leave(node.name)
        fetched = {j for (host, j), ready in self._fetched.items() if host == node.host and ready <= self.now}
        cached = tuple(sorted({*node.cached, *fetched}))
        joined = max(0.001, round(self.conditions.start + self.now, 3))  # 0 would mean unknown, and free
        self.record(
            NodeJoined(self.revision, replace(node, registration=self.revision, cached=cached, joined=joined))
        )

    def leave(self, name: str, registration: int | None = None) -> None:
        """The node's registration ends, if it is still valid."""
        node = self.state.nodes.get(name)
        if node is not None and registration in (None, node.registration):
            self.record(NodeLeft(self.revision, name))

    def _begin_queued(self, attempt: Attempt) -> None:
        """The node takes the attempt up at once, or gives it up if it must leave."""
        if self.state.nodes[attempt.node].drain is None:
            self.begin(attempt, queued=True)
        else:
            self.record(UnitWithdrawn(self.revision, attempt.node, attempt.token))

    def begin(self, attempt: Attempt, *, queued: bool = False) -> None:
        """The nodes take the attempt up; a queued one was dispatched earlier."""
        unit, sizes = attempt.unit, self.conditions.sizes
        config = self.state.configs[unit.config]
        costs = self.conditions.times.costs(attempt, ends_epoch=ends_epoch(config, self.plan.trained))
        dispatch = 0.0 if queued else costs.dispatch
        started = self.now + max(dispatch, *map(self._startup, attempt.nodes))
        shared = self._share_batches(attempt) if costs.data else False
        training = costs.training - costs.data * shared
        slowed = max(self.slow.get(name, [1.0])[-1] for name in attempt.nodes)
        batches = sizes.batches - attempt.skip
        seconds = training * slowed * noise(self.plan.seed, unit, self.conditions.spread)
        ready = max(self._ready(name, unit.partition, started) for name in attempt.nodes)
        self._prefetch(attempt, ready)
        self.go_on(
            RunningUnit(
                attempt,
                started,
                fetch=ready - started,
                hop=costs.hop,
                seconds=seconds * batches / sizes.batches,
                saving=costs.saving if unit.phase is Phase.TRAIN else 0.0,
                batches=batches,
                shared=shared,
            )
        )

    def _share_batches(self, attempt: Attempt) -> bool:
        """Whether the lead's host had made the unit's batches; it has from now on."""
        batches = (self.state.nodes[attempt.node].host, attempt.unit.epoch, attempt.unit.partition)
        if batches in self._made:
            return True
        self._made.add(batches)
        return False

    def go_on(self, unit: RunningUnit) -> None:
        """Let the attempt's nodes continue with this unit from now."""
        self.units[unit.attempt.token] = unit
        self.at(unit.training_ends, partial(self.trained, unit))

    def _startup(self, node: str) -> float:
        """The seconds of the wait of the node's first unit."""
        seconds = 0.0 if node in self._begun else self.conditions.times.startup.get(node, 0.0)
        self._begun.add(node)
        return seconds

    def _ready(self, node: str, partition: int, wanted: float) -> float:
        """When the node's host has the partition, if its fetch begins at ``wanted``."""
        cached = cached_partitions(self.state.nodes.values())[node]
        ready = wanted if partition in cached else wanted + self.conditions.times.fetch
        return max(wanted, self._fetched.setdefault((self.state.nodes[node].host, partition), ready))

    def _prefetch(self, attempt: Attempt, start: float) -> None:
        """The nodes fetch the hinted partition, and one more replica, behind the unit."""
        if attempt.prefetch is None:
            return
        for name in attempt.nodes:
            self._ready(name, attempt.prefetch.partition, start)
            host = self.state.nodes[name].host
            due = [j for j in attempt.prefetch.replicas if (host, j) not in self._fetched]
            if due:
                self._ready(name, due[0], start)

    def trained(self, unit: RunningUnit) -> None:
        """The unit is trained: its node commits it, if it may.

        Its save overlaps the node's next unit, unless the node must leave or the attempt is a gang's. The
        save of the previous unit comes first.
        """
        attempt, node = unit.attempt, unit.attempt.node
        if self.units[attempt.token] is not unit or not self.reports(attempt):
            return
        waited = replace(unit, hop=unit.hop + self.now - unit.training_ends)
        if attempt.unit.phase is Phase.PROFILE:
            self.record(ProfileDone(self.revision, self._profile(attempt)))
            self.over(attempt)
        elif node in self.state.saving:
            self._waiting[node] = unit
        elif unit.saving and attempt.nodes == (node,) and self.state.nodes[node].drain is None:
            moment = self.conditions.start + self.now
            self.record(UnitTrained(self.revision, node, attempt.token, moment))
            self.at(self.now + unit.saving, partial(self.saved, waited))
        else:
            self.at(
                self.now + unit.saving,
                partial(self.saved, replace(waited, hop=waited.hop + unit.saving, saving=0.0)),
            )

    def saved(self, unit: RunningUnit) -> None:
        """The unit is saved: it is committed, if it may be."""
        if self.reports(unit.attempt):
            self.record(UnitCommitted(self.revision, self._visit(unit)))
            self.over(unit.attempt)
        waiting = self._waiting.pop(unit.attempt.node, None)
        if waiting is not None:
            self.trained(waiting)

    def reports(self, attempt: Attempt) -> bool:
        """Whether the attempt's nodes live, and the store would accept their report."""
        current = self.state.attempt(attempt.node, attempt.token)
        alive = not self.dead & {member.registration for member in attempt.members}
        return current is not None and self.state.may_report(current) and alive

    def over(self, attempt: Attempt) -> None:
        """The attempt is over for its nodes."""
        for name in attempt.nodes:
            self.leave_if_idle(name)

    def leave_if_idle(self, name: str) -> None:
        """The node leaves, if it must and is idle."""
        if name not in self.state.attempts and name not in self.state.saving and name in self.when_idle:
            self.when_idle.pop(name)()

    @property
    def visits(self) -> list[Visit]:
        """The visits of the simulation."""
        return [event.visit for event in self.events if isinstance(event, UnitCommitted)]

    # Reports of nodes.

    def _profile(self, attempt: Attempt) -> ProfileResult:
        whole = replace(attempt, unit=replace(attempt.unit, phase=Phase.TRAIN))
        return ProfileResult.of(attempt, seconds=self.conditions.times.training(whole, ends_epoch=False))

    def _replicas(self, attempt: Attempt) -> tuple[int, ...]:
        """The replicas of the attempt's hint that its node has fetched by now."""
        hinted = attempt.prefetch.replicas if attempt.prefetch else ()
        host = self.state.nodes[attempt.node].host
        return tuple(j for j in hinted if self._fetched.get((host, j), math.inf) <= self.now)

    def _logged(self, unit: RunningUnit) -> Logged:
        """The metrics that the unit logs; a part of a unit logs none."""
        if not unit.whole:
            return Logged({})
        config = self.state.configs[unit.attempt.unit.config]
        trains = unit.attempt.unit.phase is Phase.TRAIN
        return self.conditions.metrics.after(config, units_done(config, self.plan) + trains)

    def _visit(self, running: RunningUnit) -> Visit:
        attempt, unit, sizes = running.attempt, running.attempt.unit, self.conditions.sizes
        config = self.state.configs[unit.config]
        trains = unit.phase is Phase.TRAIN
        logged = self._logged(running)
        name = f"{unit.config}/{unit.epoch:04d}-{position(config):04d}-{attempt.token}"
        checkpoint = CheckpointRef(f"simulated:{name}", name, sizes.state(unit.config))
        output = checkpoint if trains else attempt.input
        assert output is not None, "only a trained config is evaluated"
        return Visit(
            unit=unit,
            index_in_epoch=position(config),
            node=attempt.node,
            attempt=attempt.token,
            input=attempt.input,
            output=output,
            samples=sizes.samples * running.batches // sizes.batches,
            batches=running.batches,
            seconds=running.seconds,
            hop_seconds=running.hop,
            save_seconds=running.saving,
            fetch_seconds=running.fetch,
            started=self.conditions.start + running.started,
            metrics=logged.metrics,
            replicas=self._replicas(attempt),
            strategy=attempt.strategy,
            done=logged.done and trains,
            skip=attempt.skip,
            whole=running.whole,
            gang=attempt.nodes[1:],
            hardware=attempt.hardware,
            batches_made=0 if running.shared else running.batches,
            batches_shared=running.batches if running.shared else 0,
        )
