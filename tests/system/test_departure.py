"""A process that was asked to leave has one deadline for all that it waits for."""

from __future__ import annotations

import os
import queue
import signal
from collections.abc import Iterator
from contextlib import suppress

import pytest

from cerebro_elastic.errors import StoreUnavailable
from cerebro_elastic.system.departure import interrupts_at_rest, seconds_to_leave, stay


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
