"""A run ends within its time and cost, as far as units take what they took: an epoch that cannot end in them
is not begun."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from cerebro_elastic import load_recipe
from cerebro_elastic.core.history.costs import cost, stays_of
from cerebro_elastic.core.history.view import RunView
from cerebro_elastic.core.invariants import check
from cerebro_elastic.core.model.configs import Status
from cerebro_elastic.recipes import Recipe
from cerebro_elastic.reporting.budget import budget_outlook
from cerebro_elastic.reporting.gap import SearchEnd, gap
from cerebro_elastic.runs.forecast.simulate import simulate
from cerebro_elastic.runs.from_recipe import make_search
from cerebro_elastic.scheduling.look_ahead import Auto
from cerebro_elastic.simulation import Times, redecide
from support import builders
from support.fault_sentences import read_faults

BEGIN = 1_000_000.0
SECONDS = 150.0
DEADLINE = datetime.fromtimestamp(BEGIN + SECONDS, UTC).isoformat()


def recipe(budget: dict[str, Any], **search: Any) -> Recipe:
    given = {"space": {"lr": {"loguniform": [0.01, 1.0]}}, "budget": budget, **search}
    return builders.recipe(given, nodes=2, epochs=9, data={"source": "a:b", "partitions": 3})


@pytest.mark.parametrize(
    ("search", "budget"),
    [
        ({"method": "random", "num": 6}, {"hours": SECONDS / 3600}),
        ({"method": "asha", "num": 12}, {"deadline": DEADLINE}),
        ({"method": "pbt", "num": 4}, {"timeout": SECONDS}),
        ({"method": "random", "num": 6}, {"cost": 2 * SECONDS, "price_per_node_hour": 3600}),
    ],
    ids=["random", "asha", "pbt", "cost of two nodes"],
)
def test_a_run_uses_its_time_and_is_hardly_late(search: dict[str, Any], budget: dict[str, Any]) -> None:
    of = recipe(budget, **search)
    seconds = {f"c{number:04d}": 3.0 + 5 * number % 7 for number in range(12)}
    more = {config: seconds / 2 for config, seconds in seconds.items()}
    times = Times(configs=seconds, validation=more, nodes={"node-1": 1.3}, hop=0.3, saving=0.2, dispatch=0.1)
    events = simulate(of, seconds=times, start_time=BEGIN).simulation.events
    view = RunView(events)
    longest = max(visit.seconds + visit.hop_seconds for visit in view.log)
    assert 0.8 * SECONDS < view.state.usage.until - BEGIN < SECONDS + longest / 4
    stopped = [config for config in view.state.configs.values() if config.status is Status.STOPPED]
    assert any("its epoch takes" in config.reason for config in stopped)
    assert check(events) == []
    assert redecide(events, Auto(), make_search(of)).explanation is None


def test_the_cost_is_that_of_the_nodes_while_they_were_there() -> None:
    of = recipe({"cost": 250, "price_per_node_hour": 3600}, method="random", num=6)
    faults = "kill node-1 at 20 for 30"
    events = simulate(
        of, seconds=Times(usual=4.0, hop=0.1), faults=read_faults(faults), start_time=BEGIN
    ).simulation.events
    view = RunView(events)
    ended = view.state.usage.until
    first, there, back = sorted(view.state.stays.values(), key=lambda stay: (stay.joined, stay.node))
    assert (first.left, back.left, there.node, back.node) == (None, None, "node-1", "node-1")
    assert (there.joined, back.joined) == (BEGIN, BEGIN + 50)
    assert there.left is not None
    assert BEGIN + 20 < there.left < BEGIN + 30, (
        "its lease ends after 5 s, and then a visit is known to have ended"
    )
    paid = (ended - BEGIN) + (there.left - BEGIN) + (ended - back.joined)
    assert cost(stays_of(view.state), 3600, ended) == pytest.approx(paid)
    assert 240 < paid < 252
    assert check(events) == []
    decided = redecide(events, Auto(), make_search(of))
    assert (decided.explanation, decided.matched) == (None, decided.total)
    own = [replace(stay, price=1800.0) for stay in stays_of(view.state)]
    assert cost(own, 3600, ended) == pytest.approx(paid / 2), "a node's own price counts"


@pytest.mark.parametrize(
    ("nodes", "partitions", "epochs", "seconds", "will_finish"),
    [(2, 2, 12, (1.0,), 10), (2, 4, 6, (0.5, 1.0, 1.5), 8)],
)
def test_a_budget_goes_to_configs_that_finish_and_the_forecast_knows_it(
    nodes: int, partitions: int, epochs: int, seconds: tuple[float, ...], will_finish: int
) -> None:
    """Of 24 configs that share batches, the budget suffices for some, and a tenth more."""
    timeout = 1.1 * will_finish * epochs * partitions / nodes
    data = {"source": "a:b", "partitions": partitions, "workers": 1}
    more = {"epochs": epochs, "nodes": nodes, "data": data}
    of = load_recipe({**recipe({"timeout": timeout}, method="random", num=24).resolved(), **more})
    of_configs = {f"c{i:04d}": seconds[i % len(seconds)] for i in range(24)}
    times = Times(configs=of_configs, hop=0.02, dispatch=0.01)
    events = simulate(of, seconds=times, noise=0.1, start_time=BEGIN).simulation.events
    statuses = [config.status for config in RunView(events).state.configs.values()]
    finished = statuses.count(Status.FINISHED)
    assert 0.7 * will_finish <= finished <= will_finish + 1
    assert redecide(events, Auto(), make_search(of)).explanation is None
    for share in (0.3, 0.6, 0.9):
        state, end = RunView(events[: int(share * len(events))]).state, SearchEnd(of.search.budget)
        forecast, outlook = gap(state, end), budget_outlook(state, end)
        assert forecast is not None
        assert outlook is not None
        assert not outlook.holds
        assert forecast.forecast == pytest.approx(timeout, rel=0.05)
        assert f"about {24 - forecast.unfinished} of 24 configs will finish" in outlook.text
        assert abs(24 - forecast.unfinished - finished) <= 0.3 * will_finish + 1
