"""Forecasts from measured profiles."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cerebro_elastic.core.model.units import Strategy
from cerebro_elastic.recipes import Recipe, load_recipe
from cerebro_elastic.runs.forecast import plan as planning
from cerebro_elastic.runs.forecast.measuring import RecipeMeasurement
from cerebro_elastic.runs.forecast.plan import RunForecast, forecast_run
from cerebro_elastic.runs.from_recipe import plan_of
from cerebro_elastic.training.unit_runner import StrategyCost

SINGLE, PAIR = Strategy(), Strategy("ddp", 2, 2)


def recipe(**values: Any) -> Recipe:
    """Six configs over 1,600 rows in batches of 10, two epochs."""
    return load_recipe(
        {
            "epochs": 2,
            "task": {"kind": "torch", "model_fn": "a:b", "loss": "mse_loss"},
            "data": {"source": "c:d", "batch_size": 10},
            "search": {"space": {"lr": [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]}},
            **values,
        },
        root=Path(),
    )


def measurement(*profiles: StrategyCost, valid: int = 0) -> RecipeMeasurement:
    return RecipeMeasurement(rows=1600, valid=valid, bytes=1_000_000, batch_size=10, profiles=profiles)


def test_a_unit_takes_what_it_takes_besides_its_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "DISPATCH", 0.0)
    (one,) = plan(measurement(tried("c0000", 0.1, fixed_seconds=0.5)), [4], [1]).options
    assert one.seconds == pytest.approx(2 * 6 * (160 * 0.1 + 4 * 0.5))


def tried(config: str, batch: float, strategy: Strategy = SINGLE, **rest: Any) -> StrategyCost:
    return StrategyCost(
        config, strategy, batch, **{"peak_bytes": 5_000_000, "hop_seconds": 0.0, "state_bytes": 1000, **rest}
    )


def plan(measured: RecipeMeasurement, parts: list[int], counts: list[int], **values: Any) -> RunForecast:
    return forecast_run(recipe(**values), measured, parts, counts, lambda _text: None)


def test_units_take_what_their_batches_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """One config in 0.1 s a batch, another in 0.3 s, the others like their mean: 6 x 160 batches an epoch."""
    monkeypatch.setattr(planning, "DISPATCH", 0.0)
    measured = measurement(tried("c0000", 0.1), tried("c0005", 0.3))
    found = plan(measured, [2], [1])
    (one,), (two,) = found.options, plan(measured, [2], [2]).options
    assert one.seconds == pytest.approx(2 * 6 * 160 * 0.2)
    assert two.seconds == pytest.approx(one.seconds / 2, rel=0.02)
    assert (one.gap, one.idle) == (pytest.approx(0.0), pytest.approx(0.0))
    assert one.hours == pytest.approx(one.seconds / 3600)
    assert found.memory == {SINGLE: 5_000_000}
    assert (found.configs, found.stopped) == (6, 0)


def test_epochs_validate_and_states_hop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "DISPATCH", 0.0)
    measured = measurement(tried("c0000", 0.1, hop_seconds=0.5), valid=300)
    (one,) = plan(measured, [2], [1]).options
    assert one.seconds == pytest.approx(2 * 6 * (160 * 0.1 + 2 * 0.5 + 30 * 0.1 / 3))
    behind = measurement(tried("c0000", 0.1, hop_seconds=0.25, save_seconds=0.25), valid=300)
    (one,) = plan(behind, [2], [1]).options
    saved = 0.25  # the last one
    assert one.seconds == pytest.approx(2 * 6 * (160 * 0.1 + 2 * 0.25 + 30 * 0.1 / 3) + saved)


def test_waiting_times_for_data_are_shared_on_a_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 0.1 s a batch, 0.06 are waiting: the first of 6 configs has that, on each of the hosts alone."""
    monkeypatch.setattr(planning, "DISPATCH", 0.0)
    measured = measurement(tried("c0000", 0.1, data_seconds=0.06))
    data = {"source": "c:d", "batch_size": 10, "workers": 1}
    for nodes in (1, 2):
        (one,) = plan(measured, [2], [nodes], data=data).options
        assert one.seconds == pytest.approx(2 * 160 * (0.1 + 5 * 0.04) / nodes, rel=0.1)
    for values in ({"data": {**data, "workers": 0}}, {"data": data, "node": {"batch_cache_bytes": 0}}):
        (one,) = plan(measured, [2], [1], **values).options
        assert one.seconds == pytest.approx(2 * 6 * 160 * 0.1)


def test_strategies_are_compared_and_refused_ones_are_left_out() -> None:
    """Two nodes are worth it together, if there is but one config; three partitions for two pairs."""
    values = {
        "gang": 2,
        "nodes": "1:8",
        "parallelism": ["single", "ddp", "fsdp"],
        "search": {"space": {"lr": [0.1]}},
    }
    refused = StrategyCost("c0000", Strategy("fsdp", 2, 2), refusal="out of memory")
    measured = measurement(tried("c0000", 0.1), tried("c0000", 0.06, PAIR, peak_bytes=7_000_000), refused)
    found = plan(measured, [2], [1, 2], **values)
    assert [(o.candidate.nodes, o.candidate.strategy) for o in found.options] == [(2, PAIR), (1, SINGLE)]
    assert set(found.left_out.values()) == {
        "nodes would be idle: 1 config for 2 units at a time",
        "ddp x2 over 2 nodes takes 2 nodes",
        "fsdp x2 over 2 nodes: c0000: out of memory",
    }
    assert found.memory == {SINGLE: 5_000_000, PAIR: 7_000_000}


def test_the_forecast_counts_configs_that_the_search_stops() -> None:
    search = {"method": "asha", "space": {"lr": {"uniform": [0.1, 0.9]}}, "num": 9}
    found = plan(measurement(tried("c0000", 0.1)), [2], [2], epochs=4, search=search)
    assert found.stopped > 0


@pytest.mark.parametrize(
    ("values", "begun"),
    [
        ({}, 6),
        ({"search": {"method": "random", "num": 3, "space": {"lr": {"uniform": [0, 1]}}}}, 6),
        ({"search": {"space": {"lr": [0.1, 0.2]}, "concurrency": 2}}, 0),
        ({"search": {"method": "asha", "num": 9, "space": {"lr": {"uniform": [0, 1]}}}}, 0),
        ({"data": {"source": "c:d", "workers": 1}}, 0),
        ({"progress": "even"}, 0),
        ({"search": {"space": {"lr": [0.1, 0.2]}, "budget": {"hours": 1}}}, 0),
    ],
)
def test_a_grid_trains_some_configs_at_a_time_unless_they_share_batches(
    values: dict[str, Any], begun: int
) -> None:
    assert plan_of(recipe(**values), "r", 4, 0).begun_per_node == begun


def test_of_many_configs_the_begin_of_the_run_is_simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = measurement(tried("c0000", 0.1), tried("c0005", 0.2))
    grid = {"space": {"lr": [0.001 * i for i in range(1, 61)]}}
    asha = {"method": "asha", "num": 100, "reduction_factor": 2, "space": {"lr": {"uniform": [0, 1]}}}
    whole = [plan(measured, [2], [2], search=search) for search in (grid, asha)]
    monkeypatch.setattr(planning, "MOST_UNITS", 50)
    begun = [plan(measured, [2], [2], search=search) for search in (grid, asha)]
    assert begun[0].best.seconds == pytest.approx(whole[0].best.seconds, rel=0.02)
    assert begun[1].best.seconds == pytest.approx(whole[1].best.seconds, rel=0.2), "it stops by luck"
    assert [each.configs for each in begun] == [each.configs for each in whole] == [60, 100]
    assert [begun[0].communication[n].bytes for n in (0, 1, 3, 4, 5)] == pytest.approx(
        [whole[0].communication[n].bytes for n in (0, 1, 3, 4, 5)], rel=0.02
    )
