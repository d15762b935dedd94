"""A process that was asked to leave has one deadline for all that it waits for."""

from __future__ import annotations

import math
import os
import queue
import signal
from collections.abc import Iterator
from contextlib import suppress

import pytest

from cerebro_elastic.cli.options import stopped_as_by_ctrl_c
from cerebro_elastic.store.client.lease import LeaseKeeper
from cerebro_elastic.store.client.retrying import RetryingStore
from cerebro_elastic.system.departure import interrupts_at_rest, leave_within, seconds_to_leave, stay
from cerebro_elastic.system.logs import EventLog
from support.memory_store import MemoryStore


@pytest.fixture(autouse=True)
def stays() -> Iterator[None]:
    yield
    stay()


def test_the_earliest_request_counts() -> None:
    assert seconds_to_leave() == math.inf
    leave_within(100.0)
    leave_within(1000.0)
    assert 0 < seconds_to_leave() <= 100.0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_gives_a_command_its_grace_and_the_next_command_has_none(number: signal.Signals) -> None:
    # Where the tests run in the background, SIGINT is ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)

    def take_part() -> None:
        with stopped_as_by_ctrl_c(30.0):
            try:
                os.kill(os.getpid(), number)
            finally:
                assert 0 < seconds_to_leave() <= 30.0

    try:
        with pytest.raises(KeyboardInterrupt):
            take_part()
    finally:
        signal.signal(signal.SIGINT, before)
    assert seconds_to_leave() == math.inf


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


def test_a_store_that_answers_is_used_until_the_end() -> None:
    leave_within(-5.0)
    store = RetryingStore(MemoryStore(), 3600.0, EventLog())
    with LeaseKeeper(store, 5.0) as keeper:
        assert store.keep(keeper.lease) > 0
