"""``exact`` of live runs follows the orders that it is given. ``test_exact.py`` tests the solver."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from cerebro_elastic.core.model.events import Ordered, UnitAssigned, UnitCommitted
from cerebro_elastic.core.model.interfaces import RemainingWork, SchedulingContext
from cerebro_elastic.core.model.run import Plan
from cerebro_elastic.core.model.units import Order, Unit
from cerebro_elastic.simulation import redecide
from cerebro_planner import policy as exact
from cerebro_planner.policy import Exact
from support.world import FixedSearch, World

LEFT = RemainingWork(
    nodes={"a": 0.0, "b": 0.0},
    configs={"x": 0.0, "y": 0.0, "z": 0.0},
    seconds={"x": [2.0, 2.0], "y": [2.0, 2.0], "z": [2.0, 2.0]},
    undone={"x": [0, 1], "y": [0, 1], "z": [0, 1]},
    later={"x": 0, "y": 0, "z": 0},
    holders=[["a"], ["b"]],
    epochs={"x": 3, "y": 3, "z": 3},
)
ORDER: Order = (
    *(("a", "z", 3, 0), ("b", "y", 3, 1), ("a", "x", 3, 0)),
    *(("b", "z", 3, 1), ("a", "y", 3, 0), ("b", "x", 3, 1)),
)


def chosen(left: RemainingWork) -> dict[str, str]:
    """By idle node the config that it takes; all idle configs are eligible where they are not done."""
    idle = [node for node, at in left.nodes.items() if not at]
    partition = {"a": 0, "b": 1}
    eligible = {
        node: [
            Unit(config, 3, partition[node])
            for config, at in left.configs.items()
            if not at and partition[node] in left.undone[config]
        ]
        for node in idle
    }
    moment = SchedulingContext(eligible, {}, {}, lambda _unit, _node: 1.0, remaining_work=lambda: left)
    return {node: unit.config for node, unit in Exact().choose(moment)}


def test_the_order_is_followed() -> None:
    assert chosen(LEFT) == {"a": "x", "b": "y"}, "by itself it begins with the first of equals"
    assert chosen(replace(LEFT, order=ORDER)) == {"a": "z", "b": "y"}


def test_finished_units_are_skipped_and_a_stale_order_is_ignored() -> None:
    later = replace(LEFT, undone={"x": [0, 1], "y": [0], "z": [1]}, order=ORDER)
    assert chosen(later) == {"a": "x", "b": "z"}
    old = tuple((node, config, 2, partition) for node, config, _, partition in ORDER)
    gone = (("gone", "x", 3, 0), ("a", "gone", 3, 0))
    for order in (old, gone):
        assert chosen(replace(LEFT, order=order)) == chosen(LEFT)


def test_where_the_order_has_become_bad_it_is_left() -> None:
    """It would have ``b`` wait for ``z``, which now takes much longer on ``a``."""
    order = (("a", "z", 3, 0), ("b", "z", 3, 1), ("b", "y", 3, 1), ("a", "y", 3, 0), *ORDER[2:3], *ORDER[5:])
    slow = replace(LEFT, seconds={**LEFT.seconds, "z": [50.0, 2.0]}, order=order)
    assert chosen(slow)["b"] != "z"
    assert chosen(slow).keys() == {"a", "b"}


# ``long`` must go on at once on ``b``, and then on ``c``.
BUSY = RemainingWork(
    nodes={"a": 1.0, "b": 0.0, "c": 10.0},
    configs={"long": 1.0, "short": 0.0, "last": 10.0},
    seconds={"long": [9.0] * 3, "short": [5.0] * 3, "last": [9.0] * 3},
    undone={"long": [1, 2], "short": [0, 1], "last": []},
    later={"long": 0, "short": 0, "last": 0},
    holders=[["a"], ["b"], ["c"]],
    epochs={"long": 3, "short": 3, "last": 3},
)


def test_a_node_waits_for_what_is_next_as_long_as_that_is_under_way() -> None:
    order: Order = (
        *(("b", "long", 3, 1), ("a", "short", 3, 0)),
        *(("c", "long", 3, 2), ("b", "short", 3, 1)),
    )
    assert chosen(BUSY) == {"b": "short"}
    assert chosen(replace(BUSY, order=order)) == {}, "19 seconds in all, not 23"
    now = replace(BUSY, nodes={"a": 0.0, "b": 0.0, "c": 9.0}, configs={**BUSY.configs, "long": 0.0})
    assert chosen(replace(now, order=order)) == {"a": "short", "b": "long"}


def test_the_solver_is_called_only_where_it_can_help() -> None:
    due = Exact().due
    assert due(None, LEFT)
    assert not due(LEFT, LEFT)
    assert not due(None, replace(LEFT, guessed=["x"])), "the seconds of x are unknown"
    lost = replace(LEFT, nodes={"a": 0.0})
    assert due(LEFT, lost)
    assert due(lost, LEFT)
    fewer = {name: LEFT.configs[name] for name in "xy"}
    assert due(LEFT, replace(LEFT, configs=fewer)), "one was stopped"
    ended = replace(LEFT, undone={**LEFT.undone, "z": []})
    assert not due(ended, replace(ended, configs=fewer)), "it has come to its end"
    for seconds, drifted in ((2.1, False), (3.0, True), (1.0, True)):
        now = replace(LEFT, seconds={**LEFT.seconds, "x": [seconds, seconds]})
        assert due(LEFT, now) is drifted
    half = {"x": [0, 1], "y": [0], "z": []}
    assert not due(LEFT, replace(LEFT, undone=half))
    assert due(LEFT, replace(LEFT, undone={**half, "y": []}))


def test_the_solver_gets_as_many_epochs_as_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    left = replace(
        LEFT,
        seconds={"x": [3.0, 4.0], "y": [2.0, 2.0], "z": [3.0, 2.0]},
        undone={**LEFT.undone, "x": [1]},
        later={"x": 1, "y": 1, "z": 0},
    )
    monkeypatch.setattr(exact, "WORTH", -1.0)  # there is nothing to gain here
    policy = Exact()
    whole = policy.question(left, 0)
    assert whole is not None
    assert len(whole["units"]) == 5 + 4
    assert not any([*whole["node_tail"], *whole["config_tail"]])
    monkeypatch.setattr(exact, "UNITS", 8)
    present = policy.question(left, 0)
    assert present is not None
    assert len(present["units"]) == 5
    beyond = [tail / present["config_tail"][0] for tail in present["config_tail"]]
    assert beyond == pytest.approx([1, 4 / 7, 0], abs=1e-4), "x and y have an epoch more"
    monkeypatch.setattr(exact, "UNITS", 4)
    assert policy.question(left, 0) is None


class Unasked(Exact):
    """Its solver is never called: orders come from outside."""

    def due(self, before: RemainingWork | None, left: RemainingWork) -> bool:
        del before, left
        return False


@pytest.mark.parametrize("seed", range(3))
def test_with_any_orders_a_run_ends_and_is_decided_again(seed: int) -> None:
    rng = random.Random(seed)
    plan = Plan("r", partitions=3, epochs=2, min_nodes=2, max_nodes=3, seed=seed)
    world = World(plan, 4, Unasked())
    world.elect()
    for name in "ab":
        world.join(name)
    for step in range(60):
        units = [("abc"[k % 3], f"c{i:04d}", e, k) for i in range(4) for e in range(2) for k in range(3)]
        world.order(tuple(rng.sample(units, rng.randrange(len(units)))))
        if step in (20, 40):
            world.join("c") if step == 20 else world.lose("a")
        for _ in range(4):
            world.control()
        for name in "abc":
            world.start(name)
        if rng.random() < 0.5:
            world.trained(rng.randrange(3))
        world.commit(rng.randrange(3))
        assert world.check() == []
        world.check_fold()
    events = world.trace()
    assert sum(isinstance(event, Ordered) for event in events) == 60
    begun, done = (sum(isinstance(e, kind) for e in events) for kind in (UnitAssigned, UnitCommitted))
    assert begun >= done > 5
    assert redecide(events, Unasked(), FixedSearch(world.search.points)).explanation is None
    assert world.finish("b", 60)
