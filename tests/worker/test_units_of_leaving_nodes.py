"""Units of a rank that was asked to leave: split at a batch boundary, or given up; nothing else changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from scene import Scene

from cerebro_elastic.core.model.events import UnitWithdrawn
from cerebro_elastic.core.model.units import PartialUnit

READY_MADE = {"kind": "torch", "model_fn": "an_act:model", "optimizer": "SGD", "loss": "cross_entropy"}
Make = Callable[..., Scene]


@pytest.fixture
def split(make_scene: Make) -> Scene:
    """A task that may be stopped at any of the eight batches of a partition."""
    return make_scene("split", task=READY_MADE, batch_size=1)


def test_a_unit_in_parts_is_the_unit_in_one_go(split: Scene, make_scene: Make) -> None:
    for stops in range(3):
        with split.rank():
            split.leaving.ask(0.0)
            split.perform()
        assert split.config.partial_unit == PartialUnit(0, stops + 1)
        assert split.config.parts == stops + 1
    with split.rank():
        split.perform()
        split.perform()
    visits = split.ledger.visits()
    assert [(v.index_in_epoch, v.skip, v.batches, v.samples, v.whole) for v in visits] == [
        (0, 0, 1, 1, False),
        (1, 1, 1, 1, False),
        (2, 2, 1, 1, False),
        (3, 3, 5, 5, True),
        (4, 0, 8, 8, True),
    ]
    assert [v.input for v in visits] == [None, *(v.output for v in visits[:-1])]

    quiet = make_scene("quiet", task=READY_MADE, batch_size=1)
    quiet.perform()
    quiet.perform()
    assert [v.output.digest for v in quiet.ledger.visits()] == [v.output.digest for v in visits[-2:]]
    assert quiet.ledger.visits()[-1].metrics == visits[-1].metrics
    assert quiet.config.metrics == split.config.metrics


def test_a_unit_that_cannot_be_split_is_given_up_at_once(scene: Scene) -> None:
    """It has a pass of the user's own. Nothing is left of it, and it costs its config no try."""
    attempt = scene.assign()
    scene.leaving.ask(0.0)
    scene.attempts.perform(attempt)
    assert given_up(scene, attempt.token)
    assert scene.ledger.node("n") is not None, "no lease had to end for it"
    assert scene.ledger.visits() == []
    assert not scene.checkpoints.exists()


@pytest.mark.parametrize("deed", ["raise", "exit"])
def test_an_exception_while_leaving_is_not_counted_as_a_failure(scene: Scene, deed: str) -> None:  # noqa: ARG001
    """SIGTERM goes to all processes of the rank: its loaders' deaths are not the config's."""
    attempt = scene.assign()
    scene.leaving.ask(600.0)
    scene.attempts.perform(attempt)
    assert given_up(scene, attempt.token)


def given_up(scene: Scene, token: int) -> bool:
    with scene.ledger.events(token + 1) as stream:
        events: list[Any] = [*stream.next(0), *stream.next(0)]
    assert scene.config.failures == ()
    assert scene.ledger.assignment("n") is None
    return any(isinstance(event, UnitWithdrawn) and event.token == token for event in events)


def test_giving_up_is_fenced(scene: Scene) -> None:
    attempt = scene.assign()
    scene.leader.withdraw(attempt)
    replayer = scene.assign()
    assert not scene.ledger.give_up(attempt)
    assert scene.ledger.assignment("n") == replayer
    assert scene.ledger.give_up(replayer)
