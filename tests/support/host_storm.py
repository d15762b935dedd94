"""A storm over hosts: the link, the clock and all processes of a host, the storage and the members of etcd
are hit while the hosts train."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from support.faults.plan import Fault, FaultPlan, What, Whom
from support.host_cluster import HostCluster, HostProcess
from support.hosts import Host
from support.storm import Storm

SLOW, LOST = "1mbit", 0.2
"""The rate of a slow link, and the share of packets that is lost on a bad one."""
_FLAP_SECONDS = 0.7
_HOUR = 3600.0
_CLOCKS = {What.AHEAD: _HOUR, What.BEHIND: -_HOUR}


class HostStorm(Storm[HostCluster]):
    """Strikes a ``cluster`` of hosts. ``standstill`` is the longest time without a commit in which neither S3
    nor the whole etcd nor all hosts were hit, with the commit before it."""

    def __init__(self, cluster: HostCluster, plan: FaultPlan, say: Callable[[str], None]) -> None:
        super().__init__(cluster, plan, say)
        self._lasting: dict[str, ExitStack] = {}
        self._commits, self._moved = 0, 0.0
        self.standstill = (0.0, 0)

    def _step(self) -> None:
        super()._step()
        now = time.monotonic()
        if self.seen.commits > self._commits or self._all_hit:
            self._commits, self._moved = self.seen.commits, now
        elif self._commits:
            self.standstill = max(self.standstill, (now - self._moved, self._commits))

    @property
    def _all_hit(self) -> bool:
        """Whether a fault lasts that stops all."""
        etcd_is_away = self._cluster.members == 1 and "etcd-0" in self._busy
        return "storage" in self._busy or etcd_is_away or self._cluster.processes.keys() <= self._busy

    def _target(self, fault: Fault) -> str | None:
        names = {Whom.STORAGE: "storage", Whom.ETCD: f"etcd-{fault.index}"}
        name = names.get(fault.whom) or list(self._cluster.processes)[fault.index]
        if fault.whom is Whom.ETCD:  # a quorum stays
            free = not any(busy.startswith("etcd") for busy in self._busy)
        else:
            free = name not in self._busy
        whole = fault.whom is not Whom.HOST or any(map(_of(name), self.seen.nodes))
        return name if free and whole else None

    def _attempt(self, target: str) -> int:
        attempts = self.seen.attempts
        return next((attempts[node] for node in attempts if _of(target)(node)), 0)

    def _hit(self, fault: Fault, target: str) -> bool:
        cluster = self._cluster
        if fault.whom is Whom.ETCD and fault.what is What.KILL:
            cluster.etcd.kill(fault.index)
        elif fault.what in (What.KILL, *_CLOCKS):
            host = cluster.processes[target].host
            host.kill()
            host.clock_ahead = _CLOCKS.get(fault.what, 0.0)
        elif fault.what is What.FLAP:
            self._flap(target, time.monotonic() + fault.seconds)
        else:
            self._lasting[target] = ExitStack()
            self._lasting[target].enter_context(self._bad(fault, target))
        return True

    def _recover(self, fault: Fault, target: str) -> None:
        if fault.whom is Whom.ETCD and fault.what is What.KILL:
            self._cluster.etcd.start(fault.index)
        if target in self._lasting:
            self._lasting.pop(target).close()

    @contextmanager
    def _bad(self, fault: Fault, target: str) -> Iterator[None]:
        """Let the fault last."""
        cluster, host = self._cluster, self._host(target)
        with ExitStack() as stack:
            match fault.what:
                case What.CUT:
                    stack.enter_context(host.unplugged())
                case What.DEAFEN | What.MUTE | What.NO_ETCD | What.NO_STORAGE:
                    storage, *etcd = cluster.infrastructure
                    others = {What.NO_ETCD: etcd, What.NO_STORAGE: [storage]}.get(
                        fault.what, [storage, *etcd]
                    )
                    for other in others:
                        if fault.what is not What.MUTE:
                            stack.enter_context(host.deaf_to(other))
                        if fault.what is not What.DEAFEN:
                            stack.enter_context(other.deaf_to(host))
                case What.SLOW:
                    host.set_rate(SLOW)
                    stack.callback(host.set_rate, "")
                case What.LOSSY:
                    stack.enter_context(host.losing(LOST))
                case What.NARROW | What.NARROW_TO | What.NARROW_FROM:
                    sent, received = fault.what is not What.NARROW_TO, fault.what is not What.NARROW_FROM
                    stack.enter_context(host.narrowed(received=received, sent=sent))
                case What.REFUSE | What.HANG:
                    cluster.answer({What.REFUSE: "refuse", What.HANG: "hang"}[fault.what])
                    stack.callback(cluster.answer, "well")
            yield

    def _flap(self, target: str, until: float) -> None:
        """Cut the link and mend it, in turn."""
        now = time.monotonic()
        over = now > until - _FLAP_SECONDS or self.seen.ended
        if target in self._lasting:
            self._lasting.pop(target).close()
        elif not over:
            self._lasting[target] = ExitStack()
            self._lasting[target].enter_context(self._host(target).unplugged())
        if not over:
            self._later.append((now + _FLAP_SECONDS, partial(self._flap, target, until)))

    def _host(self, target: str) -> Host:
        cluster = self._cluster
        if target in cluster.processes:
            return cluster.processes[target].host
        hosts = ["storage", *(f"etcd-{index}" for index in range(cluster.members))]
        return cluster.infrastructure[hosts.index(target)]

    def _processes(self) -> dict[str, Any]:
        processes: dict[str, HostProcess] = self._cluster.processes
        return processes


def _of(host: str) -> Callable[[str], bool]:
    """Whether a node of this name is one of the ``host``."""
    return lambda node: node.startswith(f"{host}-")
