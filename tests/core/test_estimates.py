"""Seconds of units, split into a config's share and a node's share."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import replace

import pytest

from cerebro_elastic.core.history.estimates import (
    FORGOTTEN,
    KNOWN,
    OUTLIER,
    learn,
    learn_epoch,
    speed_factor,
    unit_seconds,
)
from cerebro_elastic.core.model.attempts import Visit
from cerebro_elastic.core.model.state import EpochSeconds, SpeedFactor, State, Usage
from cerebro_elastic.core.model.units import CheckpointRef, Phase, Unit

REF = CheckpointRef("u", "d", 1)


def visit(config: str, node: str, seconds: float) -> Visit:
    return Visit(Unit(config, 0, 0), 0, node, 1, None, REF, 1, 1, seconds, 0.0, 0.0)


def learned(visits: Iterable[Visit]) -> State:
    timings: Mapping[str, float] = {}
    speed_factors: Mapping[str, SpeedFactor] = {}
    for each in visits:
        timings, speed_factors = learn(timings, speed_factors, each)
    return State(timings=timings, speed_factors=speed_factors)


CONFIGS = {"c0": 1.0, "c1": 4.0, "c2": 10.0}
NODES = {"a": 1.0, "b": 1.0, "c": 3.0}


def work(units: int, seed: int = 0, noise: float = 0.0) -> list[Visit]:
    rng = random.Random(seed)
    visits = []
    for _ in range(units):
        config, node = rng.choice(list(CONFIGS)), rng.choice(list(NODES))
        visits.append(visit(config, node, CONFIGS[config] * NODES[node] * rng.uniform(1 - noise, 1 + noise)))
    return visits


@pytest.mark.parametrize("seed", range(10))
def test_a_slow_node_is_distinguished_from_large_configs(seed: int) -> None:
    state = learned(work(120, seed))
    for node, factor in NODES.items():
        assert speed_factor(state, node) / speed_factor(state, "a") == pytest.approx(factor, rel=0.05)
        for config, seconds in CONFIGS.items():
            expected = unit_seconds(state, config) * speed_factor(state, node)
            assert expected == pytest.approx(seconds * factor, rel=0.1)


@pytest.mark.parametrize("seed", range(10))
def test_noise_moves_no_factor_far(seed: int) -> None:
    state = learned(work(120, seed, noise=0.2))
    assert speed_factor(state, "c") / speed_factor(state, "a") == pytest.approx(3.0, rel=0.4)
    assert speed_factor(state, "b") / speed_factor(state, "a") == pytest.approx(1.0, rel=0.4)


def test_a_nodes_first_unit_teaches_nothing() -> None:
    assert learned([visit("c0", "a", 50.0)]).timings == {}
    state = learned([visit("c0", "a", 50.0), visit("c0", "a", 1.0), visit("c0", "b", 50.0)])
    assert state.speed_factors["b"] == SpeedFactor(1.0, 1, at=2)
    assert state.timings == {"c0": 1.0}


def test_a_configs_first_visit_says_nothing_about_its_node() -> None:
    """There is nothing to compare it with."""
    assert learned([visit(f"c{i}", "a", 5.0) for i in range(9)]).speed_factors["a"] == SpeedFactor(
        1.0, 1, at=2
    )


def test_one_slow_visit_leaves_the_order_of_configs_as_it_was() -> None:
    work = [visit(f"c{i % 3}", "a", 1.0 + i % 3) for i in range(30)]
    state = learned([*work, visit("c0", "a", 500.0), *work[:6]])
    assert sorted(state.timings, key=state.timings.__getitem__) == ["c0", "c1", "c2"]
    assert speed_factor(state, "a") < 2.0


def test_a_speed_factor_is_forgotten_when_others_have_worked_for_long() -> None:
    slow = [visit("c0", "a", 1.0), visit("c0", "a", 1.0), *(visit("c0", "b", 8.0) for _ in range(KNOWN))]
    # The config's first visit compares nothing, and does not count.
    last, later = len(slow) - 1, [visit("c0", "a", 1.0)] * FORGOTTEN
    known, forgotten = learned([*slow, *later]), learned([*slow, *later, later[0]])
    assert known.speed_factors["b"].at == last
    assert speed_factor(known, "b") == known.speed_factors["b"].factor > 1.0
    assert speed_factor(forgotten, "b") == pytest.approx(forgotten.speed_factors["a"].factor)


def test_a_speed_factor_counts_after_some_units_and_until_then_the_others_do() -> None:
    slow = [visit("c0", "a", 1.0), visit("c0", "a", 1.0), *(visit("c0", "b", 8.0) for _ in range(KNOWN - 1))]
    assert speed_factor(learned(slow), "b") == 1.0
    assert speed_factor(learned([*slow, visit("c0", "b", 8.0)]), "b") > 1.0
    state = State(
        speed_factors={"a": SpeedFactor(2.0, KNOWN), "b": SpeedFactor(8.0, KNOWN), "c": SpeedFactor(9.0, 1)}
    )
    assert speed_factor(state, "c") == speed_factor(state, "new") == pytest.approx(4.0)


def test_estimates_do_not_depend_on_the_order_in_which_they_were_learned() -> None:
    """A host that joins late reads them from etcd in another order than its leader has learned them: to the
    last bit it must expect the same, or `verify` on its record finds another decision."""
    values = [1.1 + 0.37 * n for n in range(12)]
    factors = {f"n{n}": SpeedFactor(value, KNOWN) for n, value in enumerate(values)}
    timings = {f"c{n}": value for n, value in enumerate(values)}
    orders = [random.Random(seed).sample(range(12), 12) for seed in range(50)]
    states = [
        State(
            speed_factors={f"n{n}": factors[f"n{n}"] for n in order},
            timings={f"c{n}": timings[f"c{n}"] for n in order},
        )
        for order in orders
    ]
    assert len({speed_factor(state, "new") for state in states}) == 1
    assert len({unit_seconds(state, "new") for state in states}) == 1


def test_only_whole_training_units_teach_anything() -> None:
    known = learned(work(20))
    usual = visit("c0", "a", 99.0)
    for other in (
        replace(usual, whole=False),
        replace(usual, skip=2),
        replace(usual, unit=Unit("c0", 0, 0, Phase.EVALUATE)),
    ):
        assert learn(known.timings, known.speed_factors, other) == (known.timings, known.speed_factors)


def test_one_unit_that_hung_hardly_changes_what_an_epoch_is_expected_to_take() -> None:
    known, factors = {"c0": EpochSeconds(usual=2.0, last=3.0)}, {"a": SpeedFactor(1.0, KNOWN, 9)}
    hung, short = visit("c0", "a", 600.0), visit("c0", "a", 0.001)
    assert learn_epoch(known, factors, hung, ends=False)["c0"].usual == (2.0 + 2.0 * OUTLIER) / 2
    assert learn_epoch(known, factors, hung, ends=True)["c0"].last == (3.0 + 3.0 * OUTLIER) / 2
    assert learn_epoch(known, factors, short, ends=False)["c0"].usual == (2.0 + 2.0 / OUTLIER) / 2
    validated = replace(hung, unit=Unit("c0", 0, 0, Phase.EVALUATE))
    evaluated = learn_epoch(known, factors, validated, ends=True)
    assert evaluated == {"c0": EpochSeconds(2.0, 3.0, 600.0)}
    assert (
        learn_epoch(evaluated, factors, replace(validated, seconds=1.0), ends=True)["c0"].evaluation == 375.0
    )


def test_impossible_speeds_are_bounded() -> None:
    state = learned(
        [visit("c0", "a", 1.0), visit("c0", "a", 1.0), *(visit("c0", "a", 1e12) for _ in range(9))]
    )
    assert 1 <= state.speed_factors["a"].factor <= 32
    assert learned([visit("c0", "a", 0.0) for _ in range(9)]).timings == {"c0": 0.0}


def test_a_config_without_a_visit_is_like_the_others() -> None:
    assert unit_seconds(State(timings={"c0": 1.0, "c1": 3.0}), "c2") == 2.0
    assert unit_seconds(State(usage=Usage(units=2, seconds=9.0)), "c2") == 4.5
    assert unit_seconds(State(), "c2") == 1.0
