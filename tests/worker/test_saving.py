"""States that are saved behind the next unit, on a storage that is as slow as the test wants it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from scene import Scene

from cerebro_elastic.core.model.attempts import FailureKind
from cerebro_elastic.core.model.events import (
    NodeDraining,
    UnitAssigned,
    UnitCommitted,
    UnitTrained,
)
from cerebro_elastic.core.model.units import Strategy
from cerebro_elastic.hop import checkpoint
from support.waiting import SOON, wait_for

Make = Callable[..., Scene]


class Gate:
    """Who writes under ``gated://`` waits until it is open; ``error`` is then what they get."""

    def __init__(self) -> None:
        self.opened = threading.Event()
        self.error: Exception | None = None


GATE = Gate()


class GatedFileSystem(MemoryFileSystem):
    protocol = "gated"

    def _open(self, path: str, mode: str = "rb", **how: Any) -> Any:
        if mode != "rb":
            assert GATE.opened.wait(SOON)
            if GATE.error is not None:
                raise GATE.error
        return super()._open(path, mode, **how)


@pytest.fixture
def gate() -> Iterator[Gate]:
    fsspec.register_implementation("gated", GatedFileSystem, clobber=True)
    GATE.__init__()  # type: ignore[misc]
    yield GATE
    GATE.opened.set()
    GatedFileSystem.store.clear()


@pytest.fixture
def slow(gate: Gate, make_scene: Make) -> Scene:  # noqa: ARG001
    return make_scene(quick=0.0, storage="gated://storage", configs="cd")


@contextmanager
def in_thread(work: Callable[[], None]) -> Iterator[None]:
    thread = threading.Thread(target=work)
    thread.start()
    yield
    thread.join(SOON)
    assert not thread.is_alive()


def test_the_next_unit_is_trained_meanwhile_and_follows(slow: Scene, gate: Gate) -> None:
    slow.perform()
    assert slow.ledger.assignment("n") is None
    assert slow.ledger.saving("n")
    assert slow.attempts.context.writer.saving_bytes > 0
    second = slow.assign(config_id="d")
    with in_thread(lambda: slow.attempts.perform(second)):
        gate.opened.set()
    wait_for(lambda: slow.ledger.saving("n") is None, "the second commit")
    assert slow.ledger.attempt_events()[:4] == [
        *((UnitAssigned, "c"), (UnitTrained, "c"), (UnitAssigned, "d"), (UnitCommitted, "c"))
    ]
    assert slow.ledger.attempt_events()[-1] == (UnitCommitted, "d")
    first = slow.ledger.visits()[0]
    assert first.save_seconds > 0
    assert slow.config.head == first.output


@pytest.mark.parametrize(("quick", "announced"), [(60.0, []), (0.0, [(UnitTrained, "c")])])
def test_a_queued_unit_waits_for_no_commit(
    make_scene: Make, gate: Gate, quick: float, announced: list[tuple[type, str]]
) -> None:
    """A save is announced only if the last one took a while."""
    scene = make_scene(quick=quick, storage="gated://storage", configs="cde")
    gate.opened.set()
    scene.attempts.perform(scene.assign(config_id="e"))
    wait_for(scene.ledger.visits, "a first save")
    gate.opened.clear()
    before = len(scene.ledger.attempt_events())
    first = scene.assign()
    second = scene.assign(config_id="d", behind=first.token)
    scene.next_waits = True
    scene.attempts.perform(first)
    assert scene.ledger.attempt_events()[before:] == [(UnitAssigned, "c"), (UnitAssigned, "d"), *announced]
    with in_thread(lambda: scene.attempts.perform(second)):
        gate.opened.set()
    wait_for(lambda: len(scene.ledger.visits()) == 3, "both commits")
    committed = [config for kind, config in scene.ledger.attempt_events() if kind is UnitCommitted]
    assert committed == ["e", "c", "d"]
    _, one, other = scene.ledger.visits()
    assert one.save_seconds > 0
    assert other.started >= one.freed


@pytest.mark.parametrize(
    ("strategy", "rounds"), [(Strategy(), 4), (Strategy("fsdp"), 1)], ids=["single", "fsdp"]
)
def test_the_saved_state_is_the_trained_one(
    make_scene: Make, gate: Gate, strategy: Strategy, rounds: int
) -> None:
    """Whatever the rank does meanwhile: all units of two configs, as if each had been saved at once."""
    plain, behind = (
        make_scene("plain", configs="cd"),
        make_scene("behind", quick=0.0, storage="gated://storage", configs="cd"),
    )
    for scene in (plain, behind):
        for _ in range(rounds):
            for name in "cd":
                wait_for(lambda s=scene, n=name: not s.ledger.state().running(n), f"{name} to be saved")  # type: ignore[misc]
                scene.attempts.perform(scene.assign(config_id=name, strategy=strategy))
                if scene is behind:  # now that the save of its first unit is behind it for certain
                    gate.opened.set()
    wait_for(lambda: len(behind.ledger.visits()) == 2 * rounds, "the last commit")
    digests = [[v.output.digest for v in scene.ledger.visits()] for scene in (plain, behind)]
    assert digests[0] == digests[1]
    assert any(kind is UnitTrained for kind, _ in behind.ledger.attempt_events())
    for visit in behind.ledger.visits()[-2:]:
        checkpoint.verify(visit.output)


@pytest.mark.parametrize(
    ("error", "kind"),
    [(OSError(28, "no space left"), FailureKind.DISK_FULL), (ValueError("odd"), FailureKind.EXCEPTION)],
)
def test_a_state_that_cannot_be_saved_fails_its_unit_alone(
    slow: Scene, gate: Gate, error: Exception, kind: FailureKind
) -> None:
    slow.perform()
    second = slow.assign(config_id="d")
    gate.error = error
    with in_thread(lambda: slow.attempts.perform(second)):
        gate.opened.set()
        wait_for(lambda: slow.config.failures, "the failure")
        gate.error = None
    wait_for(lambda: not slow.ledger.state().underway(), "the end")
    (failure,) = slow.config.failures
    assert failure.kind is kind


@pytest.mark.parametrize("deed", ["share"])
def test_tensors_that_two_units_share_are_found_out(make_scene: Make, gate: Gate, deed: str) -> None:
    scene = make_scene(deed=deed, quick=0.0, storage="gated://storage", configs="cd")
    scene.perform()
    weight = sys.modules["an_act"].shared().weight
    second, before = scene.assign(config_id="d"), weight._version
    with in_thread(lambda: scene.attempts.perform(second)):
        wait_for(lambda: weight._version > before, "the second unit to train")
        gate.opened.set()
    wait_for(lambda: scene.config.failures, "the failure")
    assert "was written to while it was saved" in scene.config.failures[0].story


def test_a_leaving_node_saves_first(slow: Scene, gate: Gate) -> None:
    slow.perform()
    slow.leaving.ask(20.0)
    threading.Timer(0.05, gate.opened.set).start()
    slow.attempts.context.__exit__()
    assert slow.ledger.attempt_events()[-1] == (UnitCommitted, "c")
    assert not any(isinstance(event, NodeDraining) for event in slow.ledger.history())


def test_a_registration_lost_meanwhile_is_noticed_at_the_commit(slow: Scene, gate: Gate) -> None:
    slow.perform()
    slow.register()
    gate.opened.set()
    slow.attempts.context.__exit__()
    assert slow.ledger.visits() == []
    assert not [path for path in GatedFileSystem.store if "/c/" in path], "nothing is left"
