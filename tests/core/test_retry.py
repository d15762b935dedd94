"""Failed configs are tried again, in a live run and in one that has ended; which invariants catch a wrong
history; and what a search sees of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import optuna
import pytest

from cerebro_elastic.core.history.machine import fold
from cerebro_elastic.core.invariants import check
from cerebro_elastic.core.model.attempts import FailureKind
from cerebro_elastic.core.model.configs import Status
from cerebro_elastic.core.model.events import ConfigResumed, Event, UnitAssigned, UnitFailed
from cerebro_elastic.core.model.run import Plan
from cerebro_elastic.errors import IllegalEvent
from cerebro_elastic.scheduling.longest_remaining import LongestRemaining
from cerebro_elastic.search.study_journal import study_of
from cerebro_elastic.simulation import redecide
from support.builders import recipe
from support.world import World

POLICY = LongestRemaining()


def until_failed(world: World, kind: FailureKind = FailureKind.EXCEPTION) -> None:
    """Config c0000 fails, whatever it tries; others go on meanwhile."""
    for _ in range(40):
        world.pass_time(60.0)
        world.control()
        world.start("a")
        while world.workers:
            if world.workers[0].attempt.unit.config == "c0000":
                world.fail(0, kind)
            else:
                world.commit(0)
        config = world.ledger.config("c0000")
        if config is not None and config.status is Status.FAILED:
            return
    raise AssertionError(world.ledger.state())


def failing(kind: FailureKind = FailureKind.EXCEPTION, **plan: object) -> World:
    """A run of two configs, of which the first has failed."""
    world = World(Plan("r", 2, 1, **plan), 2, POLICY)  # type: ignore[arg-type]
    world.elect()
    world.join("a")
    until_failed(world, kind)
    return world


def tries(events: Sequence[Event]) -> int:
    return sum(isinstance(event, UnitFailed) for event in events)


@pytest.mark.parametrize(("kind", "expected"), [(FailureKind.EXCEPTION, 3), (FailureKind.NOT_FINITE, 1)])
def test_in_a_live_run_its_tries_count_anew_and_it_fails_again_in_the_end(
    kind: FailureKind, expected: int
) -> None:
    world = failing(kind)
    assert tries(world.trace()) == expected
    world.resume(0)
    until_failed(world, kind)
    assert tries(world.trace()) == 2 * expected
    world.resume(0)
    assert world.finish(["a"], 60)
    config = world.ledger.state().configs["c0000"]
    assert config.status is Status.FINISHED
    assert len(config.failures) == 2 * expected, "the record keeps them"
    assert not config.by_hand, "it is the search's as before"
    assert world.check() == []
    world.check_fold()
    assert redecide(world.events, POLICY, world.search).explanation is None


def test_a_run_that_has_ended_goes_on_with_what_has_failed() -> None:
    world = failing()
    assert world.finish(["a"], 60)
    world.extend(0, 0)
    assert world.finish(["a"], 60)
    assert {c.status for c in world.ledger.state().configs.values()} == {Status.FINISHED}
    resumed = [event for event in world.trace() if isinstance(event, ConfigResumed)]
    assert [(event.config, event.reason, event.by_hand) for event in resumed] == [
        ("c0000", "tried again", False)
    ]
    assert world.check() == []
    world.check_fold()
    assert redecide(world.events, POLICY, world.search).explanation is None


def test_only_a_person_has_a_failed_config_tried_again() -> None:
    world = failing()
    state = world.ledger.state()
    by_search = ConfigResumed(state.revision + 1, "c0000", "better after all")
    with pytest.raises(IllegalEvent, match="failed, not stopped"):
        fold(state, by_search)
    found = check([*world.trace(), by_search])
    assert [(v.invariant, "no person" in v.story) for v in found] == [("boundedness", True)]


def test_tries_are_bounded_after_a_retry_as_before() -> None:
    world = failing()
    world.resume(0)
    until_failed(world)
    events = world.trace()
    (again,) = [n for n, event in enumerate(events) if isinstance(event, ConfigResumed)]
    last = [event for event in events[again:] if isinstance(event, UnitAssigned)][-1]
    once_more = replace(last, revision=events[-1].revision + 1)
    assert any("after 3 failures" in violation.story for violation in check([*events, once_more]))
    without = [event for event in events if not isinstance(event, ConfigResumed)]
    assert any("after 3 failures" in violation.story for violation in check(without))


def test_for_optuna_it_is_a_new_trial() -> None:
    def trials() -> list[optuna.trial.FrozenTrial]:
        events = iter(world.trace())
        random = recipe({"method": "random", "num": 2, "space": {"lr": {"uniform": [0.0, 1.0]}}})
        return study_of(random, "r", lambda: events).trials

    world = failing()
    assert world.finish(["a"], 60)
    assert "FAIL" in [trial.state.name for trial in trials()]
    world.extend(0, 0)
    assert world.finish(["a"], 60)
    assert [trial.user_attrs["config"] for trial in trials()].count("c0000") == 2
    assert all(trial.state.is_finished() for trial in trials())
