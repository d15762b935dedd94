"""A search's knowledge of other runs, and the starts of its configs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from cerebro_elastic.core.decisions.decide import decide
from cerebro_elastic.core.decisions.observing import observe
from cerebro_elastic.core.history.machine import fold
from cerebro_elastic.core.model.configs import Parent
from cerebro_elastic.core.model.events import ConfigCreated, RunOpened
from cerebro_elastic.core.model.interfaces import ConfigView, Search, SearchContext, Stop
from cerebro_elastic.core.model.run import Plan
from cerebro_elastic.core.model.state import Point, State
from cerebro_elastic.core.model.units import CheckpointRef
from cerebro_elastic.errors import RecipeError
from cerebro_elastic.recipes import Recipe
from cerebro_elastic.runs.from_recipe import make_search, start_of
from cerebro_elastic.scheduling.longest_remaining import LongestRemaining
from cerebro_elastic.testing.search_contract import check_search
from support import builders

DIGEST = "d" * 64
START = {"checkpoint": "/a/state", "digest": DIGEST, "epoch": 3, "hparams": {"lr": 0.5}}
SPACE = {"lr": {"uniform": [0, 1]}}


def recipe(epochs: int = 1, **search: Any) -> Recipe:
    return builders.recipe({"space": SPACE, **search}, epochs=epochs)


def trial(lr: float, *losses: float, finished: bool = True) -> dict[str, Any]:
    return {"hparams": {"lr": lr}, "curve": [{"val_loss": loss} for loss in losses], "finished": finished}


def first(search: Search, nodes: int = 8) -> list[float]:
    return [p.hparams["lr"] for p in search.propose(SearchContext(nodes=nodes))]


def test_tpe_learns_from_known_results() -> None:
    good = 0.2
    known = [trial(x / 20, (x / 20 - good) ** 2) for x in range(20)]
    near = first(make_search(recipe(method="tpe", num=8, known=known)))
    blind = first(make_search(recipe(method="tpe", num=8)))
    assert len(near) == len(blind) == 8, "what is known is no config of this search"
    assert sum(abs(x - good) < 0.15 for x in near) > sum(abs(x - good) < 0.15 for x in blind) + 2


@pytest.mark.parametrize("method", ["tpe", "random", "qmc"])
def test_a_search_with_knowledge_keeps_the_contract(method: str) -> None:
    known = [trial(0.5, 0.3, 0.2), trial(0.25, 0.9, finished=False)]
    warm = recipe(epochs=9, method=method, num=6, known=known)
    check_search(lambda: make_search(warm), seed=1, most=6)
    assert not {0.5, 0.25} & set(first(make_search(warm)))


def test_a_grid_leaves_out_known_points() -> None:
    grid = make_search(recipe(space={"lr": [0.1, 0.2, 0.3]}, known=[trial(0.2, 1.0)]))
    assert first(grid) == [0.1, 0.3]
    with pytest.raises(RecipeError, match="every point of the grid is known already"):
        make_search(recipe(space={"lr": [0.1]}, known=[trial(0.1, 1.0)]))


def test_rungs_count_from_where_configs_begin() -> None:
    search = make_search(recipe(epochs=12, method="asha", num=9, start=START))

    def view(place: int, losses: Sequence[float]) -> ConfigView:
        curve = [Point(2 * e, e, {"val_loss": loss}, ends=True) for e, loss in enumerate(losses, start=4)]
        done = 3 + len(losses)
        return ConfigView(f"c{place:04d}", {"lr": place / 10}, epochs=done, units=2 * done, curve=curve)

    def stopped(*curves: Sequence[float]) -> list[str]:
        configs = [view(place, losses) for place, losses in enumerate(curves)]
        decisions = search.decide(SearchContext(configs, partitions=2, epochs=12))
        return [decision.config for decision in decisions if isinstance(decision, Stop)]

    assert stopped((), (), ()) == [], "they have just begun"
    assert stopped([0.3], [0.1], [0.2]) == ["c0000", "c0002"], "one epoch of their own"
    assert stopped([0.1, 0.1], [0.3, 0.3], [0.2, 0.2]) == [], "no rung at two"


def test_all_proposals_begin_with_the_checkpoint() -> None:
    warm = recipe(epochs=12, method="random", num=2, start=START)
    start = start_of(warm)
    assert start == Parent("", CheckpointRef("/a/state", DIGEST, 0), 3, "", hparams={"lr": 0.5})
    plan = Plan("r", partitions=2, epochs=12, start=start)
    state = fold(State(), RunOpened(1, plan))
    for revision, action in enumerate(decide(state, LongestRemaining(), make_search(warm)), start=2):
        assert isinstance(action, ConfigCreated)
        state = fold(state, ConfigCreated(revision, action.config))
    configs = state.configs.values()
    assert [(c.epoch, c.head) for c in configs] == [(3, start.checkpoint)] * 2
    assert [s.parent for s in observe(state, plan).configs] == [None, None], "no child of another config"
