"""A node's numbers, scraped as Prometheus does it."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
import requests
from prometheus_client.parser import text_string_to_metric_families

from cerebro_elastic.core.model.attempts import Attempt, Visit
from cerebro_elastic.core.model.units import CheckpointRef, Unit
from cerebro_elastic.data.reading.cache import PartitionCache
from cerebro_elastic.reporting.tables import resources_text
from cerebro_elastic.system import devices
from cerebro_elastic.system.logs import EventLog
from cerebro_elastic.worker import resources
from cerebro_elastic.worker.metrics import VARIABLE, NodeMetrics, Outcome, exposed
from cerebro_elastic.worker.resources import ResourceMeter, cpu_seconds
from support.clocks import HandClock

LABELS = {"run": "r", "node": "n"}
UNIT, REF = Unit("c", 0, 0), CheckpointRef("u", "", 0)
FIRST, SECOND = Attempt(UNIT, "n", 1, 1, token=1), Attempt(UNIT, "n", 1, 1, token=2)
VISIT = Visit(UNIT, 0, "n", 1, None, REF, 1, 1, seconds=2.0, hop_seconds=0.5, started=0.0, fetch_seconds=0.25)


@pytest.fixture(autouse=True)
def heard(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with caplog.at_level(logging.INFO, "cerebro"):
        yield


def free_port() -> int:
    with closing(socket.create_server(("", 0))) as server:
        return int(server.getsockname()[1])


def scraped(port: int) -> dict[str, float]:
    """Samples by name, with the outcome behind it."""
    text = requests.get(f"http://127.0.0.1:{port}/metrics", timeout=60).text
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            assert {name: sample.labels[name] for name in LABELS} == LABELS
            found[f"{sample.name} {sample.labels.get('outcome', '')}".strip()] = sample.value
    return found


def test_the_work_of_a_rank_is_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock, cache = HandClock(), PartitionCache(tmp_path)
    metrics = NodeMetrics(clock)
    with exposed({VARIABLE: str(free_port())}, LABELS, cache, metrics, EventLog()):
        port = caplog.records[-1].__dict__["fields"]["port"]
        metrics.began(FIRST)
        clock.sleep(3.0)
        metrics.ended(FIRST, Outcome.COMMITTED, VISIT)
        clock.sleep(1.0)
        metrics.began(SECOND)
        metrics.ended(SECOND, Outcome.GIVEN_UP)
        cache.hits, cache.misses = 5, 2
        values = scraped(port)
    assert values["cerebro_attempts_total committed"] == 1
    assert values["cerebro_attempts_total given-up"] == 1
    assert values["cerebro_attempts_total failed"] == 0
    assert (values["cerebro_unit_seconds_total"], values["cerebro_hop_seconds_total"]) == (2.0, 0.5)
    assert values["cerebro_fetch_seconds_total"] == 0.25
    assert (values["cerebro_cache_hits_total"], values["cerebro_cache_misses_total"]) == (5, 2)
    assert values["cerebro_idle_ratio"] == pytest.approx(0.25)
    assert 0 < values["cerebro_cpu_seconds_total"] <= cpu_seconds()
    assert values["cerebro_memory_bytes"] > 10**7
    assert not any("gpu" in name for name in values), "there is no GPU"


class Cuda:
    """A GPU that is busier each time that it is asked."""

    def __init__(self) -> None:
        self.shares = iter((20, 60, 90))

    def reset_peak_memory_stats(self, device: str) -> None:
        assert device == "cuda:1"

    def max_memory_allocated(self, _device: str) -> int:
        return 7 * 10**9

    def utilization(self, _device: str) -> int:
        return next(self.shares)


def test_a_units_resources_are_those_of_its_rank_and_its_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = Cuda()
    monkeypatch.setattr(devices, "_module", lambda _device: cuda)
    clock, beats = HandClock(), list[float]()
    meter = ResourceMeter("cuda:1", clock)
    beat = meter.watching(lambda: beats.append(clock.now()))
    meter.begin()
    for _ in range(4):
        clock.sleep(0.5)
        beat()
    taken = meter.end()
    assert len(beats) == 4
    assert (taken.gpu, taken.gpu_bytes) == (0.4, 7 * 10**9), "the mean of 0.2 and 0.6, asked once a second"
    assert (
        resources_text(replace(taken, cpu=0.984, memory_bytes=512 * 10**6))
        == "cpu 98%, 512 MB; gpu 40%, 7 GB"
    )

    def unknown(_device: str) -> int:
        raise ModuleNotFoundError("pynvml")

    monkeypatch.setattr(cuda, "utilization", unknown)
    monkeypatch.setattr(resources, "_known", {True})
    meter = ResourceMeter("cuda:1", clock)
    meter.begin()
    clock.sleep(1.0)
    assert resources_text(replace(meter.end(), cpu=1.5, memory_bytes=10**9)) == "cpu 150%, 1 GB; gpu 7 GB"


def test_nodes_of_one_host_take_the_next_port(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    first = free_port()
    values = ({VARIABLE: str(first)}, LABELS, PartitionCache(tmp_path), NodeMetrics(HandClock()), EventLog())
    with exposed(*values), exposed(*values):
        ports = [r.__dict__["fields"]["port"] for r in caplog.records if r.message == "metrics"]
        assert len(set(ports)) == 2
        assert all(scraped(port) for port in ports)
