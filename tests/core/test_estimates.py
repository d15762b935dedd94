"""Seconds of units, split into a config's share and a node's share."""

from __future__ import annotations

import random
from collections.abc import Iterable

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
from cerebro_elastic.core.model.state import EpochSeconds, SpeedFactor, State
from cerebro_elastic.core.model.units import Phase
from support.builders import visit

CONFIGS = {"c0": 1.0, "c1": 4.0, "c2": 10.0}
NODES = {"a": 1.0, "b": 1.0, "c": 3.0}


def learned(visits: Iterable[Visit]) -> State:
    state = State()
    for each in visits:
        timings, speed_factors = learn(state.timings, state.speed_factors, each)
        state = State(timings=timings, speed_factors=speed_factors)
    return state


def work(units: int, seed: int = 0) -> list[Visit]:
    rng = random.Random(seed)
    pairs = [(rng.choice(list(CONFIGS)), rng.choice(list(NODES))) for _ in range(units)]
    return [visit(config, node=node, seconds=CONFIGS[config] * NODES[node]) for config, node in pairs]


@pytest.mark.parametrize("seed", range(10))
def test_a_slow_node_is_distinguished_from_large_configs(seed: int) -> None:
    state = learned(work(120, seed))
    for node, factor in NODES.items():
        assert speed_factor(state, node) / speed_factor(state, "a") == pytest.approx(factor, rel=0.05)
        for config, seconds in CONFIGS.items():
            expected = unit_seconds(state, config) * speed_factor(state, node)
            assert expected == pytest.approx(seconds * factor, rel=0.1)


def test_a_nodes_first_unit_teaches_nothing() -> None:
    times = [("a", 50.0), ("a", 1.0), ("b", 50.0)]
    state = learned(visit(node=node, seconds=seconds) for node, seconds in times)
    assert state.speed_factors["b"] == SpeedFactor(1.0, 1, at=2)
    assert state.timings == {"c0": 1.0}


def test_a_speed_factor_counts_after_some_units_until_others_have_worked_for_long() -> None:
    usual, slow = visit(node="a"), visit(node="b", seconds=8.0)
    known = [usual, usual, *[slow] * KNOWN]
    assert speed_factor(learned(known[:-1]), "b") == 1.0
    assert speed_factor(learned(known), "b") > 1.0
    # The config's first visit compares nothing, and does not count.
    assert speed_factor(learned([*known, *[usual] * FORGOTTEN]), "b") > 1.0
    forgotten = learned([*known, *[usual] * (FORGOTTEN + 1)])
    assert speed_factor(forgotten, "b") == pytest.approx(forgotten.speed_factors["a"].factor)


def test_estimates_do_not_depend_on_the_order_in_which_they_were_learned() -> None:
    """A host that joins late reads them from etcd in another order than its leader has learned them: to the
    last bit it must expect the same, or `verify` on its record finds another decision."""
    values = {f"x{n}": 1.1 + 0.37 * n for n in range(12)}
    orders = [random.Random(seed).sample(sorted(values), 12) for seed in range(50)]
    states = [
        State(
            speed_factors={name: SpeedFactor(values[name], KNOWN) for name in order},
            timings={name: values[name] for name in order},
        )
        for order in orders
    ]
    assert len({speed_factor(state, "new") for state in states}) == 1
    assert len({unit_seconds(state, "new") for state in states}) == 1


def test_one_unit_that_hung_hardly_changes_what_an_epoch_is_expected_to_take() -> None:
    known, factors = {"c0": EpochSeconds(usual=2.0, last=3.0)}, {"n": SpeedFactor(1.0, KNOWN, 9)}
    hung, short = visit(seconds=600.0), visit(seconds=0.001)
    assert learn_epoch(known, factors, hung, ends=False)["c0"].usual == (2.0 + 2.0 * OUTLIER) / 2
    assert learn_epoch(known, factors, hung, ends=True)["c0"].last == (3.0 + 3.0 * OUTLIER) / 2
    assert learn_epoch(known, factors, short, ends=False)["c0"].usual == (2.0 + 2.0 / OUTLIER) / 2
    validated = visit(phase=Phase.EVALUATE, seconds=600.0)
    assert learn_epoch(known, factors, validated, ends=True) == {"c0": EpochSeconds(2.0, 3.0, 600.0)}
