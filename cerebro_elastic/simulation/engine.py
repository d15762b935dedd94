"""A run under way on a virtual clock.

Decisions are those of ``core.decide``, on the state that ``core.machine.fold`` makes; as in a live run each
is made when all that was done before is seen, and an action whose guard does not hold does nothing. While
nobody leads nothing is decided, and units go on and commit.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

from cerebro_elastic.core.decisions.decide import decide
from cerebro_elastic.core.history.machine import fold
from cerebro_elastic.core.history.progress import position, units_done
from cerebro_elastic.core.history.tallies import holdings
from cerebro_elastic.core.model.actions import Assign, Quarantine
from cerebro_elastic.core.model.attempts import Attempt, ProfileResult, Visit
from cerebro_elastic.core.model.events import (
    Event,
    LeaderChanged,
    NodeJoined,
    NodeLeft,
    NodeReleased,
    ProfileDone,
    RunOpened,
    UnitCommitted,
    UnitTrained,
)
from cerebro_elastic.core.model.interfaces import Planner, Policy, Search
from cerebro_elastic.core.model.nodes import Node
from cerebro_elastic.core.model.run import Plan
from cerebro_elastic.core.model.state import State
from cerebro_elastic.core.model.units import CheckpointRef, Phase
from cerebro_elastic.errors import IllegalEvent
from cerebro_elastic.simulation.effects import effect
from cerebro_elastic.simulation.learning import Learning, Logged
from cerebro_elastic.simulation.planning import Planning
from cerebro_elastic.simulation.times import Sizes, Times, ends_epoch, noise

LEASE = 5.0
"""Seconds after which it is noticed that a node, or who leads, has died: their leases'."""

Happening: TypeAlias = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Work:
    """What the nodes of an attempt do: they began at ``started``, and train so many ``batches`` for
    ``seconds``, after ``fetch`` seconds in which its partition comes and ``hop`` for the rest; a save of
    ``saving`` seconds may go on behind. It is not ``whole`` if it is left before the end of its unit."""

    attempt: Attempt
    started: float
    fetch: float
    hop: float
    seconds: float
    saving: float
    batches: int
    whole: bool = True

    @property
    def trains(self) -> float:
        """When it begins to train."""
        return self.started + self.fetch + self.hop

    @property
    def ends(self) -> float:
        """When it is trained."""
        return self.trains + self.seconds


class Course:
    """One simulation under way. What happens at which time others arrange by ``at``."""

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
        self.led = True
        self.dead: set[int] = set()
        """Registrations whose nodes have died."""
        self.slow: dict[str, list[float]] = {}
        """By what factors the units of a node are slowed that it begins, the present one last."""
        self.away: dict[str, float] = {}
        """Until when a node is gone that was killed or has left."""
        self.works: dict[int, Work] = {}
        """By attempt."""
        self.when_idle: dict[str, Happening] = {}
        """What a node that is asked to leave does when it has nothing more to do."""
        self._agenda: list[tuple[float, int, Happening]] = []
        self._arranged = 0
        self._begun: set[str] = set()
        self._fetched: dict[tuple[str, int], float] = {}
        self._waiting: dict[str, Work] = {}
        self._planning = Planning(self, policy) if isinstance(policy, Planner) else None

    def run(self) -> None:
        """To its end, or until nothing more is arranged."""
        self.tell(RunOpened(self.revision, self.plan))
        self.tell(LeaderChanged(self.revision, "simulated"))
        while self._agenda and self.state.outcome is None:
            self.now, _, happening = heapq.heappop(self._agenda)
            happening()
            self.settle()

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
        while self.led and (actions := decide(self.state, self.policy, self.search)):
            before = self.state.revision
            for action in actions:
                event = effect(action, self.revision)
                with suppress(IllegalEvent):
                    self.tell(event)
                    match action:
                        case Assign(attempt):
                            self.begin(replace(attempt, token=event.revision))
                        case Quarantine(node, seconds=seconds):
                            self.at(self.now + seconds, partial(self.forgive, node))
            if self.state.revision == before:
                raise IllegalEvent(f"nothing of {actions} can be done in {self.state}")
        if self.led and self._planning is not None:
            self._planning.look(self.state)

    def forgive(self, name: str) -> None:
        self.tell(NodeReleased(self.revision, name))

    # Nodes.

    def join(self, node: Node) -> None:
        """It registers; an older registration of its own ends first."""
        self.leave(node.name)
        held = {j for (host, j), there in self._fetched.items() if host == node.host and there <= self.now}
        cached = tuple(sorted({*node.cached, *held}))
        self.tell(NodeJoined(self.revision, replace(node, registration=self.revision, cached=cached)))

    def leave(self, name: str, registration: int | None = None) -> None:
        """Its registration ends, if it stands."""
        node = self.state.nodes.get(name)
        if node is not None and registration in (None, node.registration):
            self.tell(NodeLeft(self.revision, name))

    def begin(self, attempt: Attempt) -> None:
        """The nodes take the attempt up."""
        unit = attempt.unit
        config = self.state.configs[unit.config]
        costs = self.times.costs(attempt, ends_epoch=ends_epoch(config, self.plan.partitions))
        started = self.now + max(costs.dispatch, *map(self._startup, attempt.nodes))
        slowed = max(self.slow.get(name, [1.0])[-1] for name in attempt.nodes)
        left = self.sizes.batches - attempt.skip
        seconds = costs.training * slowed * noise(self.plan.seed, unit, self.spread)
        ready = max(self._ready(name, unit.partition, started) for name in attempt.nodes)
        if attempt.prefetch is not None:
            for name in attempt.nodes:
                self._ready(name, attempt.prefetch.partition, ready)
                host = self.state.nodes[name].host
                due = [j for j in attempt.prefetch.replicas if (host, j) not in self._fetched]
                if due:
                    self._ready(name, due[0], ready)
        self.go_on(
            Work(
                attempt,
                started,
                fetch=ready - started,
                hop=costs.hop,
                seconds=seconds * left / self.sizes.batches,
                saving=costs.saving if unit.phase is Phase.TRAIN else 0.0,
                batches=left,
            )
        )

    def go_on(self, work: Work) -> None:
        """This is what the attempt's nodes do from now on."""
        self.works[work.attempt.token] = work
        self.at(work.ends, partial(self.trained, work))

    def _startup(self, node: str) -> float:
        """What the node's first unit waits for it."""
        seconds = 0.0 if node in self._begun else self.times.startup.get(node, 0.0)
        self._begun.add(node)
        return seconds

    def _ready(self, node: str, partition: int, asked: float) -> float:
        """When the node's host has the partition, if it is asked for now."""
        held = holdings(self.state.nodes.values())[node]
        there = asked if partition in held else asked + self.times.fetch
        return max(asked, self._fetched.setdefault((self.state.nodes[node].host, partition), there))

    def trained(self, work: Work) -> None:
        """The attempt is trained: it reports, if it may, or is saved behind its node's next unit (not if that
        is to leave, nor if there are several). The last one's save comes first."""
        attempt, node = work.attempt, work.attempt.node
        if self.works[attempt.token] is not work or not self.reports(attempt):
            return
        waited = replace(work, hop=work.hop + self.now - work.ends)
        if attempt.unit.phase is Phase.PROFILE:
            self.tell(ProfileDone(self.revision, self._trial(attempt)))
            self.done(attempt)
        elif node in self.state.saving:
            self._waiting[node] = work
        elif work.saving and attempt.nodes == (node,) and self.state.nodes[node].drain is None:
            self.tell(UnitTrained(self.revision, node, attempt.token))
            self.at(self.now + work.saving, partial(self.saved, waited))
        else:
            self.at(
                self.now + work.saving,
                partial(self.saved, replace(waited, hop=waited.hop + work.saving, saving=0.0)),
            )

    def saved(self, work: Work) -> None:
        """The attempt reports, if it may."""
        if self.reports(work.attempt):
            self.tell(UnitCommitted(self.revision, self._visit(work)))
            self.done(work.attempt)
        waiting = self._waiting.pop(work.attempt.node, None)
        if waiting is not None:
            self.trained(waiting)

    def reports(self, attempt: Attempt) -> bool:
        """Whether the attempt may still tell anything."""
        current = self.state.attempt(attempt.node, attempt.token)
        alive = not self.dead & {member.registration for member in attempt.members}
        return current is not None and self.state.stands(current) and alive

    def done(self, attempt: Attempt) -> None:
        """It is over for its nodes."""
        for name in attempt.nodes:
            self.rest(name)

    def rest(self, name: str) -> None:
        """If the node is idle, it does what it was to do then."""
        if name not in self.state.attempts and name not in self.state.saving and name in self.when_idle:
            self.when_idle.pop(name)()

    # What is told.

    def _trial(self, attempt: Attempt) -> ProfileResult:
        whole = replace(attempt, unit=replace(attempt.unit, phase=Phase.TRAIN))
        seconds = self.times.training(whole, ends_epoch=False)
        return ProfileResult(
            attempt.unit, attempt.strategy, attempt.hardware, attempt.node, attempt.token, seconds
        )

    def _replicas(self, attempt: Attempt) -> tuple[int, ...]:
        """Those of the attempt's hint that its node has by now."""
        hinted = attempt.prefetch.replicas if attempt.prefetch else ()
        host = self.state.nodes[attempt.node].host
        return tuple(j for j in hinted if self._fetched.get((host, j), math.inf) <= self.now)

    def _visit(self, work: Work) -> Visit:
        attempt, unit = work.attempt, work.attempt.unit
        config = self.state.configs[unit.config]
        trains = unit.phase is Phase.TRAIN
        # A part of a unit tells nothing yet.
        logged = (
            self.learning.after(config, units_done(config, self.plan) + trains) if work.whole else Logged({})
        )
        name = f"{unit.config}/{unit.epoch:04d}-{position(config):04d}-{attempt.token}"
        made = CheckpointRef(f"simulated:{name}", name, self.sizes.state(unit.config))
        output = made if trains else attempt.input
        assert output is not None, "what is evaluated has been trained"
        return Visit(
            unit=unit,
            k=position(config),
            node=attempt.node,
            attempt=attempt.token,
            input=attempt.input,
            output=output,
            samples=self.sizes.samples * work.batches // self.sizes.batches,
            batches=work.batches,
            seconds=work.seconds,
            hop_seconds=work.hop,
            save_seconds=work.saving,
            fetch_seconds=work.fetch,
            started=self.start + work.started,
            metrics=logged.metrics,
            replicas=self._replicas(attempt),
            strategy=attempt.strategy,
            done=logged.done and trains,
            skip=attempt.skip,
            whole=work.whole,
            gang=attempt.nodes[1:],
            hardware=attempt.hardware,
        )
