"""Racing: what is dropped, how often wrongly, and what a race refuses."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cerebro_elastic.core.decisions.decide import observe
from cerebro_elastic.core.history.derived import add_row_losses
from cerebro_elastic.core.model.attempts import Visit
from cerebro_elastic.core.model.configs import Config, Status
from cerebro_elastic.core.model.interfaces import ConfigView, SearchContext, Stop
from cerebro_elastic.core.model.row_losses import MOST, TOP, packed, unpacked
from cerebro_elastic.core.model.run import Plan
from cerebro_elastic.core.model.state import State
from cerebro_elastic.core.model.units import CheckpointRef, PartialUnit, Phase, Unit
from cerebro_elastic.errors import RecipeError
from cerebro_elastic.recipes import Recipe, load_recipe
from cerebro_elastic.search.race import Race, log_wealth

LOSSES = st.floats(0.0, 1.0)
UNIT = (0.0, 1.0)


def losses(*values: float) -> str:
    return packed(values, UNIT, "min")


def recipe(**more: Any) -> Recipe:
    search = {"method": "race", "bounds": [0, 1], "space": {"lr": [0.1, 0.2, 0.3]}, **more.pop("search", {})}
    given = {
        "task": {"kind": "torch", "model_fn": "m:f", "loss": "mse_loss"},
        "data": {"source": "x.npz"},
        "search": {key: value for key, value in search.items() if value is not None},
    }
    return load_recipe({**given, **more})


def decided(*views: ConfigView, **search: Any) -> list[str]:
    decisions = Race(recipe(search=search)).decide(SearchContext(views, partitions=2, epochs=5))
    assert all(isinstance(decision, Stop) for decision in decisions)
    return [decision.config for decision in decisions]


BAD, GOOD = losses(*[0.9] * 100), losses(*[0.1] * 100)
WORSE = ConfigView("c0000", {"lr": 0.1}, row_losses={0: (BAD,)}, measured=0)
BETTER = ConfigView("c0001", {"lr": 0.2}, row_losses={0: (GOOD, GOOD)}, epochs=1, measured=None)


def test_a_config_is_dropped_for_a_better_one_at_the_same_epoch() -> None:
    assert decided(WORSE, BETTER) == ["c0000"]
    assert decided(replace(WORSE, status=Status.FINISHED), BETTER) == []
    assert decided(WORSE, replace(BETTER, status=Status.FAILED)) == []
    assert decided(replace(WORSE, idle=False), BETTER) == []
    assert decided(replace(WORSE, by_hand=True), BETTER) == []
    assert decided(WORSE, replace(BETTER, row_losses={1: (GOOD,)})) == [], "another epoch says nothing"
    assert decided(replace(WORSE, measured=None), BETTER) == [], "its model has been trained since"
    assert decided(WORSE, BETTER, n_warmup_steps=1) == []
    later = [replace(view, row_losses={1: view.row_losses[0]}) for view in (WORSE, BETTER)]
    assert decided(replace(later[0], measured=1), later[1], n_warmup_steps=1) == ["c0000"]


def test_the_last_config_is_never_dropped() -> None:
    views = [replace(WORSE, config=f"c{n:04d}", row_losses={0: (losses(*[n / 10] * 300),)}) for n in range(5)]
    while stopped := decided(*views):
        (name,) = stopped
        views = [replace(v, status=Status.STOPPED) if v.config == name else v for v in views]
    assert [view.config for view in views if view.status is Status.LIVE] == ["c0000"]


@settings(deadline=None)
@given(st.lists(st.tuples(LOSSES, LOSSES), min_size=1, max_size=30))
def test_a_bet_on_rows_in_any_order_gains_nothing_where_the_model_is_not_worse(
    rows: list[tuple[float, float]],
) -> None:
    """A row is drawn of these: the mean wealth after it is at most 1, as for a supermartingale."""
    mine, theirs = zip(*rows, strict=True)
    if math.fsum(mine) > math.fsum(theirs):
        mine, theirs = theirs, mine
    wealth = [log_wealth((losses(a),), (losses(b),)) for a, b in zip(mine, theirs, strict=True)]
    assert math.fsum(map(math.exp, wealth)) / len(wealth) <= 1 + 1e-9


@settings(deadline=None)
@given(st.lists(st.tuples(LOSSES, LOSSES), min_size=1, max_size=20))
def test_what_is_recorded_never_shows_more_than_what_was_measured(rows: list[tuple[float, float]]) -> None:
    mine, theirs = zip(*rows, strict=True)
    stakes = 0.5 ** np.arange(1, 11)
    true = np.log(np.prod(1 + stakes * (np.array(mine) - np.array(theirs))[:, None], axis=0).mean())
    assert log_wealth((losses(*mine),), (losses(*theirs),)) <= true + 1e-9


def test_equally_good_models_are_rarely_distinguished() -> None:
    """Losses that differ by much on few rows, and by little on all others; 20 looks at 500 rows."""
    chance, alpha, wrong = np.random.default_rng(0), 0.2, 0
    for _ in range(200):
        rare = chance.random((20, 25)) < 0.1
        own, theirs = np.where(rare, 1.0, 0.0), np.where(rare, 0.0, 1 / 9)
        parts = [(losses(*a), losses(*b)) for a, b in zip(own.tolist(), theirs.tolist(), strict=True)]
        mine, others = zip(*parts, strict=True)
        wrong += any(log_wealth(mine[:n], others[:n]) >= math.log(1 / alpha) for n in range(1, 21))
    assert 0 < wrong / 200 <= alpha


def test_all_wrong_drops_of_a_run_together_have_probability_delta() -> None:
    search = Race(recipe(search={"delta": 0.1}))
    per_epoch = [3 * 2 * math.exp(-search.needed(epoch)) for epoch in range(10_000)]
    assert 0.0999 < math.fsum(per_epoch) < 0.1


def test_losses_of_rows_are_packed_as_means_of_blocks() -> None:
    assert unpacked(losses(0.0, 1.0, 0.5)) == (0, TOP, round(0.5 * TOP))
    assert unpacked(packed([-9.0, 4.0, math.nan, math.inf], (0, 2), "min")) == (0, TOP, TOP, TOP)
    assert unpacked(packed([0.25, math.nan], UNIT, "max")) == (round(0.75 * TOP), TOP)
    not_finite = [math.inf, -math.inf]
    assert (
        unpacked(packed(not_finite, UNIT, "min")) == unpacked(packed(not_finite, UNIT, "max")) == (TOP, TOP)
    )
    many = unpacked(losses(*[n % 2 for n in range(4 * MOST)]))
    assert len(many) == MOST
    assert set(many) == {round(0.5 * TOP)}
    assert unpacked(losses()) == unpacked("damaged") == unpacked("ZGFtYWdl") == ()
    assert log_wealth((losses(1.0),), ("damaged",)) == -math.inf


PLAN = Plan("r", partitions=2, epochs=3, evaluations=3)
HERE = CheckpointRef("u", "d", 1)


@pytest.mark.parametrize(
    ("config", "measured"),
    [
        (Config("c0", {}), None),
        (Config("c0", {}, visited=(1,), head=HERE), None),
        (Config("c0", {}, visited=(1, 0), head=HERE), 0),
        (Config("c0", {}, epoch=1, head=HERE), 0),
        (Config("c0", {}, epoch=1, head=HERE, partial_unit=PartialUnit(0, 3)), None),
        (Config("c0", {}, epoch=1, visited=(0, 1), evaluated=(0,), head=HERE), 1),
    ],
)
def test_a_search_sees_which_epoch_measures_the_model_as_it_is(config: Config, measured: int | None) -> None:
    known: dict[str, Any] = {}
    for epoch, partition, text in ((0, 1, "b"), (0, 0, "a"), (1, 0, "c"), (1, 2, "d"), (1, 1, "")):
        unit = Unit("c0", epoch, partition, Phase.EVALUATE)
        visit = Visit(unit, 2, "n", 1, HERE, HERE, 1, 1, 1.0, 0.0, 0.0, row_losses=text)
        known = dict(add_row_losses(known, visit))
    state = State(plan=PLAN, configs={"c0": config}, row_losses=known)
    (view,) = observe(state, PLAN).configs
    assert view.measured == measured
    assert view.row_losses == {0: ("a", "b"), 1: ("c",)}


REFUSED: Sequence[tuple[dict[str, Any], str]] = [
    ({"search": {"delta": 0}}, "delta.*greater than 0"),
    ({"search": {"delta": 1.0}}, "delta.*less than 1"),
    ({"search": {"bounds": None}}, "a race needs `bounds`, the range of val_loss for a row"),
    ({"search": {"bounds": [1, 1]}}, "are no range"),
    ({"search": {"bounds": [0, math.inf]}}, "bounds"),
    ({"search": {"sampler": "tpe"}}, "sampler"),
    ({"validation": "epoch"}, "leave `validation` out"),
    ({"objective": {"metric": "train_loss"}}, "name a metric of validation"),
    ({"data": {"source": "x.npz", "valid": 0}}, "hold some out"),
    ({"data": {"source": "x.npz", "split_by": "patient"}}, "rows of a group depend on each other"),
]


@pytest.mark.parametrize(("given", "words"), REFUSED, ids=[words for _, words in REFUSED])
def test_a_race_refuses_what_would_break_its_promise(given: dict[str, Any], words: str) -> None:
    with pytest.raises(RecipeError, match=words):
        Race(recipe(**given))


def test_a_race_has_several_configs_and_validation_partitions() -> None:
    with pytest.raises(RecipeError, match="a race of 2 configs needs as many points"):
        Race(recipe(search={"space": {"lr": [0.1]}}))
    with pytest.raises(RecipeError, match="a race of 4 configs needs as many points"):
        Race(recipe(search={"num": 4}))
    assert (recipe().data.valid_partitions, recipe().validation) == (10, "evaluate")
    accuracy = recipe(search={"bounds": None}, objective={"metric": "val_accuracy", "mode": "max"})
    assert Race(accuracy).needed(0) > 0
