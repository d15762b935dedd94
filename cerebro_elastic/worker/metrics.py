"""Metrics of a node for Prometheus, if ``CEREBRO_METRICS_PORT`` gives a port.

The numbers come from the events that the rank logs. Nodes of one host take the next free ports. They listen
where their node is reached: on loopback alone if the whole run is on one machine.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from cerebro_elastic.addresses import LOOPBACK, listening_address
from cerebro_elastic.data.cache import PartitionCache
from cerebro_elastic.errors import MissingExtra, RunError
from cerebro_elastic.logs import EventLog

VARIABLE = "CEREBRO_METRICS_PORT"
_PORTS = 100
"""How many ports are tried, from the first one on."""
_LOGGER = "cerebro"
_OUTCOMES = {
    "committed": "committed",
    "committed in part": "left",
    "failed": "failed",
    "broken": "broken",
    "given up": "given-up",
    "profiled": "profile",
    "refused: the assignment was withdrawn": "refused",
}
"""The label ``outcome``, by the event with which an attempt ends."""


class NodeMetrics(logging.Handler):
    """Counts what a rank logs; ``clock`` gives seconds. A registry of prometheus_client collects from it."""

    def __init__(self, labels: Mapping[str, str], cache: PartitionCache, clock: Callable[[], float]) -> None:
        super().__init__(logging.INFO)
        self._labels = dict(labels)
        self._cache = cache
        self._clock = clock
        self._ready = clock()
        self._began: dict[object, float] = {}
        self._busy = 0.0
        self._attempts: Counter[str] = Counter()
        self._seconds = {"seconds": 0.0, "hop_seconds": 0.0, "fetch_seconds": 0.0}

    def emit(self, record: logging.LogRecord) -> None:
        event, fields = record.getMessage(), getattr(record, "fields", {})
        attempt = fields.get("attempt")
        if event == "began":
            self._began[attempt] = self._clock()
        elif event == "trained" or event in _OUTCOMES:
            # A save in the background is no work of the rank any more.
            self._busy += self._clock() - self._began.pop(attempt, self._clock())
        if event in _OUTCOMES:
            self._attempts[_OUTCOMES[event]] += 1
            for kind in self._seconds:
                self._seconds[kind] += fields.get(kind, 0.0) if event.startswith("committed") else 0.0

    def collect(self) -> Iterator[Any]:
        """The metrics as they are now."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        names, values = list(self._labels), list(self._labels.values())
        text = "Attempts by how they ended; those neither committed nor left are tried again."
        attempts = CounterMetricFamily("cerebro_attempts", text, labels=[*names, "outcome"])
        for outcome in _OUTCOMES.values():
            attempts.add_metric([*values, outcome], self._attempts[outcome])
        yield attempts
        counts = {
            "unit_seconds": ("Seconds in the training of committed units.", self._seconds["seconds"]),
            "hop_seconds": ("Seconds in loading and saving their states.", self._seconds["hop_seconds"]),
            "fetch_seconds": ("Seconds in waiting for their partitions.", self._seconds["fetch_seconds"]),
            "cache_hits": ("Partitions that were in the host's cache when wanted.", self._cache.hits),
            "cache_misses": ("Partitions that had to be brought.", self._cache.misses),
        }
        for name, (text, count) in counts.items():
            family = CounterMetricFamily(f"cerebro_{name}", text, labels=names)
            family.add_metric(values, count)
            yield family
        idle = GaugeMetricFamily("cerebro_idle_ratio", "Share of time without an attempt.", labels=names)
        idle.add_metric(values, self._idle())
        yield idle

    def _idle(self) -> float:
        now = self._clock()
        busy = self._busy + sum(now - began for began in list(self._began.values()))
        return 1.0 - busy / (now - self._ready) if now > self._ready else 1.0


@contextmanager
def exposed(
    env: Mapping[str, str],
    labels: Mapping[str, str],
    cache: PartitionCache,
    clock: Callable[[], float],
    log: EventLog,
) -> Iterator[None]:
    """Serve the metrics of this rank, if ``env`` names a port and it is the node's first rank."""
    first = env.get(VARIABLE)
    if not first or env.get("LOCAL_RANK", "0") != "0":
        yield
        return
    metrics = NodeMetrics(labels, cache, clock)
    server, thread, port = _server(env.get("MASTER_ADDR", LOOPBACK), first, metrics)
    logging.getLogger(_LOGGER).addHandler(metrics)
    log.info("metrics", port=port)
    try:
        yield
    finally:
        logging.getLogger(_LOGGER).removeHandler(metrics)
        server.shutdown()
        server.server_close()
        thread.join()


def _server(host: str, first: str, metrics: NodeMetrics) -> tuple[Any, Any, int]:
    """A server of ``metrics`` on the first free port, at the address by which others reach ``host``."""
    try:
        from prometheus_client import CollectorRegistry, start_http_server
    except ImportError as exc:
        raise MissingExtra(f"{VARIABLE} is set: pip install 'cerebro-elastic[metrics]'") from exc
    registry = CollectorRegistry()
    registry.register(metrics)
    if not first.isdecimal() or not 0 < int(first) <= 65535:
        raise RunError(f"{VARIABLE} is {first!r}: give a port from 1 to 65535")
    addr = listening_address(host) or "0.0.0.0"
    for port in range(int(first), min(int(first) + _PORTS, 65536)):
        try:
            return (*start_http_server(port, addr, registry), port)
        except OSError:
            continue
    raise RunError(f"none of {_PORTS} ports from {first} on is free: choose another {VARIABLE}")
