"""How soon a run recovers.

    python benchmarks/recovery.py [--tries 20]

Three nodes and two candidates for the lead on this machine train two configs, so that there is always a node
free to take over; a unit lasts about half a second. The processes stay for all tries, but for those that are
killed. Each row is a distribution over the tries, in seconds:

- *kill -9 of a node*: until its config trains again elsewhere, minus the lease's time. (A lease ends that
  time after its last renewal, which was up to a third of it before the kill: hence less than 0.)
- *kill -9 of a rank*: from the agent's report of it until the rank is ready for units again. Its agent, as
  those of ``cerebro run``, has it forked from a process that has imported.
- *join*: from the node's registration to its first unit, and from the start of its process to the
  registration.
- *SIGTERM*: until the node's lease is gone, the unit that it was in committed (the grace is 10 s).
- *kill -9 of the leader*: until the first action of the next one, minus the lease's time.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from cerebro_elastic.controller.candidate import LEASE_SECONDS
from cerebro_elastic.core.model.attempts import Attempt
from cerebro_elastic.core.model.events import (
    Event,
    LeaderChanged,
    NodeJoined,
    NodeLeft,
    UnitAssigned,
    UnitCommitted,
    UnitFailed,
)
from cerebro_elastic.recipes import load_recipe
from cerebro_elastic.runs.folder import RunFolder
from cerebro_elastic.runs.start.imports import SharedImports
from cerebro_elastic.store.ledger.record import EventStream
from cerebro_elastic.worker.rendezvous.handler import LEASE_SECONDS as NODE_LEASE_SECONDS
from support.chaos import recipe
from support.cluster import Cluster

DEADLINE = 120.0


class Recovery:
    """Hits a cluster, and takes the time until it has recovered. All times are wall-clock, as in logs."""

    def __init__(self, cluster: Cluster, stream: EventStream) -> None:
        self._cluster = cluster
        self._stream = stream
        self._attempts: dict[str, Attempt] = {}
        self._leader: str | None = None

    def settle(self) -> None:
        """Wait until somebody leads, all nodes are there and have ranks, and units are under way."""
        for process in (*self._cluster.nodes.values(), *self._cluster.candidates.values()):
            if not process.alive:
                process.start()
        deadline = time.time() + DEADLINE
        while not all(self._cluster.rank(name) for name in self._cluster.nodes):
            assert time.time() < deadline, "a node has no rank"
            self._take(0.1)
        self._wait(lambda event: isinstance(event, UnitCommitted) and self._leader is not None)

    def node_killed(self) -> float:
        lost = self._hit(signal.SIGKILL)
        self._cluster.nodes[lost.node].wait(5)
        began = time.time()
        return self._again(lost) - began - NODE_LEASE_SECONDS

    def rank_killed(self) -> float:
        self._wait(lambda event: isinstance(event, UnitAssigned))
        name = next(reversed(self._attempts))
        rank = self._cluster.rank(name)
        assert rank is not None
        os.kill(rank, signal.SIGKILL)
        killed = time.time()
        self._wait(lambda event: isinstance(event, UnitFailed) and event.failure.node == name)
        reported = time.time()
        return self._logged(name, lambda line: line["event"] == "ready" and line["time"] > killed) - reported

    def joined(self) -> tuple[float, float]:
        """Of the node that is away."""
        name = next(name for name, process in self._cluster.nodes.items() if not process.alive)
        started = time.time()
        self._cluster.nodes[name].start()
        self._wait(lambda event: isinstance(event, NodeJoined) and event.node.name == name)
        registered = time.time()
        attempt = self._wait(lambda event: isinstance(event, UnitAssigned) and event.attempt.node == name)
        return self._began(name, attempt.revision) - registered, registered - started

    def node_terminated(self) -> float:
        began = time.time()
        lost = self._hit(signal.SIGTERM)
        self._wait(lambda event: isinstance(event, NodeLeft) and event.node == lost.node)
        gone = time.time() - began
        self._cluster.nodes[lost.node].wait(30)
        return gone

    def leader_killed(self) -> float:
        assert self._leader is not None
        old = self._leader
        self._cluster.candidates[old].send(signal.SIGKILL)
        began = time.time()
        self._wait(lambda event: isinstance(event, LeaderChanged) and event.leader not in (None, old))
        self._wait(lambda event: isinstance(event, UnitAssigned))
        return time.time() - began - LEASE_SECONDS

    def _hit(self, number: signal.Signals) -> Attempt:
        """A node in the midst of a unit."""
        self._wait(lambda event: isinstance(event, UnitAssigned))
        name, attempt = next(reversed(self._attempts.items()))
        self._cluster.nodes[name].send(number)
        return attempt

    def _again(self, lost: Attempt) -> float:
        """When the config of ``lost`` trained on another node."""
        event = self._wait(
            lambda event: (
                isinstance(event, UnitAssigned)
                and event.attempt.unit.config == lost.unit.config
                and event.attempt.node != lost.node
            )
        )
        assert isinstance(event, UnitAssigned)
        return self._began(event.attempt.node, event.revision)

    def _began(self, node: str, token: int) -> float:
        """When a node's rank said that it began the attempt."""
        return self._logged(node, lambda line: line["event"] == "began" and line.get("attempt") == token)

    def _logged(self, node: str, condition: Callable[[Mapping[str, Any]], bool]) -> float:
        """The time of the first event in a node's log that fulfils the condition."""
        deadline = time.time() + DEADLINE
        while time.time() < deadline:
            for text in self._cluster.log_of(node).read_text(errors="replace").splitlines():
                with suppress(json.JSONDecodeError):  # others write to the log, too
                    line = json.loads(text)
                    if isinstance(line, dict) and "event" in line and condition(line):
                        return float(line["time"])
            time.sleep(0.01)
        raise TimeoutError(f"{node} did not log what was waited for")

    def _wait(self, condition: Callable[[Event], bool]) -> Event:
        deadline = time.time() + DEADLINE
        while time.time() < deadline:
            for event in self._take(0.1):
                if condition(event):
                    return event
        raise TimeoutError("the run does not go on")

    def _take(self, timeout: float) -> Sequence[Event]:
        events = self._stream.next(timeout)
        for event in events:
            match event:
                case UnitAssigned(attempt=attempt):
                    self._attempts.pop(attempt.node, None)
                    self._attempts[attempt.node] = attempt
                case LeaderChanged(leader=leader):
                    self._leader = leader
        return events


@contextmanager
def shared_imports(trained: Mapping[str, Any], folder: RunFolder) -> Iterator[None]:
    """Processes that are started in the block are forks of one that has imported, as those of ``cerebro
    run``."""
    with SharedImports() as imports:
        named = imports.load(load_recipe(dict(trained), root=folder.path.parent), folder, print)
        os.environ.update(named)
        try:
            yield
        finally:
            for name in named:
                del os.environ[name]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tries", type=int, default=20)
    tries = parser.parse_args().tries
    os.environ["PYTHONPATH"] = str(
        Path(__file__).parent
    )  # the preflight's process imports the task from support
    seconds: dict[str, list[float]] = {}

    def took(name: str, value: float) -> None:
        seconds.setdefault(name, []).append(value)

    with tempfile.TemporaryDirectory(prefix="cerebro-recovery-") as scratch:
        folder, trained = RunFolder(Path(scratch, "recovery")), recipe(configs=2, epochs=99_999)
        with (
            shared_imports(trained, folder),
            Cluster(trained, folder, nodes=3, candidates=2, grace=10) as cluster,
            cluster.ledger.events(1) as stream,
        ):
            recovery = Recovery(cluster, stream)
            for _ in range(tries):
                recovery.settle()
                took("kill -9 of a rank, from its agent's report to ready", recovery.rank_killed())
                recovery.settle()
                took("kill -9 of a node, to its config training elsewhere, minus TTL", recovery.node_killed())
                unit, registered = recovery.joined()
                took("join, from registration to first unit", unit)
                took("join, from process start to registration", registered)
                recovery.settle()
                took("SIGTERM, to lease gone", recovery.node_terminated())
                recovery.settle()
                took(
                    "kill -9 of the leader, to the next one's first action, minus TTL",
                    recovery.leader_killed(),
                )
    print(f"{'seconds over ' + str(tries) + ' tries':<70} median    p90    max")
    for name, values in seconds.items():
        ordered = sorted(values)
        p90 = ordered[min(len(ordered) - 1, round(0.9 * len(ordered)))]
        print(f"{name:<70} {statistics.median(ordered):6.2f} {p90:6.2f} {ordered[-1]:6.2f}")


if __name__ == "__main__":
    main()
