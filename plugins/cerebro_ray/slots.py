"""The hosts of a run on Ray: each is an actor in its own placement group, and Ray places a lost one again."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util import placement_group, placement_group_table, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from cerebro_ray._ray_internals import draining_nodes
from cerebro_ray.cluster import resources_text
from cerebro_ray.host_actor import HostActor, HostCommand, HostEnd

_TRIES = 3
"""A host that fails this often in a row is not started again."""
_FIRST_PAUSE, _LONGEST_PAUSE = 2.0, 60.0
_PROVEN = 60.0
"""A host that has run for this many seconds starts a new count of failures."""
_REFUSED = 2
"""The exit code for a wrong recipe or project: another attempt would fail alike."""
_LONG = 3.0
"""Seconds after which a host that waits for room is reported."""
_CALL_SECONDS = 5.0
"""Seconds to wait for an answer of an actor."""


class Slot:
    """One host: where Ray places it, and its present actor."""

    def __init__(self, name: str, resources: Mapping[str, float], command: HostCommand) -> None:
        self.name = name
        self._resources = resources
        self._command = command
        self._group: Any = None
        self._actor: Any = None
        self._end: Any = None
        self._node = ""
        self._leaving = False
        self._started = math.inf
        self._next_start = 0.0
        self._failures = 0
        self._shown = 0
        self.over = False
        """Whether the host is not started again."""
        self.error = ""
        """Why the host was given up, if it was."""

    @property
    def running(self) -> bool:
        return self._actor is not None

    def ask_for_room(self) -> None:
        """Request a machine from Ray, which may wait for its autoscaler."""
        if self._group is None and not self.over:
            self._group = placement_group([dict(self._resources)], name=self.name)

    def start(self, say: Callable[[str], None]) -> None:
        """Start the actor, if Ray has room for it and its pause is over."""
        ready = self._group is not None and not self.running and time.monotonic() >= self._next_start
        if not ready or not self._group.wait(timeout_seconds=0):
            return
        strategy = PlacementGroupSchedulingStrategy(self._group, placement_group_bundle_index=0)
        actor_class: Any = ray.remote(HostActor)
        self._actor = actor_class.options(
            num_cpus=self._resources["CPU"],
            num_gpus=self._resources.get("GPU", 0),
            max_concurrency=3,  # `run` lasts as long as the host
            scheduling_strategy=strategy,
        ).remote()
        self._end = self._actor.run.remote(self._command)
        self._node = placement_group_table(self._group)["bundles_to_node_id"][0]
        self._leaving, self._started, self._shown = False, time.monotonic(), 0
        say(f"{self.name} starts on {_address(self._node)}")

    def leave_if_drained(self, drained: Mapping[str, int], say: Callable[[str], None]) -> None:
        """Leave a machine that Ray is about to lose."""
        if self.running and not self._leaving and self._node in drained:
            say(f"{self.name} leaves {_address(self._node)}: Ray drains this machine")
            self.leave()

    def leave(self) -> None:
        """Let the host leave the run."""
        if self.running:
            self._leaving = True
            self._actor.leave.remote()

    def show(self, say: Callable[[str], None]) -> None:
        """Print the host's new output."""
        with suppress(RayError):
            lines, self._shown = ray.get(self._actor.lines.remote(self._shown), timeout=_CALL_SECONDS)
            for line in lines:
                say(line)

    def settle(self, say: Callable[[str], None]) -> None:
        """Handle the host's end, if it has ended."""
        if not self.running or not ray.wait([self._end], timeout=0)[0]:
            return
        try:
            end: HostEnd = ray.get(self._end)
        except RayError as exc:
            say(f"{self.name} was lost ({type(exc).__name__}); Ray places it again")
            self._again()
        else:
            self.ended(end, say)
        self.release()

    def ended(self, end: HostEnd, say: Callable[[str], None]) -> None:
        """Decide whether and when the host is started again."""
        if self._leaving:
            self._again()
        elif end.exit_code == 0:
            self.over = True
        elif end.exit_code == _REFUSED:
            say(f"{self.name} cannot take part:\n{end.tail}")
            self.error, self.over = end.tail, True  # the others continue: this machine may be at fault
        else:
            self._failures = 1 if time.monotonic() - self._started > _PROVEN else self._failures + 1
            say(f"{self.name} has ended with exit code {end.exit_code}:\n{end.tail}")
            self.error = end.tail
            self.over = self._failures >= _TRIES
            self._again()

    def _again(self) -> None:
        self._next_start = time.monotonic() + min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0**self._failures)

    def release(self) -> None:
        """Give the machine back. The next time Ray may choose another."""
        with suppress(RayError):
            if self._actor is not None:
                ray.kill(self._actor)
            if self._group is not None:
                remove_placement_group(self._group)
        self._actor = self._end = self._group = None

    def __str__(self) -> str:
        return f"{self.name} ({resources_text(self._resources)})"


class Hosts:
    """All hosts of a run. Leaving the context gives all machines back."""

    def __init__(self, slots: list[Slot], say: Callable[[str], None]) -> None:
        self._slots = slots
        self._say = say
        self._waiting: dict[str, float] = {}
        """Since when a host waits, on the monotonic clock; infinity once that was reported."""

    def __enter__(self) -> Hosts:
        return self

    def __exit__(self, *_: object) -> None:
        for slot in self._slots:
            slot.release()

    def step(self) -> None:
        """Start, watch and settle all hosts once; to be called a few times per second."""
        self._show()
        drained = draining_nodes()
        for slot in self._slots:
            slot.ask_for_room()
            slot.start(self._say)
            slot.leave_if_drained(drained, self._say)
        self.finish()
        self._say_who_waits()

    def finish(self) -> None:
        """Handle the ends of hosts that still run, without starting others."""
        for slot in self._slots:
            slot.settle(self._say)

    @property
    def running(self) -> bool:
        """Whether any host runs."""
        return any(slot.running for slot in self._slots)

    @property
    def over(self) -> bool:
        """Whether no host runs, and none will."""
        return all(slot.over for slot in self._slots)

    @property
    def error(self) -> str:
        """Why the hosts have failed, if they have."""
        return next((slot.error for slot in self._slots if slot.error), "")

    def leave(self, seconds: float) -> None:
        """Let all hosts leave, and wait for them at most this long."""
        running = [slot for slot in self._slots if slot.running]
        for slot in running:
            slot.leave()
        deadline = time.monotonic() + seconds
        while any(slot.running for slot in running) and time.monotonic() < deadline:
            for slot in running:
                slot.settle(self._say)
            time.sleep(0.2)

    def _show(self) -> None:
        """Print one host's output: all print the same about the run."""
        for slot in self._slots:
            if slot.running:
                slot.show(self._say)
                return

    def _say_who_waits(self) -> None:
        """Report hosts that have waited for a while, once each."""
        now = time.monotonic()
        waiting = {str(slot) for slot in self._slots if not slot.running and not slot.over}
        self._waiting = {name: self._waiting.get(name, now) for name in sorted(waiting)}
        for name, since in self._waiting.items():
            if now - since > _LONG:
                self._say(f"{name} waits for room in the cluster")
                self._waiting[name] = math.inf


def _address(node: str) -> str:
    """The address of a machine by its id."""
    machines: Any = ray.nodes()  # type: ignore[no-untyped-call]
    return next((str(each["NodeManagerAddress"]) for each in machines if each["NodeID"] == node), node)
