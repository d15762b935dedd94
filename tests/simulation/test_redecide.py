"""The decisions of a run are made again from the record of any of its machines, also where the leader had not
seen all that was written before."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import reduce

import pytest

from cerebro_elastic.core.history.machine import fold
from cerebro_elastic.core.model import events as ev
from cerebro_elastic.core.model.attempts import FailureKind
from cerebro_elastic.core.model.run import Plan
from cerebro_elastic.core.model.state import State
from cerebro_elastic.core.model.units import RecordHead
from cerebro_elastic.scheduling.longest_remaining import LongestRemaining
from cerebro_elastic.simulation import redecide
from support.world import RestlessSearch, World

POLICY = LongestRemaining()


def look(world: World, revisions: int = 12) -> None:
    """The leader takes in the next revisions, one after the other, and acts on each."""
    for _ in range(revisions):
        world.control()


def eventful(seed: int) -> tuple[World, list[int]]:
    """A run in which others write between a decision and its events, and the lengths of its history at which
    machines have joined."""
    rng = random.Random(seed)
    plan = Plan("r", rng.randint(1, 3), 3, max_nodes=3, tries=3)
    world = World(plan, 4, POLICY, search=RestlessSearch, heads=True)
    world.elect()
    joined = []
    for _ in range(70):
        node, which = rng.choice("abc"), rng.randint(0, 3)
        match rng.choice(
            ["look"] * 5 + ["start"] * 4 + ["commit"] * 4 + ["fail"] * 3 + ["join", "lose", "drain", "read"]
        ):
            case "look":
                look(world, rng.randint(1, 5))
            case "start":
                world.start(node)
            case "commit":
                world.commit(which)
            case "fail":
                world.fail(which, FailureKind.CRASH)
            case "join":
                world.join(node)
            case "lose":
                world.lose(node)
            case "drain":
                world.drain(node)
            case _:
                joined.append(len(world.trace()))
    world.trace()
    return world, [at for at in joined if at]


def record_of(events: Sequence[ev.Event], at: int) -> list[ev.Event]:
    """The record of a machine that joined after ``at`` events."""
    state = reduce(fold, events[:at], State())
    visits = tuple(event.visit for event in events[:at] if isinstance(event, ev.UnitCommitted))
    return [ev.StateRead(state.revision, state, visits), *events[at:]]


@pytest.mark.parametrize("seed", [1, 25, 26, 27])
def test_each_machine_of_a_run_has_a_record_that_is_explained(seed: int) -> None:
    world, joined = eventful(seed)
    for at in (0, *joined):
        record = record_of(world.events, at) if at else world.events
        assert redecide(record, POLICY, world.search).explanation is None, at


def forged(events: Sequence[ev.Event]) -> Iterator[list[ev.Event]]:
    """Records in which one decision was changed."""
    for at, event in enumerate(events):
        match event:
            case ev.UnitAssigned(attempt=attempt):
                other: ev.Event = replace(event, attempt=replace(attempt, expected=77.0))
            case ev.ConfigCreated(config=config):
                other = replace(event, config=replace(config, hparams={"lr": 9.0}))
            case ev.ConfigEnded() | ev.NodeQuarantined():
                other = replace(
                    event, **{"reason" if isinstance(event, ev.ConfigEnded) else "why": "no reason"}
                )
            case _:
                continue
        yield [*events[:at], other, *events[at + 1 :]]


@pytest.mark.parametrize("seed", [1, 26])
def test_each_forged_decision_is_found(seed: int) -> None:
    world, _ = eventful(seed)
    records = list(forged(world.events))
    assert len(records) > 10
    for record in records:
        again = redecide(record, POLICY, world.search)
        assert again.explanation is not None
        assert again.matched < again.total


@pytest.mark.parametrize(("read", "explained"), [(-1, True), (0, False)])
def test_an_assignment_says_what_its_leader_had_read(read: int, explained: bool) -> None:
    """What is decided on an earlier state than the record begins with cannot be decided again."""
    world, _ = eventful(1)
    at, event = next((n, e) for n, e in enumerate(world.events) if isinstance(e, ev.UnitAssigned))
    head = RecordHead(world.events[at - 1].revision + read, "digest")
    forged = replace(event, attempt=replace(event.attempt, expected=77.0, record=head))
    again = redecide([*record_of(world.events[:at], at), forged], POLICY, world.search)
    assert (again.explanation is None) == explained
