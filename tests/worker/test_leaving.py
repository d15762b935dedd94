"""When to leave: pure decisions, by table; and asking from where nothing may wait."""

from __future__ import annotations

import math
import os
import signal
from collections.abc import Mapping

import pytest

from cerebro_elastic.core.history.estimates import fits
from cerebro_elastic.worker.leaving import Leaving, grace_of
from support.clocks import HandClock


@pytest.mark.parametrize(
    ("env", "grace"),
    [
        ({}, 27.0),
        ({"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "5"}, 4.0),
        ({"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "100"}, 90.0),
        ({"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "0"}, 0.0),
        ({"CEREBRO_GRACE": "110", "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "5"}, 110.0),
        ({"CEREBRO_GRACE": "0"}, 0.0),
        ({"SLURM_JOB_END_TIME": "1010"}, 10.0),
        ({"SLURM_JOB_END_TIME": "9999"}, 27.0),
        ({"SLURM_JOB_END_TIME": "1010", "CEREBRO_GRACE": "110"}, 10.0),
        ({"SLURM_JOB_END_TIME": "990"}, 0.0),
    ],
)
def test_the_grace_of_a_signal(env: Mapping[str, str], grace: float) -> None:
    assert grace_of(env, wall=1000.0) == grace


@pytest.mark.parametrize(
    ("rest", "save", "left", "does"),
    [
        (0.0, 0.0, 1.0, True),
        (0.0, 0.0, 0.0, False),
        (10.0, 1.0, 20.0, True),
        (10.0, 1.0, 11.0, False),
        (1.0, 10.0, 11.0, False),
        (1.0, 1.0, math.inf, True),
        (1.0, 1.0, -5.0, False),
    ],
)
def test_whether_a_unit_fits_into_the_remaining_time(
    rest: float, save: float, left: float, does: bool
) -> None:
    assert fits(rest, save, left) is does


@pytest.mark.parametrize(
    ("grace", "stops_after"),
    [
        (100.0, None),  # ten batches of a second, and a second for the save: it fits
        (12.0, None),
        (8.0, 3),  # asked after the third batch, seven more seconds do not fit
        (0.0, 3),
    ],
)
def test_a_unit_that_fits_is_finished_and_another_stops_at_once(
    grace: float, stops_after: int | None
) -> None:
    clock = HandClock()
    leaving = Leaving(clock)
    stop = leaving.stop(total=10, skip=0, save=lambda: 1.0)
    for done in range(1, 10):
        clock.sleep(1.0)
        clock.jumped = 1e9 - clock.jumped  # wall-clock time decides nothing
        if done == 3:
            leaving.ask(grace)
        if stop(done):
            assert done == stops_after
            return
    assert stops_after is None


def test_a_unit_that_becomes_slower_stops_in_time_for_its_save() -> None:
    clock = HandClock()
    leaving = Leaving(clock)
    stop = leaving.stop(total=10, skip=0, save=lambda: 1.0)
    leaving.ask(16.0)
    for done in range(1, 10):
        clock.sleep(1.0 if done < 3 else 4.0)
        if stop(done):
            break
    assert leaving.left > 1.0, "the save still fits"


def test_the_earliest_deadline_counts() -> None:
    clock = HandClock()
    leaving = Leaving(clock)
    leaving.ask(10.0)
    clock.sleep(4.0)
    leaving.ask(10.0)
    assert leaving.left == 6.0
    leaving.ask(1.0)
    assert leaving.left == 1.0
    assert leaving.wait() == 10.0


def test_signals_may_come_in_a_row_and_within_each_other() -> None:
    leaving = Leaving(HandClock())
    nested = 0

    def handler(*_: object) -> None:
        nonlocal nested
        if nested < 3:
            nested += 1
            os.kill(os.getpid(), signal.SIGUSR1)  # handled before the next line
        leaving.ask(5.0)

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        os.kill(os.getpid(), signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert [leaving.wait() for _ in range(4)] == [5.0] * 4
    leaving.close()
    assert leaving.wait() is None
