"""A process that was asked to leave has one deadline for all that it waits for."""

from __future__ import annotations

import math
import os
import signal
from collections.abc import Iterator
from contextlib import closing

import pytest

from cerebro_elastic.cli.options import stopped_as_by_ctrl_c
from cerebro_elastic.config import StoreSettings
from cerebro_elastic.departure import leave_within, seconds_to_leave, stay
from cerebro_elastic.errors import StoreUnavailable
from cerebro_elastic.logs import EventLog
from cerebro_elastic.store.client.etcd import EtcdStore
from cerebro_elastic.store.client.lease import LeaseKeeper
from cerebro_elastic.store.client.memory import MemoryStore
from cerebro_elastic.store.client.retrying import RetryingStore

NOBODY = StoreSettings(endpoints=("127.0.0.1:1",), patience=3600.0)


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


def test_an_hour_of_patience_ends_with_the_deadline() -> None:
    """Both that of etcd's client and that of ranks."""
    leave_within(0.0)
    with closing(EtcdStore(NOBODY)) as store:
        with pytest.raises(StoreUnavailable, match=r"did not answer for 0\.5 s"):
            store.get("key")
        patient = RetryingStore(store, 3600.0, EventLog())
        with pytest.raises(StoreUnavailable, match="what was committed is safe"):
            patient.get("key")


def test_a_store_that_answers_is_used_until_the_end() -> None:
    leave_within(-5.0)
    store = RetryingStore(MemoryStore(), 3600.0, EventLog())
    with LeaseKeeper(store, 5.0) as keeper:
        assert store.keep(keeper.lease) > 0
