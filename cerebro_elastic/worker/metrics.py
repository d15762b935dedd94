"""Metrics of a node for Prometheus, if ``CEREBRO_METRICS_PORT`` gives a port.

Nodes of one host take the next free ports. They listen
where their node is reached: on loopback alone if the whole run is on one machine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from threading import Lock
from typing import Any

from cerebro_elastic.core.model.attempts import Attempt, Visit
from cerebro_elastic.data.reading.cache import PartitionCache
from cerebro_elastic.errors import MissingExtra, RunError
from cerebro_elastic.registry import install_extra
from cerebro_elastic.system.addresses import LOOPBACK
from cerebro_elastic.system.clock import Clock
from cerebro_elastic.system.devices import is_accelerator
from cerebro_elastic.system.listening import listening_address
from cerebro_elastic.system.logs import EventLog
from cerebro_elastic.worker import resources

VARIABLE = "CEREBRO_METRICS_PORT"
_PORTS = 100
"""How many ports are tried, from the first one on."""


class Outcome(StrEnum):
    """How an attempt ended on a rank: a label of the counter."""

    COMMITTED = "committed"
    LEFT = "left"
    FAILED = "failed"
    BROKEN = "broken"
    GIVEN_UP = "given-up"
    PROFILED = "profile"
    REFUSED = "refused"


class NodeMetrics:
    """Counts the attempts of a rank."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = Lock()
        self._ready = clock.now()
        self._began: dict[int, float] = {}
        self._busy = 0.0
        self.attempts: Counter[Outcome] = Counter()
        self.seconds = self.hop_seconds = self.fetch_seconds = 0.0

    def began(self, attempt: Attempt) -> None:
        """The rank takes part in the attempt."""
        self._began[attempt.token] = self._clock.now()

    def trained(self, attempt: Attempt) -> None:
        """The rank is free of the attempt: a save in the background is not its work."""
        with self._lock:
            now = self._clock.now()
            self._busy += now - self._began.pop(attempt.token, now)

    def ended(self, attempt: Attempt, outcome: Outcome, visit: Visit | None = None) -> None:
        """The attempt is over, perhaps with a committed ``visit``; the thread that saves may call this."""
        self.trained(attempt)
        with self._lock:
            self.attempts[outcome] += 1
            if visit is not None:
                self.seconds += visit.seconds
                self.hop_seconds += visit.hop_seconds
                self.fetch_seconds += visit.fetch_seconds

    @property
    def idle_ratio(self) -> float:
        """The share of time without an attempt."""
        now = self._clock.now()
        busy = self._busy + sum(now - began for began in list(self._began.values()))
        return 1.0 - busy / (now - self._ready) if now > self._ready else 1.0


@dataclass(frozen=True, eq=False)
class _Collector:
    """The interface that a registry of prometheus_client collects from."""

    metrics: NodeMetrics
    cache: PartitionCache
    labels: Mapping[str, str]
    device: str = "cpu"

    def collect(self) -> Iterator[Any]:
        """The metrics as they are now."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        metrics, names, values = self.metrics, list(self.labels), list(self.labels.values())
        text = "Attempts by how they ended; those neither committed nor left are tried again."
        attempts = CounterMetricFamily("cerebro_attempts", text, labels=[*names, "outcome"])
        for outcome in Outcome:
            attempts.add_metric([*values, outcome], metrics.attempts[outcome])
        yield attempts
        counts = {
            "unit_seconds": ("Seconds in the training of committed units.", metrics.seconds),
            "hop_seconds": ("Seconds in loading and saving their states.", metrics.hop_seconds),
            "fetch_seconds": ("Seconds in waiting for their partitions.", metrics.fetch_seconds),
            "cache_hits": ("Partitions that were in the host's cache when wanted.", self.cache.hits),
            "cache_misses": ("Partitions that had to be brought.", self.cache.misses),
            "cpu_seconds": ("CPU seconds of the rank and its loaders.", resources.cpu_seconds()),
        }
        for name, (text, count) in counts.items():
            family = CounterMetricFamily(f"cerebro_{name}", text, labels=names)
            family.add_metric(values, count)
            yield family
        resident, on_gpu = resources.in_use(self.device)
        gauges = {
            "idle_ratio": ("Share of time without an attempt.", metrics.idle_ratio),
            "memory_bytes": ("Resident memory of the rank's process.", resident),
            "gpu_memory_bytes": ("Memory of its tensors on the GPU.", on_gpu),
            "gpu_utilization": (
                "Share of the last moment for the GPU's work.",
                resources.gpu_utilization(self.device),
            ),
        }
        for name, (text, value) in gauges.items():
            if value is not None and (is_accelerator(self.device) or not name.startswith("gpu")):
                gauge = GaugeMetricFamily(f"cerebro_{name}", text, labels=names)
                gauge.add_metric(values, value)
                yield gauge


@contextmanager
def exposed(
    env: Mapping[str, str],
    labels: Mapping[str, str],
    cache: PartitionCache,
    metrics: NodeMetrics,
    log: EventLog,
    device: str = "cpu",
) -> Iterator[None]:
    """Serve the metrics of this rank, if ``env`` names a port and it is the node's first rank."""
    first = env.get(VARIABLE)
    if not first or env.get("LOCAL_RANK", "0") != "0":
        yield
        return
    collector = _Collector(metrics, cache, labels, device)
    server, thread, port = _server(env.get("MASTER_ADDR", LOOPBACK), first, collector)
    log.info("metrics", port=port)
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _server(host: str, first: str, collector: _Collector) -> tuple[Any, Any, int]:
    """A server of ``collector`` on the first free port, at the address by which others reach ``host``."""
    try:
        from prometheus_client import CollectorRegistry, start_http_server
    except ImportError as exc:
        raise MissingExtra(f"{VARIABLE} is set: {install_extra('metrics')}") from exc
    registry = CollectorRegistry()
    registry.register(collector)
    if not first.isdecimal() or not 0 < int(first) <= 65535:
        raise RunError(f"{VARIABLE} is {first!r}: give a port from 1 to 65535")
    addr = listening_address(host) or "0.0.0.0"
    for port in range(int(first), min(int(first) + _PORTS, 65536)):
        try:
            return (*start_http_server(port, addr, registry), port)
        except OSError:
            continue
    raise RunError(f"none of {_PORTS} ports from {first} on is free: choose another {VARIABLE}")
