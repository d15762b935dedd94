"""The storm: a fault plan applied to a cluster of real processes, from the run's first unit to its last.

A fault waits for its commit, and then for its target to be whole (a dead node cannot be hit); processes that
were killed or have left are started again, as by a supervisor. A fault may still not strike: the run may end
before, or no process reach its point. That is no failure of the run, but a weakness of the plan.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar

from cerebro_elastic.core.model import events as ev
from cerebro_elastic.core.model.attempts import Failure
from cerebro_elastic.core.model.events import Event
from support.cluster import GRACE, Process
from support.faults.inject import CONTROLLER, FaultFolder
from support.faults.plan import Fault, FaultPlan, Point, What, Whom
from support.storm_task import slow_down

_LATE = 1
"""The number of faults that may be due before the units are slowed down."""
_ARMED_SECONDS = 60.0
"""Seconds that a fault waits at its point."""
_RESTART_SECONDS = 0.5


@dataclass
class Strike:
    """A fault, whose name it hit, where the history stood then (0: it did not strike), and in which attempt
    its node was (0: in none)."""

    fault: Fault
    target: str = ""
    revision: int = 0
    attempt: int = 0
    armed: float = 0.0


@dataclass
class Seen:
    """What the history has shown so far."""

    commits: int = 0
    revision: int = 0
    leader: str | None = None
    ended: bool = False
    nodes: set[str] = field(default_factory=set)
    quarantined: set[str] = field(default_factory=set)
    attempts: dict[str, int] = field(default_factory=dict)

    def take(self, event: Event) -> None:
        self.revision = event.revision
        match event:
            case ev.UnitAssigned(attempt=attempt):
                self.attempts[attempt.node] = event.revision
            case ev.UnitCommitted(visit=visit):
                self.commits += 1
                self._is_over(visit.node, visit.attempt)
            case ev.UnitFailed(failure=Failure(node=name, attempt=token)):
                self._is_over(name, token)
            case ev.UnitTrained(node=name, token=token) | ev.UnitWithdrawn(node=name, token=token):
                self._is_over(name, token)
            case ev.NodeJoined(node=node):
                self.nodes.add(node.name)
            case ev.NodeLeft(node=name):
                self.nodes.discard(name)
                self.attempts.pop(name, None)
            case ev.NodeQuarantined(node=name):
                self.quarantined.add(name)
            case ev.NodeReleased(node=name):
                self.quarantined.discard(name)
            case ev.LeaderChanged(leader=leader):
                self.leader = leader
            case ev.RunEnded():
                self.ended = True

    def _is_over(self, node: str, token: int) -> None:
        """The node trains the attempt no more, if it does not train the next one already."""
        if self.attempts.get(node) == token:
            del self.attempts[node]


AnyCluster = TypeVar("AnyCluster", bound=Any)


class Storm(Generic[AnyCluster]):
    """Applies ``plan`` to ``cluster``, a ``Cluster``, whose processes it starts."""

    def __init__(
        self, cluster: AnyCluster, plan: FaultPlan, say: Callable[[str], None] = lambda _text: None
    ) -> None:
        self._cluster = cluster
        self._say = say
        self._waiting = [Strike(fault) for fault in plan]
        self._armed: list[Strike] = []
        self._later: list[tuple[float, Callable[[], None]]] = []
        self._busy: set[str] = set()
        self._downtime: dict[str, float] = {}
        self.strikes = list(self._waiting)
        self.seen = Seen()
        self.events: list[Event] = []
        """The history."""

    def rage(self, seconds: float) -> bool:
        """Whether the run came to its end within ``seconds``, and its processes theirs."""
        cluster, deadline = self._cluster, time.monotonic() + seconds
        for process in self._processes().values():
            process.start()
        with cluster.ledger.events(1) as stream:
            while not self.seen.ended and time.monotonic() < deadline:
                for event in stream.next(0.05):
                    self.seen.take(event)
                    self.events.append(event)
                self._step()
        for strike in self._armed:
            call_off(cluster.faults, strike, self.seen.revision)
        for _, act in self._later:  # wake who is paused, start who is down: both see that the run has ended
            act()
        ended = [p.wait(max(0.0, deadline - time.monotonic())) for p in self._processes().values()]
        return self.seen.ended and all(ended)

    def _step(self) -> None:
        now = time.monotonic()
        for entry in [entry for entry in self._later if entry[0] <= now]:
            self._later.remove(entry)
            entry[1]()
        self._supervise()
        for strike in list(self._armed):
            self._look_after(strike, now)
        due = [strike for strike in self._waiting if strike.fault.commit <= self.seen.commits]
        slow_down(self._cluster.folder.path / "faults", len(due) > _LATE)
        for strike in due:
            target = self._target(strike.fault)
            if target is not None:
                self._waiting.remove(strike)
                self._begin(strike, target, now)

    def _target(self, fault: Fault) -> str | None:
        """The name of the process to hit, if it is whole and no other fault has it."""
        if fault.of_node:
            name = self._used(fault.index)
        else:
            name = CONTROLLER if fault.whom is Whom.CONTROLLER else f"etcd-{fault.index}"
        return name if name not in self._busy and self._is_whole(fault, name) else None

    def _is_whole(self, fault: Fault, name: str) -> bool:
        """Whether a node to be hit from outside is in the middle of a unit, and a leader has a successor."""
        if fault.whom is Whom.CONTROLLER:
            return self._leader() is not None and all(p.alive for p in self._cluster.candidates.values())
        store_is_there = not any(busy.startswith("etcd") for busy in self._busy)
        if fault.whom is Whom.ETCD:
            return store_is_there
        targets = self.seen.attempts if fault.point is None else self.seen.nodes
        reachable = store_is_there or fault.what is not What.DRAIN
        return name in targets and reachable and self._cluster.rank(name) is not None

    def _used(self, index: int) -> str:
        """The node of this number, or another one if it is quarantined: its loss would cost nothing."""
        names = list(self._cluster.nodes)
        around = names[index:] + names[:index]
        return next((name for name in around if name not in self.seen.quarantined), around[0])

    def _begin(self, strike: Strike, target: str, now: float) -> None:
        fault = strike.fault
        strike.target = target
        self._busy.add(target)
        if fault.point is None:
            if self._hit(fault, target):
                self._has_struck(strike, self._attempt(target), now)
            else:  # it was gone before we came
                self._busy.discard(target)
                strike.target = ""
                self._waiting.append(strike)
            return
        self._cluster.faults.arm(target, fault)
        strike.armed = now
        self._armed.append(strike)
        match fault.point:  # these places are on a way that somebody has to be sent
            case Point.JOIN:
                self._cluster.nodes[target].send(signal.SIGKILL)
            case Point.DRAIN:
                self._cluster.nodes[target].send(signal.SIGTERM)
            case Point.TAKEOVER:
                self._hit(fault, target)

    def _attempt(self, target: str) -> int:
        """The attempt that a node is in; 0: none."""
        return self.seen.attempts.get(target, 0)

    def _look_after(self, strike: Strike, now: float) -> None:
        """Note whether the fault has met its process."""
        attempt = self._cluster.faults.struck(strike.target, strike.fault)
        if attempt is not None:
            self._armed.remove(strike)
            self._has_struck(strike, attempt, now)
        elif now - strike.armed > _ARMED_SECONDS and self._cluster.faults.disarm(strike.target, strike.fault):
            self._armed.remove(strike)
            self._busy.discard(strike.target)
            self._say(f"never met: {strike.fault}")

    def _has_struck(self, strike: Strike, attempt: int, now: float) -> None:
        fault, target = strike.fault, strike.target
        strike.revision, strike.attempt = self.seen.revision, attempt
        self._say(f"{fault} (commit {self.seen.commits})")
        self._downtime[target] = fault.seconds

        def over() -> None:
            self._recover(fault, target)
            self._busy.discard(target)

        self._later.append((now + fault.seconds, over))

    def _hit(self, fault: Fault, target: str) -> bool:
        """Strike from outside; whether a process was there to be hit."""
        if fault.whom is Whom.ETCD and fault.what is What.KILL:
            self._cluster.etcd.kill(fault.index)
            return True
        if fault.what is What.DRAIN:
            self._cluster.ledger.drain(target, GRACE)
            return True
        number = {
            What.KILL: signal.SIGKILL,
            What.PAUSE: signal.SIGSTOP,
            What.TERMINATE: signal.SIGTERM,
        }[fault.what]
        hit = [_kill(pid, number) for pid in self._pids(fault, target)]
        return any(hit)

    def _recover(self, fault: Fault, target: str) -> None:
        """End what has lasted its time: wake paused processes, start an etcd again. (The rest is
        supervised.)"""
        if fault.whom is Whom.ETCD and fault.what is What.KILL:
            self._cluster.etcd.start(fault.index)
        elif fault.what is What.PAUSE:
            everybody = [*self._processes().values()] if fault.whom is Whom.CONTROLLER else []
            for pid in [*(p.pid for p in everybody), *self._pids(fault, target)]:
                _kill(pid, signal.SIGCONT)

    def _pids(self, fault: Fault, target: str) -> list[int]:
        """The processes that ``fault`` hits now."""
        cluster = self._cluster
        if fault.whom is Whom.ETCD:
            process = cluster.etcd.members[fault.index].process
            return [process.pid] if process else []
        if fault.whom is Whom.CONTROLLER:
            leader = self._leader()
            return [leader.pid] if leader else []
        rank = cluster.rank(target) if fault.whom is not Whom.AGENT else None
        agent = [cluster.nodes[target].pid] if fault.whom is not Whom.RANK else []
        if fault.whom is Whom.NODE and fault.what is What.TERMINATE:
            return agent
        return [*agent, *([rank] if rank is not None else [])]

    def _leader(self) -> Process | None:
        return self._cluster.candidates.get(self.seen.leader or "")

    def _supervise(self) -> None:
        """Start ended processes again, after the downtime of the fault that hit them."""
        for name, process in self._processes().items():
            if not process.alive and f"down {name}" not in self._busy:
                self._busy.add(f"down {name}")
                wait = self._downtime.pop(name, _RESTART_SECONDS)
                self._later.append((time.monotonic() + wait, partial(self._start, name, process)))

    def _start(self, name: str, process: Process) -> None:
        self._busy.discard(f"down {name}")
        process.start()

    def _processes(self) -> dict[str, Process]:
        return {**self._cluster.candidates, **self._cluster.nodes}


def call_off(faults: FaultFolder, strike: Strike, revision: int) -> bool:
    """Take back a fault that waits at its point; whether it did. If it was faster it has struck, now that the
    history is at ``revision``."""
    if faults.disarm(strike.target, strike.fault):
        return True
    attempt = faults.struck(strike.target, strike.fault)
    if attempt is not None:
        strike.revision, strike.attempt = revision, attempt
    return False


def _kill(pid: int, number: signal.Signals) -> bool:
    """Whether there was such a process."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True
