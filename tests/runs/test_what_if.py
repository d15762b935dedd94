"""What would become of a run is simulated from its present state."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from cerebro_elastic import Recipe, Run, load_recipe
from cerebro_elastic.cli.what_if import _show
from cerebro_elastic.core.history.view import RunView
from cerebro_elastic.core.model.events import Event, NodeLeft, UnitCommitted
from cerebro_elastic.errors import RunError
from cerebro_elastic.runs.forecast.prices import PriceTrace, Segment, read_prices
from cerebro_elastic.runs.forecast.simulate import simulate
from cerebro_elastic.runs.forecast.spot import NodeCount, Played, SpotPlan, cheapest, cost_of, least_cost
from cerebro_elastic.runs.forecast.what_if import Change, Forecaster, WhatIf, read_deadline
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
        outlook = Forecaster(cut(events, now), of, now).answer(Change(), None).as_it_is
        assert outlook.ends is not None
        assert abs(outlook.ends - ended) < 0.1 * (ended - BEGIN), share


@pytest.fixture(scope="module")
def half() -> tuple[Forecaster, float]:
    """A run of which half is done, and when it ends."""
    of = recipe(**GRID)
    events, ended = played(of)
    now = (BEGIN + ended) / 2
    return Forecaster(cut(events, now), of, now), ended


def ends(forecaster: Forecaster, **change: Any) -> float:
    changed = forecaster.answer(Change(**change), None).answer
    assert changed.ends is not None
    return changed.ends


def test_lost_nodes_make_it_longer_and_new_nodes_and_stops_shorter(half: tuple[Forecaster, float]) -> None:
    forecaster, _ = half
    as_it_is = ends(forecaster)
    assert ends(forecaster, add=1) < as_it_is < ends(forecaster, lose=("node-0",))
    assert ends(forecaster, stop=("c0001", "c0004")) < as_it_is
    assert forecaster.answer(Change(("node-0", "node-1")), None).answer.ends is None


def test_a_deadline_that_is_missed_comes_with_the_least_that_meets_it(half: tuple[Forecaster, float]) -> None:
    forecaster, _ = half
    now, end = (forecaster.answer(Change(), None).now, ends(forecaster))
    held = forecaster.answer(Change(), end + 1)
    assert (held.answer.meets(end + 1), held.remedies) == (True, ())
    sooner = now + 0.7 * (end - now)
    missed = forecaster.answer(Change(), sooner)
    more, fewer = missed.remedies
    assert (more.meets(sooner), more.change.add > 0, more.change.stop) == (True, True, ())
    assert ends(forecaster, add=more.change.add - 1) > sooner
    assert (fewer.meets(sooner), fewer.change.add) == (True, 0)
    assert ends(forecaster, stop=fewer.change.stop[:-1]) > sooner
    assert forecaster.answer(Change(), now + 1).remedies == ()


@pytest.mark.parametrize("more", [{"validation": {"folds": 2, "early_stop": False}}, {"repeats": 2}])
def test_a_config_is_stopped_with_all_of_its_trainings(more: dict[str, Any]) -> None:
    of = recipe(more, **GRID)
    events, ended = played(of)
    now = (BEGIN + ended) / 2
    forecaster = Forecaster(cut(events, now), of, now)
    as_it_is = forecaster.answer(Change(), None).answer
    assert as_it_is.ends is not None
    assert as_it_is.finished == 5
    sooner = now + 0.7 * (as_it_is.ends - now)
    fewer = forecaster.answer(Change(), sooner).remedies[-1]
    assert fewer.meets(sooner)
    assert fewer.finished == 5 - len(fewer.change.stop)
    with pytest.raises(RunError, match=r"has no config 'c9'; .*c0004$"):
        forecaster.answer(Change(stop=("c9",)), None)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lose": ("node-9",)}, "has no node 'node-9'; did you mean 'node-1'"),
        ({"stop": ("c9",)}, "has no config 'c9'"),
        ({"add": 4}, "the run would use 2 of these: it uses at most 4 nodes"),
        ({"add": -1}, "add is -1: give a number from 0 to 1000"),
    ],
)
def test_a_change_that_cannot_be_is_refused(
    half: tuple[Forecaster, float], change: dict[str, Any], message: str
) -> None:
    with pytest.raises(RunError, match=message):
        half[0].answer(Change(**change), None)


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
    answer = run.what_if(stop=["c0001"], deadline="1h")
    assert answer.changed is not None
    assert (answer.as_it_is.units, answer.changed.units) == (5, 1), "of 8 units 3 are done"
    assert answer.deadline is not None
    assert answer.changed.meets(answer.deadline)
    assert answer.now <= time.time()
    run.stop("c0001")
    with pytest.raises(RunError, match="config 'c0001' is stopped already: stop live ones"):
        run.what_if(stop=["c0001"])


@pytest.fixture(scope="module")
def priced(half: tuple[Forecaster, float]) -> tuple[WhatIf, PriceTrace, float]:
    """What is planned for the same run, if it has four times the time that it needs, in eight parts of which
    one is cheap; and its deadline."""
    forecaster, ended = half
    now = forecaster.answer(Change(), None).now
    step = (ended - now) / 2
    prices = [1.0, 1.0, 0.9, 1.0, 0.2, 0.8, 1.0, 1.0, 1.0]
    trace = PriceTrace([now + step * n for n in range(9)], prices)
    of = recipe(**GRID)
    events, _ = played(of)
    deadline = now + 8 * step
    return Forecaster(cut(events, now), of, now, trace).answer(Change(), deadline), trace, deadline


def test_nodes_come_when_they_are_cheap_and_the_deadline_is_met(
    priced: tuple[WhatIf, PriceTrace, float],
) -> None:
    answer, trace, deadline = priced
    plan = answer.plan
    assert plan is not None
    assert plan.ends <= deadline
    begins = [count.begins for count in plan.counts]
    assert begins == sorted(begins)
    assert plan.counts[0].begins == answer.now
    assert sum(count.change for count in plan.counts) + 2 == plan.counts[-1].nodes
    busiest = max(plan.counts, key=lambda count: count.nodes)
    assert (busiest.nodes, busiest.price) == (4, 0.2)
    assert answer.as_it_is.cost is not None
    segments = trace.segments(answer.now, deadline)
    node_seconds = 2 * (answer.as_it_is.ends - answer.now) if answer.as_it_is.ends else 0.0
    least = least_cost(segments, 4, 0.9 * node_seconds)
    assert least < plan.cost < 0.6 * answer.as_it_is.cost


@pytest.mark.parametrize(
    ("budget", "why"),
    [
        ({"cost": 1e6, "price_per_node_hour": 1}, ""),
        ({"cost": 0.01, "price_per_node_hour": 1}, "it costs "),
        ({"timeout": 1e6}, ""),
        ({"timeout": 100}, "it has nodes for "),
        ({"deadline": "1970-01-12T13:48:00Z"}, "it ends after the recipe's deadline"),
    ],
)
def test_a_plan_for_which_the_budget_is_not_enough_says_so(
    priced: tuple[WhatIf, PriceTrace, float],
    budget: dict[str, Any],
    why: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    answer, _, _ = priced
    assert answer.exceeds == ()
    assert answer.plan is not None
    events, _ = played(recipe(**GRID))
    bounded = Forecaster(cut(events, answer.now), recipe(budget=budget, **GRID), answer.now)
    _show(replace(answer, exceeds=bounded.exceeded(answer.plan)))
    assert ("The run's budget is not enough: " + why in capsys.readouterr().out) == bool(why)


def test_the_present_time_without_nodes_takes_nothing_of_the_budget(half: tuple[Forecaster, float]) -> None:
    now = half[0].answer(Change(), None).now
    before, later = cut(played(recipe(**GRID))[0], now), now + 86400
    state = RunView(before).state
    gone = [NodeLeft(state.revision + n, name) for n, name in enumerate(state.nodes, start=1)]
    of = recipe(budget={"timeout": state.usage.elapsed + 100}, **GRID)
    for takes, enough in ((99, True), (101, False)):
        plan = SpotPlan([NodeCount(later, 2, 0.5)], later + takes, 1.0)
        assert (Forecaster([*before, *gone], of, later).exceeded(plan) == ()) == enough


def test_nobody_waits_for_a_price_that_stays(priced: tuple[WhatIf, PriceTrace, float]) -> None:
    answer, _, deadline = priced
    of = recipe(**GRID)
    events, _ = played(of)
    same = PriceTrace([answer.now, deadline], [0.3, 0.3])
    plan = Forecaster(cut(events, answer.now), of, answer.now, same).answer(Change(), deadline).plan
    assert plan is not None
    assert plan.counts[0].nodes > 0


def test_a_run_without_nodes_keeps_a_reserve(priced: tuple[WhatIf, PriceTrace, float]) -> None:
    answer, _, deadline = priced
    of = recipe(**GRID)
    events, _ = played(of)
    half = cut(events, answer.now)
    state = RunView(half).state
    gone = [NodeLeft(state.revision + n, name) for n, name in enumerate(state.nodes, start=1)]
    falling = PriceTrace([answer.now + (deadline - answer.now) * n / 8 for n in range(9)], [*range(9, 0, -1)])
    plan = Forecaster([*half, *gone], of, answer.now, falling).answer(Change(), deadline).plan
    assert plan is not None
    assert plan.counts[0].nodes == 0
    assert plan.ends < deadline - 2 * max(visit.seconds for visit in RunView(events).log)


def test_a_deadline_that_no_nodes_meet_has_no_plan(priced: tuple[WhatIf, PriceTrace, float]) -> None:
    answer, trace, _ = priced
    of = recipe(**GRID)
    events, _ = played(of)
    soon = Forecaster(cut(events, answer.now), of, answer.now, trace).answer(Change(), answer.now + 5)
    assert (soon.plan, soon.remedies) == (None, ())


def test_a_node_that_has_nothing_left_to_do_leaves_at_the_price_of_then() -> None:
    def play(counts: Sequence[NodeCount]) -> Played:
        whole = all(count.nodes for count in counts)
        return Played(15.0, [(0.0, 5.0), (0.0, 15.0)], [5.0, 14.0]) if whole else Played(None, (), ())

    plan = cheapest(play, [Segment(0.0, 10.0, 0.5), Segment(10.0, 20.0, 0.9)], 20.0, [2], 20.0)
    assert plan is not None
    assert plan.counts == [NodeCount(0.0, 2, 0.5), NodeCount(5.0, 1, 0.5)], (
        "one stays until the run has ended"
    )


HOURS = [f"2026-12-01T{hour:02}:00Z" for hour in range(8)]


def trace_of(tmp_path: Path, *rows: str, header: str = "time,price") -> PriceTrace:
    file = tmp_path / "prices.csv"
    file.write_text("\n".join([header, *rows]))
    return read_prices(file)


def test_a_price_holds_until_the_next_row(tmp_path: Path) -> None:
    trace = trace_of(
        tmp_path, f"{HOURS[0]}, 0.3", f"{HOURS[1]},0.5", "", f"{HOURS[3]},9", header="time, price"
    )
    first = trace.times[0]
    found = trace.segments(first + 1800, first + 9000, most=0.4)
    assert found == [
        Segment(first + 1800, first + 3600, 0.3),
        Segment(first + 3600, first + 9000, 0.4),
    ]
    assert cost_of([(first + 1800, first + 12_600)], found) == pytest.approx(0.15 + 0.4 * 2.5)
    trace.check_covers(first, first + 10_800, "the trace")
    with pytest.raises(
        RunError, match=r"the trace begins at 2026-.*, and it is .*: add a row with the present"
    ):
        trace.check_covers(first - 1, first, "the trace")
    with pytest.raises(RunError, match=r"before the deadline, .*: add the prices that you expect"):
        trace.check_covers(first, first + 10_801, "the trace")
    hourly = (f"{HOURS[n]},1" for n in range(5))
    assert len(trace_of(tmp_path, *hourly, f"{HOURS[7]},1").times) == 6, "the last row is the trace's end"


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (["time,prize", f"{HOURS[0]},1"], "line 1: there is no column 'prize'; did you mean 'price'"),
        (["time,price,price", f"{HOURS[0]},1,1"], "line 1: the columns are `time,price`, each once"),
        (["price", "1"], "line 1: the columns are"),
        ([], "are empty: give lines such as"),
        (["time,price", f"{HOURS[0]},1"], "has 1 price: give from 2"),
        (["time,price", f"{HOURS[0]},1", f"{HOURS[1]},"], "line 3: the price is missing"),
        (["time,price", f"{HOURS[0]},1", f"{HOURS[1]}"], "line 3: 1 value; give a time and a price"),
        *(
            (["time,price", f"{HOURS[0]},1", f"{HOURS[1]},{bad}"], f"line 3: the price is '{bad}'")
            for bad in ("-0.1", "0", "nan", "inf", "cheap")
        ),
        (["time,price", "noon,1", f"{HOURS[1]},1"], "line 2: the time 'noon' cannot be read"),
        (["time,price", f"{HOURS[1]},1", f"{HOURS[0]},1"], "line 3: .* is not after .*: sort rows"),
        (["time,price", f"{HOURS[1]},1", f"{HOURS[1]},2"], "line 3: .* is not after"),
        (
            ["time,price", *(f"{HOURS[n]},1" for n in (0, 1, 2, 3, 6, 7))],
            "line 6: no price between .* and .*, and rows are 60 minutes apart: fill the gap",
        ),
    ],
)
def test_a_trace_with_an_error_is_refused(tmp_path: Path, rows: Sequence[str], message: str) -> None:
    with pytest.raises(RunError, match=message):
        trace_of(tmp_path, *rows[1:], header=rows[0] if rows else "")
