"""A process that was asked to leave has one deadline for all that it waits for."""

from __future__ import annotations

import os
import queue
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace

import pytest

from cerebro_elastic.config import StoreSettings
from cerebro_elastic.errors import StoreUnavailable
from cerebro_elastic.store.client.etcd import EtcdStore
from cerebro_elastic.store.client.retrying import RetryingStore
from cerebro_elastic.system.departure import interrupts_at_rest, leave_within, seconds_to_leave, stay
from cerebro_elastic.system.logs import EventLog

NOBODY = StoreSettings(endpoints=("127.0.0.1:1",), patience=3600.0)


@pytest.fixture(autouse=True)
def stays() -> Iterator[None]:
    yield
    stay()


def test_a_run_is_interrupted_where_it_looks_and_by_a_second_signal_at_once() -> None:
    """Not between a lock and its block, which would leave it taken."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    steps = []

    def take_part() -> None:
        with interrupts_at_rest(30.0) as look:
            look()
            os.kill(os.getpid(), signal.SIGTERM)
            steps.append("goes on")
            assert 0 < seconds_to_leave() <= 30.0
            try:
                look()
            finally:
                steps.append("cleans up")
                look()
                os.kill(os.getpid(), signal.SIGTERM)
                steps.append("ends")

    try:
        with pytest.raises(KeyboardInterrupt):
            take_part()
        assert steps == ["goes on", "cleans up"]
        assert signal.getsignal(signal.SIGTERM) is signal.default_int_handler
        with pytest.raises(KeyboardInterrupt), interrupts_at_rest(0.0):
            os.kill(os.getpid(), signal.SIGTERM)  # and nobody looks
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.fixture
def sigterm_raises() -> Iterator[None]:
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.usefixtures("sigterm_raises")
def test_a_signal_that_finds_no_rest_has_its_effect_after_the_grace() -> None:
    """As where a call to etcd is under way whose packets are lost."""
    nothing, calls = queue.SimpleQueue[None](), list[str]()

    def take_part() -> None:
        with interrupts_at_rest(0.1, lambda: calls.append("at once")):
            os.kill(os.getpid(), signal.SIGTERM)
            assert calls == ["at once"]
            with suppress(queue.Empty):
                nothing.get(timeout=60.0)

    with pytest.raises(KeyboardInterrupt):
        take_part()
    assert 0 > seconds_to_leave() > -30


@pytest.mark.timeout(60)
def test_a_name_server_that_does_not_answer_is_not_waited_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """``getaddrinfo`` takes tens of seconds then, and no signal interrupts it."""
    answers = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: answers.wait())
    leave_within(0.0)
    try:
        with (
            closing(EtcdStore(replace(NOBODY, endpoints=("name:1",)))) as store,
            pytest.raises(StoreUnavailable, match=r"the name in name:1 .* \(no name server answers"),
        ):
            store.get("key")
    finally:
        answers.set()


def test_an_hour_of_patience_ends_with_the_deadline() -> None:
    """Both that of etcd's client and that of ranks."""
    request = threading.Timer(0.3, leave_within, [0.0])
    with closing(EtcdStore(NOBODY)) as store:
        request.start()  # while a call waits
        with pytest.raises(StoreUnavailable, match=r"did not answer for 0\.3 s"):
            store.get("key")
        request.join()
        patient = RetryingStore(store, 3600.0, EventLog())
        with pytest.raises(StoreUnavailable, match="what was committed is safe"):
            patient.get("key")


@pytest.mark.usefixtures("sigterm_raises")
def test_an_error_that_follows_a_signal_gives_way_to_it() -> None:

    def take_part(number: int) -> None:
        with interrupts_at_rest(30.0):
            os.kill(os.getpid(), number)
            raise StoreUnavailable("not waited for any longer")

    with pytest.raises(KeyboardInterrupt):
        take_part(signal.SIGTERM)
    with pytest.raises(StoreUnavailable):
        take_part(0)
