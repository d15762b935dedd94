"""What would become of a run is simulated from its present state."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from cerebro_elastic import Recipe, Run, load_recipe
from cerebro_elastic.core.model.events import Event, UnitCommitted
from cerebro_elastic.errors import RunError
from cerebro_elastic.runs.forecast.live import answer, read_deadline
from cerebro_elastic.runs.forecast.rest import AS_IT_IS, Change, RestOfRun
from cerebro_elastic.runs.forecast.simulate import simulate
from cerebro_elastic.simulation import Times
from cerebro_elastic.store.client.embedded import EmbeddedEtcd
from support.ledger import Ledger
from support.live_record import live_record

BEGIN = 1_000_000.0


def recipe(more: Mapping[str, Any] = MappingProxyType({}), **search: Any) -> Recipe:
    space = {"lr": {"loguniform": [0.01, 1.0]}}
    task = {"kind": "torch", "model_fn": "a:b", "loss": "cross_entropy", "optimizer": "SGD"}
    data = {"source": "a:b", "partitions": 4}
    return load_recipe(
        {
            "nodes": "2:4",
            "epochs": 3,
            "task": task,
            "data": data,
            "search": {"space": space, **search},
            **more,
        }
    )


def played(of: Recipe) -> tuple[Sequence[Event], float]:
    """A run of this recipe whose units and nodes differ, and when it ended."""
    seconds = {f"c{number:04d}": 5.0 + 7 * number % 13 for number in range(20)}
    times = Times(configs=seconds, nodes={"node-1": 1.2}, hop=0.5, saving=0.3, dispatch=0.1)
    events = simulate(of, seconds=times, noise=0.2, start_time=BEGIN).simulation.events
    return events, max(event.visit.ended for event in events if isinstance(event, UnitCommitted))


def cut(events: Sequence[Event], at: float) -> Sequence[Event]:
    """What had happened by then."""
    late = (n for n, e in enumerate(events) if isinstance(e, UnitCommitted) and e.visit.ended > at)
    return events[: next(late)]


GRID = {"method": "random", "num": 5}


def test_the_end_is_forecast_within_a_tenth() -> None:
    of = recipe(**GRID)
    events, ended = played(of)
    for share in (0.25, 0.5, 0.75):
        now = BEGIN + share * (ended - BEGIN)
        outlook = RestOfRun(cut(events, now), of, now).outlook(AS_IT_IS)
        assert outlook.ends is not None
        assert abs(outlook.ends - ended) < 0.1 * (ended - BEGIN), share


@pytest.fixture(scope="module")
def half() -> tuple[RestOfRun, float]:
    """A run of which half is done, and when it ends."""
    of = recipe(**GRID)
    events, ended = played(of)
    now = (BEGIN + ended) / 2
    return RestOfRun(cut(events, now), of, now), ended


def ends(rest: RestOfRun, **change: Any) -> float:
    found = rest.outlook(Change(**change)).ends
    assert found is not None
    return found


def test_lost_nodes_make_it_longer_and_new_nodes_and_stops_shorter(half: tuple[RestOfRun, float]) -> None:
    rest, _ = half
    as_it_is = ends(rest)
    assert ends(rest, add=1) < as_it_is < ends(rest, lose=("node-0",))
    assert ends(rest, stop=("c0001", "c0004")) < as_it_is
    assert rest.outlook(Change(("node-0", "node-1"))).ends is None


def test_a_deadline_that_is_missed_comes_with_the_least_that_meets_it(half: tuple[RestOfRun, float]) -> None:
    rest, _ = half
    now, end = rest.now, ends(rest)
    held = answer(rest, Change(), end + 1)
    assert (held.holds, held.remedies) == (True, ())
    sooner = now + 0.7 * (end - now)
    missed = answer(rest, Change(), sooner)
    more, fewer = missed.remedies
    assert (more.meets(sooner), more.change.add > 0, more.change.stop) == (True, True, ())
    assert ends(rest, add=more.change.add - 1) > sooner
    assert (fewer.meets(sooner), fewer.change.add) == (True, 0)
    assert ends(rest, stop=fewer.change.stop[:-1]) > sooner
    assert answer(rest, Change(), now + 1).remedies == ()


@pytest.mark.parametrize("more", [{"validation": {"folds": 2, "early_stop": False}}])
def test_a_config_is_stopped_with_all_of_its_trainings(more: dict[str, Any]) -> None:
    of = recipe(more, **GRID)
    events, ended = played(of)
    now = (BEGIN + ended) / 2
    rest = RestOfRun(cut(events, now), of, now)
    as_it_is = rest.outlook(AS_IT_IS)
    assert as_it_is.ends is not None
    assert as_it_is.finished == 5
    sooner = now + 0.7 * (as_it_is.ends - now)
    fewer = answer(rest, Change(), sooner).remedies[-1]
    assert fewer.meets(sooner)
    assert fewer.finished == 5 - len(fewer.change.stop)
    with pytest.raises(RunError, match=r"has no config 'c9'; .*c0004$"):
        rest.check(Change(stop=("c9",)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lose": ("node-9",)}, "has no node 'node-9'; did you mean 'node-1'"),
        ({"stop": ("c9",)}, "has no config 'c9'"),
        ({"add": 4}, "the run would use 2 of these: it uses at most 4 nodes"),
        ({"add": -1}, r"nodes is \+-1: give a number from 0 to 1000"),
    ],
)
def test_a_change_that_cannot_be_is_refused(
    half: tuple[RestOfRun, float], change: dict[str, Any], message: str
) -> None:
    with pytest.raises(RunError, match=message):
        half[0].check(Change(**change))


def test_a_deadline_is_a_duration_or_a_moment() -> None:
    assert read_deadline("2h30m", BEGIN) == BEGIN + 9000
    assert read_deadline("1.5d", BEGIN) == BEGIN + 129_600
    now = datetime.fromisoformat("2026-12-01T07:00+01:00").timestamp()
    assert read_deadline("2026-12-01T08:00+01:00", now) == now + 3600
    assert read_deadline("2026-12-01T06:30Z", now) == now + 1800
    for text in ("2026-12-01T07:00+01:00", "2026-11-30", "0h", "0s"):
        with pytest.raises(RunError, match="is past: give one that is to come"):
            read_deadline(text, now)
    for text in ("", "2x", "-2h", "2h 30", "nan", "2026-13-01", "tomorrow", "1e400d", "9" * 400 + "d"):
        with pytest.raises(RunError, match="cannot be read: give a duration"):
            read_deadline(text, now)


@pytest.fixture
def record(etcd: EmbeddedEtcd, tmp_path: Path) -> Iterator[Ledger]:
    with live_record(etcd, tmp_path) as ledger:
        yield ledger


def test_a_live_run_is_asked_by_its_record(record: Ledger, etcd: EmbeddedEtcd) -> None:
    run = Run.open(record.keys.run, store=etcd.settings)
    found = run.plan(stop=["c0001"], deadline="1h")
    assert found.changed is not None
    assert (found.as_it_is.units, found.changed.units) == (5, 1), "of 8 units 3 are done"
    assert found.holds
    assert found.now <= time.time()
    run.stop("c0001")
    with pytest.raises(RunError, match="config 'c0001' is stopped already: stop live ones"):
        run.plan(stop=["c0001"])
