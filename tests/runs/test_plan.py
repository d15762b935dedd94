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
