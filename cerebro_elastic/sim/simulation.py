"""A run on a virtual clock: what the controller would do, and what nodes would, one event after the other.

Decisions are those of ``core.decide``, on the state that ``core.machine.fold`` makes; as in a live run each
is made when all that was done before is seen, and an action whose guard does not hold does nothing.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

from cerebro_elastic.core.actions import Assign, SetAside
from cerebro_elastic.core.decide import decide
from cerebro_elastic.core.events import (
    Event,
    LeaderChanged,
    NodeDraining,
    NodeForgiven,
    NodeJoined,
    NodeLeft,
    RunOpened,
    TrialDone,
    UnitCommitted,
    UnitFailed,
    UnitTrained,
)
from cerebro_elastic.core.machine import fold
from cerebro_elastic.core.ports import Policy, Search
from cerebro_elastic.core.progress import position, units_done
from cerebro_elastic.core.state import State
from cerebro_elastic.core.values import (
    Attempt,
    CheckpointRef,
    Failure,
    FailureKind,
    Node,
    Phase,
    Plan,
    TrialResult,
    Visit,
)
from cerebro_elastic.errors import IllegalEvent
from cerebro_elastic.sim.effects import effect
from cerebro_elastic.sim.faults import Fault
from cerebro_elastic.sim.learning import Learning
from cerebro_elastic.sim.sizes import Sizes
from cerebro_elastic.sim.times import Times, ends_epoch, noise

LEASE = 5.0
"""Seconds after which a node that has died is noticed: its lease's."""
_A_DAY = 86400.0
_SIZES = Sizes()

Happening: TypeAlias = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Simulation:
    """What came of it: the history, the last ``state``, and the ``seconds`` from the first visit's begin to
    the last one's end. If ``state.outcome`` is ``None`` the run stood still: no node was there, nor came."""

    events: Sequence[Event]
    state: State
    seconds: float


def simulate(
    plan: Plan,
    nodes: Sequence[Node],
    policy: Policy,
    search: Search,
    times: Times,
    learning: Learning,
    *,
    faults: Sequence[Fault] = (),
    spread: float = 0.0,
    lease: float = LEASE,
    start: float = 0.0,
    sizes: Sizes = _SIZES,
) -> Simulation:
    """The run of ``plan`` on ``nodes``, which are there from the beginning. Units take what ``times`` says,
    with noise of ``spread`` by the plan's seed. ``start`` is what the wall clocks show at the beginning,
    ``sizes`` what the record tells besides."""
    course = _Course(plan, policy, search, times, learning, spread, lease, start, sizes)
    for node in nodes:
        course.at(0.0, partial(course.join, node))
    known = {node.name: node for node in nodes}
    for fault in faults:
        # Who joins later is like the first.
        course.arrange(fault, known.get(fault.node, replace(nodes[0], name=fault.node)))
    return course.run()


class _Course:
    """One simulation under way."""

    def __init__(
        self,
        plan: Plan,
        policy: Policy,
        search: Search,
        times: Times,
        learning: Learning,
        spread: float,
        lease: float,
        start: float,
        sizes: Sizes,
    ) -> None:
        self.plan, self.policy, self.search = plan, policy, search
        self.times, self.learning, self.sizes = times, learning, sizes
        self.spread, self.lease, self.start = spread, lease, start
        self.now = 0.0
        self.state = State()
        self.events: list[Event] = []
        self._agenda: list[tuple[float, int, Happening]] = []
        self._arranged = 0
        self._dead: set[int] = set()
        self._begun: set[str] = set()
        self._slow: dict[str, float] = {}
        self._absences: dict[str, tuple[Node, float | None]] = {}
        self._fetched: dict[tuple[str, int], float] = {}
        self._waiting: dict[str, Happening] = {}

    def run(self) -> Simulation:
        self.tell(RunOpened(self.revision, self.plan))
        self.tell(LeaderChanged(self.revision, "simulated"))
        while self._agenda and self.state.outcome is None:
            self.now, _, happening = heapq.heappop(self._agenda)
            happening()
            self.settle()
        visits = [event.visit for event in self.events if isinstance(event, UnitCommitted)]
        begin = min((v.started for v in visits), default=0.0)
        end = max((v.ended for v in visits), default=0.0)
        return Simulation(self.events, self.state, end - begin)

    # The store.

    @property
    def revision(self) -> int:
        """The next event's."""
        return self.state.revision + 1

    def tell(self, event: Event) -> None:
        self.state = fold(self.state, event)
        self.events.append(event)

    def at(self, time: float, happening: Happening) -> None:
        """What is arranged first happens first of what happens at one time."""
        self._arranged += 1
        heapq.heappush(self._agenda, (time, self._arranged, happening))

    # The controller.

    def settle(self) -> None:
        """Decide and act until there is nothing to do but wait."""
        while actions := decide(self.state, self.policy, self.search):
            before = self.state.revision
            for action in actions:
                event = effect(action, self.revision)
                with suppress(IllegalEvent):
                    self.tell(event)
                    match action:
                        case Assign(attempt):
                            self.begin(replace(attempt, token=event.revision))
                        case SetAside(node, seconds=seconds):
                            self.at(self.now + seconds, partial(self.forgive, node))
            if self.state.revision == before:
                raise IllegalEvent(f"nothing of {actions} can be done in {self.state}")

    # Nodes.

    def join(self, node: Node) -> None:
        """It registers; an older registration of its own ends first."""
        self.leave(node.name)
        held = {j for name, j in self._fetched if name == node.name}
        cached = tuple(sorted({*node.cached, *held}))
        self.tell(NodeJoined(self.revision, replace(node, registration=self.revision, cached=cached)))

    def leave(self, name: str, registration: int | None = None) -> None:
        """Its registration ends, if it stands."""
        node = self.state.nodes.get(name)
        if node is not None and registration in (None, node.registration):
            self.tell(NodeLeft(self.revision, name))

    def forgive(self, name: str) -> None:
        self.tell(NodeForgiven(self.revision, name))

    def begin(self, attempt: Attempt) -> None:
        """The nodes take the attempt up."""
        unit = attempt.unit
        config = self.state.configs[unit.config]
        costs = self.times.costs(attempt, ends_epoch=ends_epoch(config, self.plan.partitions))
        started = self.now + max(costs.dispatch, *map(self._startup, attempt.nodes))
        slowed = max(self._slow.get(name, 1.0) for name in attempt.nodes)
        seconds = costs.training * slowed * noise(self.plan.seed, unit, self.spread)
        ready = max(self._ready(name, unit.partition, started) for name in attempt.nodes)
        hop = (ready - started) + costs.hop
        if attempt.prefetch is not None:
            for name in attempt.nodes:
                self._ready(name, attempt.prefetch.partition, ready)
        ends = started + hop + seconds
        saving = costs.saving if unit.phase is Phase.TRAIN and len(attempt.nodes) == 1 else 0.0
        self.at(ends, partial(self.end, attempt, started, seconds, hop, saving))

    def _startup(self, node: str) -> float:
        """What the node's first unit waits for it."""
        seconds = 0.0 if node in self._begun else self.times.startup.get(node, 0.0)
        self._begun.add(node)
        return seconds

    def _ready(self, node: str, partition: int, asked: float) -> float:
        """When the node has the partition, if it is asked for now."""
        held = self.state.nodes[node].cached
        there = asked if partition in held else asked + self.times.fetch
        return max(asked, self._fetched.setdefault((node, partition), there))

    def end(self, attempt: Attempt, started: float, seconds: float, hop: float, saving: float) -> None:
        """The attempt is trained: it reports, if it may, or is saved behind its node's next unit. The last
        one's save comes first."""
        node, since = attempt.node, self.now
        if not self._reports(attempt):
            return
        if node in self.state.saving:
            self._waiting[node] = lambda: self.end(attempt, started, seconds, hop + self.now - since, saving)
        elif attempt.unit.phase is Phase.TRIAL:
            self.tell(TrialDone(self.revision, self._trial(attempt)))
            self._done(attempt)
        elif saving:
            self.tell(UnitTrained(self.revision, node, attempt.token))
            self.at(self.now + saving, partial(self.commit, attempt, started, seconds, hop, saving))
        else:
            self.commit(attempt, started, seconds, hop, 0.0)

    def commit(self, attempt: Attempt, started: float, seconds: float, hop: float, saving: float) -> None:
        """The attempt is saved; for ``saving`` seconds its node was free."""
        if self._reports(attempt):
            self.tell(UnitCommitted(self.revision, self._visit(attempt, started, seconds, hop, saving)))
            self._done(attempt)
        waiting = self._waiting.pop(attempt.node, None)
        if waiting is not None:
            waiting()

    def _done(self, attempt: Attempt) -> None:
        for name in attempt.nodes:
            if self.state.nodes[name].drain is not None:
                self._drained(name)

    def _reports(self, attempt: Attempt) -> bool:
        current = self.state.attempt(attempt.node, attempt.token)
        alive = not self._dead & {member.registration for member in attempt.members}
        return current is not None and self.state.stands(current) and alive

    def _trial(self, attempt: Attempt) -> TrialResult:
        whole = replace(attempt, unit=replace(attempt.unit, phase=Phase.TRAIN))
        seconds = self.times.training(whole, ends_epoch=False)
        return TrialResult(
            attempt.unit, attempt.choice, attempt.hardware, attempt.node, attempt.token, seconds
        )

    def _visit(self, attempt: Attempt, started: float, seconds: float, hop: float, saving: float) -> Visit:
        unit = attempt.unit
        config = self.state.configs[unit.config]
        trains = unit.phase is Phase.TRAIN
        logged = self.learning.after(config, units_done(config, self.plan) + trains)
        name = f"{unit.config}/{unit.epoch:04d}-{position(config):04d}-{attempt.token}"
        output = (
            CheckpointRef(f"simulated:{name}", name, self.sizes.state(unit.config))
            if trains
            else attempt.input
        )
        assert output is not None, "what is evaluated has been trained"
        return Visit(
            unit=unit,
            k=position(config),
            node=attempt.node,
            attempt=attempt.token,
            input=attempt.input,
            output=output,
            samples=self.sizes.samples,
            batches=self.sizes.batches,
            seconds=seconds,
            hop_seconds=hop,
            save_seconds=saving,
            started=self.start + started,
            metrics=logged.metrics,
            choice=attempt.choice,
            done=logged.done and trains,
            gang=attempt.nodes[1:],
            hardware=attempt.hardware,
        )

    # Faults.

    def arrange(self, fault: Fault, node: Node) -> None:
        """Let the fault happen to the node when it is due, and be over when it is."""
        name, again = fault.node, partial(self.join, node)
        begins, over = {
            "kill": (partial(self._kill, name), again),
            "crash": (partial(self._crash, name), None),
            "drain": (partial(self._drain, node, fault.seconds), None),
            "slow": (partial(self._slow.update, {name: fault.factor}), partial(self._slow.pop, name, None)),
            "join": (again, None),
        }[fault.what]
        self.at(fault.at, begins)
        if over is not None and fault.seconds is not None:
            self.at(fault.at + fault.seconds, over)

    def _kill(self, name: str) -> None:
        node = self.state.nodes.get(name)
        if node is not None:
            self._dead.add(node.registration)
            self.at(self.now + self.lease, partial(self.leave, name, node.registration))

    def _crash(self, name: str) -> None:
        attempt = self.state.attempts.get(name)
        if attempt is not None and self._reports(attempt):
            failure = Failure(
                attempt.unit,
                name,
                attempt.token,
                FailureKind.CRASH,
                "simulated",
                choice=attempt.choice,
                hardware=attempt.hardware,
            )
            self.tell(UnitFailed(self.revision, failure))

    def _drain(self, node: Node, absence: float | None) -> None:
        there = self.state.nodes.get(node.name)
        if there is not None and there.drain is None:
            self._absences[node.name] = node, absence
            self.tell(NodeDraining(self.revision, node.name, _A_DAY))
            self._drained(node.name)

    def _drained(self, name: str) -> None:
        """When it has nothing left to do it leaves, and is back after its absence, if that has an end."""
        if name in self.state.attempts or name in self.state.saving:
            return
        self.leave(name)
        node, absence = self._absences.pop(name)
        if absence is not None:
            self.at(self.now + absence, partial(self.join, node))
