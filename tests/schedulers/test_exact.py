"""CP-SAT, where it is installed; and what is said where it is not, or is asked too much."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pytest

from cerebro_elastic.errors import MissingExtra, ScheduleError
from cerebro_elastic.schedulers import Outage, Surprises, instance, schedule
from cerebro_elastic.testing.schedules import judge

installed = find_spec("ortools") is not None


@pytest.mark.skipif(not installed, reason="needs the extra exact")
def test_it_is_never_worse_than_what_it_starts_from() -> None:
    durations = np.random.default_rng(3).integers(1, 9, (7, 4)).astype(float)
    for problem in (instance(durations), instance(durations, np.ones((4, 3)))):
        begun, found = schedule(problem, seconds=0.01), schedule(problem, "exact", seconds=1)
        judge(problem, found)
        assert found.makespan <= begun.makespan


@pytest.mark.skipif(installed, reason="the extra exact is installed")
def test_without_the_extra_it_says_what_to_install() -> None:
    with pytest.raises(MissingExtra, match=r"cerebro-elastic\[exact\]"):
        schedule(np.ones((3, 2)), "exact", seconds=0.01)


def test_what_it_cannot_do_is_refused() -> None:
    with pytest.raises(ScheduleError, match="no surprises"):
        schedule([[1.0]], "exact", surprises=Surprises(outages=[Outage(0, 1.0)]))
    with pytest.raises(ScheduleError, match="one epoch of up to"):
        schedule(instance([[1.0]], epochs=2), "exact")
    with pytest.raises(ScheduleError, match="no costs of hops"):
        schedule(instance([[1.0, 1.0]], hop=1.0), "exact")
