"""Configs take over what an earlier run has made: when that is possible, and which invariants catch a wrong
history."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from cerebro_elastic.core.history.lineage import born
from cerebro_elastic.core.history.machine import fold
from cerebro_elastic.core.history.progress import advance
from cerebro_elastic.core.history.view import RunView
from cerebro_elastic.core.invariants import check
from cerebro_elastic.core.model.attempts import Visit
from cerebro_elastic.core.model.configs import Config, Status
from cerebro_elastic.core.model.events import Event, UnitCommitted, UnitsReused
from cerebro_elastic.core.model.reuse import standing
from cerebro_elastic.core.model.run import Plan
from cerebro_elastic.core.model.state import State
from cerebro_elastic.core.model.units import CheckpointRef, PartialUnit, Strategy
from cerebro_elastic.errors import IllegalEvent
from cerebro_elastic.scheduling.longest_remaining import LongestRemaining
from cerebro_elastic.simulation import redecide
from support.walks import STEPS, Steps, walk
from support.world import RestlessSearch, World

POLICY = LongestRemaining()
PLAN = Plan("r", 2, 2)


@pytest.fixture(scope="module")
def earlier() -> World:
    world = World(PLAN, 2, POLICY)
    assert world.finish(["a"], 60)
    return world


def reusable(world: World, visits: int) -> dict[str, tuple[Visit, ...]]:
    """What another run may take over: so many visits of each config, in steps of two."""
    steps = {}
    view = RunView(world.trace())
    for config in view.state.configs.values():
        at = born(config)
        own = [replace(v, reused="earlier", attempt=0) for v in view.visits[config.id][:visits]]
        for first in range(0, len(own), 2):
            steps[standing(at)] = tuple(own[first : first + 2])
            for visit in own[first : first + 2]:
                at = advance(at, visit, PLAN)
    return steps


def walked(world: World) -> World:
    assert world.finish(["a", "b"], 80)
    assert world.check() == []
    world.check_fold()
    assert world.ledger.state() == replace(world.folded, revision=world.ledger.state().revision)
    again = redecide(world.events, POLICY, world.search)
    assert again.explanation is None
    assert again.matched == again.total
    return world


@pytest.mark.parametrize("visits", [0, 2, 3, 4])
def test_configs_go_on_from_where_an_earlier_run_left_them(earlier: World, visits: int) -> None:
    world = walked(World(PLAN, 3, POLICY, reusable=reusable(earlier, visits)))
    view, before = RunView(world.events), RunView(earlier.events)
    assert len(view.trained) == 4 * 3 - 2 * visits
    assert sum(isinstance(event, UnitsReused) for event in world.events) == 2 * ((visits + 1) // 2)
    for name in before.visits:
        digests = [visit.output.digest for visit in view.visits[name]]
        theirs = [visit.output.digest for visit in before.visits[name]]
        assert digests[:visits] == theirs[:visits]
        curve, of_earlier = view.state.curves[name], before.state.curves[name]
        assert curve[:visits] == of_earlier[:visits]
    assert view.state.usage.units == len(view.trained), "what nobody has trained here took no time"


@pytest.mark.parametrize("seed", range(12))
def test_in_a_storm_a_config_is_trained_or_taken_over_and_never_both(earlier: World, seed: int) -> None:
    rng = random.Random(seed)
    search = rng.choice([RestlessSearch, type(earlier.search)])
    world = World(PLAN, 3, POLICY, search=search, reusable=reusable(earlier, rng.randrange(1, 5)))
    people: Steps = {
        "stop": (8, lambda world, rng, _: world.stop(rng.randrange(4))),
        "clone": (8, lambda world, rng, _: world.clone(rng.randrange(4))),
    }
    for _ in range(6):
        walk(world, rng, 10, STEPS | people)
        assert world.check() == []
        world.check_fold()
    walked(world)


def events(earlier: World) -> tuple[list[Event], State, UnitsReused]:
    """A history up to where a config takes over what an earlier run has made, and that event."""
    history = World(PLAN, 2, POLICY, reusable=reusable(earlier, 4))
    assert history.finish(["a"], 60)
    trace = history.trace()
    place = next(n for n, event in enumerate(trace) if isinstance(event, UnitsReused))
    state = State()
    for event in trace[:place]:
        state = fold(state, event)
    found = trace[place]
    assert isinstance(found, UnitsReused)
    return trace[:place], state, found


def forged(visits: tuple[Visit, ...]) -> Iterator[tuple[str, tuple[Visit, ...]]]:
    first, *rest = visits
    yield "no earlier run", (replace(first, reused=""), *rest)
    yield "strategy", (replace(first, strategy=Strategy("ddp", 2, 2)), *rest)
    yield "isolation", tuple(rest)
    yield "completeness", (first, first)
    yield "isolation", (replace(first, input=CheckpointRef("mem:x", "x", 1)), *rest)
    yield "no visit", ()


def test_the_machine_refuses_what_cannot_have_been_taken_over(earlier: World) -> None:
    _, state, event = events(earlier)
    fold(state, event)
    for why, visits in forged(event.visits):
        with pytest.raises(IllegalEvent, match=why):
            fold(state, UnitsReused(event.revision, visits))


def test_the_invariants_catch_it_as_well(earlier: World) -> None:
    before, _, event = events(earlier)
    assert check([*before, event]) == []
    caught = []
    for _, visits in list(forged(event.visits))[:5]:
        found = check([*before, UnitsReused(event.revision, visits)]) if visits else []
        caught.append({violation.invariant for violation in found})
    assert [bool(each) for each in caught] == [True, False, True, True, True]
    as_trained = [*before, UnitCommitted(event.revision, event.visits[0])]
    assert {"isolation", "fencing"} <= {violation.invariant for violation in check(as_trained)}


def test_where_a_config_stands_is_all_that_its_next_unit_depends_on() -> None:
    one = Config("c0000", {"lr": 0.1})
    assert standing(one) == standing(replace(one, id="c0009", status=Status.STOPPED, reason="x", revision=7))
    elsewhere = CheckpointRef("mem:elsewhere", "d", 1)
    at = replace(one, head=CheckpointRef("mem:d", "d", 1))
    assert standing(at) == standing(replace(at, head=elsewhere))
    others = [
        replace(one, hparams={"lr": 0.2}),
        replace(one, hparams={"lr": 0.1, "width": 1}),
        replace(at, epoch=1),
        replace(at, visited=(0, 1)),
        replace(at, visited=(1, 0)),
        replace(at, evaluated=(0,)),
        replace(at, partial_unit=PartialUnit(0, 1)),
    ]
    assert len({standing(config) for config in (one, at, *others)}) == 2 + len(others)
