"""A live run in the simulator: decided again, and forecast from what was measured in it."""

from __future__ import annotations

from cerebro_elastic import RunResult
from cerebro_elastic.core.history.view import RunView
from cerebro_elastic.core.invariants import check
from cerebro_elastic.recipes import load_recipe
from cerebro_elastic.reporting.results import leaderboard
from cerebro_elastic.runs.forecast.simulate import simulate
from cerebro_elastic.runs.from_recipe import make_search
from cerebro_elastic.runs.results.verify import redecide_run
from cerebro_elastic.scheduling.longest_remaining import Randomized
from cerebro_elastic.scheduling.look_ahead import Auto
from cerebro_elastic.simulation import Redecision, redecide


def test_a_controller_would_decide_the_same_again(finished: RunResult) -> None:
    search = make_search(finished.recipe)
    assert redecide(finished.events, Auto(), search).explanation is None
    assert redecide(finished.events, Randomized(), search).explanation is not None


def test_verify_makes_the_decisions_again(finished: RunResult) -> None:
    again = redecide_run(finished, 60.0)
    assert again is not None
    assert (again.explanation, again.matched) == (None, again.total)
    assert again.total > 12, "each unit was one"
    assert redecide_run(finished, 0.0) == Redecision(0, again.total)


def test_its_forecast_has_its_results(finished: RunResult) -> None:
    done = simulate(finished.recipe, like=finished).simulation
    objective = finished.recipe.objective
    assert check(done.events) == []
    again = leaderboard(RunView(done.events), objective)
    assert [(row.config, row.best) for row in again] == [(r.config, r.best) for r in finished.leaderboard]
    assert done.seconds > 0


def test_more_nodes_are_faster(finished: RunResult) -> None:
    more = load_recipe(finished.recipe.resolved(), root=finished.recipe.root, nodes=3)
    forecasts = [simulate(recipe, like=finished).simulation.seconds for recipe in (more, finished.recipe)]
    assert forecasts[0] < forecasts[1]
