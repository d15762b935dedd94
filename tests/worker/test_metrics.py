"""A node's numbers, scraped as Prometheus does it."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import requests
from prometheus_client.parser import text_string_to_metric_families

from cerebro_elastic.data.cache import PartitionCache
from cerebro_elastic.errors import RunError
from cerebro_elastic.logs import EventLog
from cerebro_elastic.worker.metrics import VARIABLE, exposed
from support.clocks import HandClock

LABELS = {"run": "r", "node": "n"}


@pytest.fixture(autouse=True)
def heard(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with caplog.at_level(logging.INFO, "cerebro"):
        yield


def free_port() -> int:
    with closing(socket.create_server(("", 0))) as server:
        return int(server.getsockname()[1])


def scraped(port: int) -> dict[str, float]:
    """Samples by name, with the outcome behind it."""
    text = requests.get(f"http://127.0.0.1:{port}/metrics", timeout=10).text
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            assert {name: sample.labels[name] for name in LABELS} == LABELS
            found[f"{sample.name} {sample.labels.get('outcome', '')}".strip()] = sample.value
    return found


def test_events_of_a_rank_are_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock, log, cache = HandClock(), EventLog(), PartitionCache(tmp_path)
    with exposed({VARIABLE: str(free_port())}, LABELS, cache, clock.now, log):
        port = caplog.records[-1].__dict__["fields"]["port"]
        log.info("began")
        clock.sleep(3.0)
        log.info("committed", seconds=2.0, hop_seconds=0.5, fetch_seconds=0.25)
        clock.sleep(1.0)
        log.info("began")
        log.warning("given up", why="leaving")
        cache.hits, cache.misses = 5, 2
        values = scraped(port)
    assert values["cerebro_attempts_total committed"] == 1
    assert values["cerebro_attempts_total given-up"] == 1
    assert values["cerebro_attempts_total failed"] == 0
    assert (values["cerebro_unit_seconds_total"], values["cerebro_hop_seconds_total"]) == (2.0, 0.5)
    assert values["cerebro_fetch_seconds_total"] == 0.25
    assert (values["cerebro_cache_hits_total"], values["cerebro_cache_misses_total"]) == (5, 2)
    assert values["cerebro_idle_ratio"] == pytest.approx(0.25)
    log.info("began")  # nobody listens any more


def test_a_save_behind_the_next_unit_is_no_work(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock, cache = HandClock(), PartitionCache(tmp_path)
    first, second = EventLog(attempt=1), EventLog(attempt=2)
    with exposed({VARIABLE: str(free_port())}, LABELS, cache, clock.now, first):
        port = caplog.records[-1].__dict__["fields"]["port"]
        first.info("began")
        clock.sleep(1.0)
        first.info("trained")
        clock.sleep(1.0)
        second.info("began")
        clock.sleep(1.0)
        first.info("committed", seconds=1.0, hop_seconds=0.0)
        clock.sleep(1.0)
        values = scraped(port)
    assert values["cerebro_attempts_total committed"] == 1
    assert values["cerebro_idle_ratio"] == pytest.approx(0.25)


def test_nodes_of_one_host_take_the_next_port(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    first = free_port()
    cache, clock = PartitionCache(tmp_path), HandClock()
    values = ({VARIABLE: str(first)}, LABELS, cache, clock.now, EventLog())
    with exposed(*values), exposed(*values):
        ports = [r.__dict__["fields"]["port"] for r in caplog.records if r.message == "metrics"]
        assert len(set(ports)) == 2
        assert all(scraped(port) for port in ports)


@pytest.mark.parametrize("env", [{}, {VARIABLE: "9100", "LOCAL_RANK": "1"}])
def test_without_a_port_nothing_is_exposed_or_logged(
    env: dict[str, str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with exposed(env, LABELS, PartitionCache(tmp_path), HandClock().now, EventLog()):
        assert not caplog.records


@pytest.mark.parametrize("port", ["http", "0", "70000"])
def test_an_invalid_port_is_reported(port: str, tmp_path: Path) -> None:
    with (
        pytest.raises(RunError, match=f"{VARIABLE} is '{port}'"),
        exposed({VARIABLE: port}, LABELS, PartitionCache(tmp_path), HandClock().now, EventLog()),
    ):
        pass
