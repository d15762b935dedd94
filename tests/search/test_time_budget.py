"""A run ends within its time, up to a unit: an epoch that cannot end in it is not begun."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from cerebro_elastic import load_recipe
from cerebro_elastic.core.history.view import RunView
from cerebro_elastic.core.invariants import check
from cerebro_elastic.core.model.configs import Status
from cerebro_elastic.errors import RecipeError
from cerebro_elastic.recipes import Recipe
from cerebro_elastic.runs.forecast.simulate import simulate
from cerebro_elastic.runs.from_recipe import make_search
from cerebro_elastic.runs.start.prepare_run import check_deadline
from cerebro_elastic.scheduling.look_ahead import Auto
from cerebro_elastic.simulation import Times, redecide

BEGIN = 1_000_000.0
SECONDS = 150.0
DEADLINE = datetime.fromtimestamp(BEGIN + SECONDS, UTC).isoformat()


def recipe(budget: dict[str, Any], **search: Any) -> Recipe:
    space = {"lr": {"loguniform": [0.01, 1.0]}}
    task = {"kind": "torch", "model_fn": "a:b", "loss": "cross_entropy", "optimizer": "SGD"}
    data = {"source": "a:b", "partitions": 3}
    given = {"space": space, "budget": budget, **search}
    return load_recipe({"nodes": 2, "epochs": 9, "task": task, "data": data, "search": given})


@pytest.mark.parametrize(
    ("search", "budget"),
    [
        ({"method": "random", "num": 6}, {"hours": SECONDS / 3600}),
        ({"method": "asha", "num": 12}, {"deadline": DEADLINE}),
        ({"method": "pbt", "num": 4}, {"timeout": SECONDS}),
    ],
    ids=["random", "asha", "pbt"],
)
def test_a_run_uses_its_time_and_is_late_by_less_than_a_unit(
    search: dict[str, Any], budget: dict[str, Any]
) -> None:
    of = recipe(budget, **search)
    seconds = {f"c{number:04d}": 3.0 + 5 * number % 7 for number in range(12)}
    times = Times(configs=seconds, hop=0.3, saving=0.2, dispatch=0.1)
    events = simulate(of, seconds=times, start_time=BEGIN).simulation.events
    view = RunView(events)
    longest = max(visit.seconds + visit.hop_seconds for visit in view.log)
    assert 0.8 * SECONDS < view.state.usage.until - BEGIN < SECONDS + longest
    late = [visit for visit in view.log if visit.ended > BEGIN + SECONDS]
    assert len(late) <= 2, "at most one for each node"
    stopped = [config for config in view.state.configs.values() if config.status is Status.STOPPED]
    assert any("its epoch takes" in config.reason for config in stopped)
    assert check(events) == []
    assert redecide(events, Auto(), make_search(of)).explanation is None


def test_a_deadline_keeps_its_time_zone_and_is_not_past() -> None:
    of = recipe({"deadline": "2026-12-01T08:00+01:00"}, method="random", num=2)
    moment = datetime(2026, 12, 1, 7, tzinfo=UTC).timestamp()
    assert of.search.budget.until == moment
    again = load_recipe(of.resolved())
    assert again.search.budget == of.search.budget
    check_deadline(of, moment - 1)
    with pytest.raises(RecipeError, match=r"search.budget.deadline is 2026-.*, which is past: give one"):
        check_deadline(of, moment + 1)
    local = recipe({"deadline": "2026-12-01T08:00"}, method="random", num=2).search.budget.until
    assert local == datetime(2026, 12, 1, 8).timestamp()
