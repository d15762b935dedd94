"""``cerebro verify`` catches each violation that is seeded into a recorded run on disk."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cerebro_elastic.cli.app import app
from cerebro_elastic.core.model import events as ev
from cerebro_elastic.core.model.codec import encode
from cerebro_elastic.core.model.origin import basis_of, origin_of
from cerebro_elastic.core.model.run import Plan, Spec
from cerebro_elastic.core.model.units import CheckpointRef
from cerebro_elastic.hop import checkpoint
from cerebro_elastic.recipes import load_recipe
from cerebro_elastic.runs.folder import RunFolder
from cerebro_elastic.runs.results.result import RunResult
from cerebro_elastic.runs.results.verify import verify
from cerebro_elastic.runs.versions import deciding
from cerebro_elastic.scheduling.longest_remaining import LongestRemaining
from cerebro_elastic.store.ledger.history import decode_event
from cerebro_elastic.store.ledger.journal import read_journal
from support.histories import write_history
from support.world import World

RECIPE = {
    "name": "recorded",
    "epochs": 2,
    "nodes": 2,
    "task": {"kind": "torch", "model_fn": "a:b", "loss": "mse_loss"},
    "data": {"source": "c:d", "partitions": 2},
    "search": {"space": {"lr": [0.1, 0.2]}},
}
PLAN = Plan("recorded", partitions=2, epochs=2, min_nodes=2, max_nodes=2)
LEFT_AFTER = 2
"""Batches of a unit that a leaving node trains."""


def take_place(world: World) -> list[ev.Event]:
    """A run in which node b had to leave once, in the middle of a unit."""

    def settle() -> None:
        for _ in range(10):
            world.control()

    world.elect()
    world.join("a")
    world.join("b")
    settle()
    world.drain("b")
    world.start("b")
    world.split(0, LEFT_AFTER)
    world.lose("b")
    world.join("b")
    while not world.ledger.ended():
        settle()
        for name in "ab":
            world.start(name)
        while world.workers:
            world.commit(0)
    for controller in world.controllers:
        controller.__exit__()
    return world.trace()


def record(events: list[ev.Event], folder: RunFolder, scheduler: str = "auto") -> None:
    """Write spec and history, with checkpoints on disk for those of the world."""
    recipe = load_recipe(RECIPE, scheduler=scheduler).resolved()
    spec = Spec(PLAN, recipe, "", "", "", "", {}, str(folder.path), "")
    led = [replace(e, basis=basis_of(spec)) if isinstance(e, ev.LeaderChanged) else e for e in events]
    configs = {e.config.id: e.config for e in events if isinstance(e, ev.ConfigCreated)}
    history = "\n".join(map(encode, led))
    saved: dict[CheckpointRef | None, CheckpointRef | None] = {None: None}
    for event in commits(events):
        visit = event.visit
        origin = origin_of(
            basis_of(spec),
            configs[visit.unit.config].hparams,
            replace(visit, input=saved[visit.input]),
            record=None,
        )
        url = folder.path / "checkpoints" / visit.unit.config / str(visit.attempt)
        ref = saved[visit.output] = checkpoint.save({"digest": visit.output.digest}, str(url), origin)
        history = history.replace(_json(visit.output), _json(ref))
    write_history(folder.history, map(decode_event, history.splitlines()))
    folder.spec.write_text(encode(spec))


def _json(ref: CheckpointRef) -> str:
    stated = {key: value for key, value in asdict(ref).items() if key != "base_bytes"}  # 0, as by default
    return json.dumps(stated, separators=(",", ":"), sort_keys=True)


@pytest.fixture
def happened() -> list[ev.Event]:
    return take_place(World(PLAN, 2, LongestRemaining()))


@pytest.fixture
def recorded(happened: list[ev.Event], tmp_path: Path) -> RunFolder:
    folder = RunFolder(tmp_path / PLAN.run)
    folder.path.mkdir()
    record(happened, folder)
    return folder


def commits(events: list[ev.Event]) -> list[ev.UnitCommitted]:
    return [event for event in events if isinstance(event, ev.UnitCommitted)]


def one_in_the_middle(events: list[ev.Event]) -> ev.UnitCommitted:
    """A whole visit, with others of its config before and after it."""
    return next(e for e in commits(events) if e.visit.unit.epoch == 1 and e.visit.index_in_epoch == 0)


def second_part(events: list[ev.Event]) -> ev.UnitCommitted:
    return next(event for event in commits(events) if event.visit.skip)


def exchanged(events: list[ev.Event], old: ev.Event, *new: ev.Event) -> list[ev.Event]:
    place = events.index(old)
    return [*events[:place], *new, *events[place + 1 :]]


def lost_visit(events: list[ev.Event]) -> list[ev.Event]:
    return exchanged(events, one_in_the_middle(events))


def doubled_visit(events: list[ev.Event]) -> list[ev.Event]:
    event = one_in_the_middle(events)
    return exchanged(events, event, event, event)


def forked_chain(events: list[ev.Event]) -> list[ev.Event]:
    """An assignment and its commit go on from an older checkpoint of the config than the last one."""
    event = one_in_the_middle(events)
    older = next(e.visit.output for e in commits(events) if e.visit.unit.config == event.visit.unit.config)
    given = next(e for e in events if isinstance(e, ev.UnitAssigned) and e.revision == event.visit.attempt)
    stale = replace(given, attempt=replace(given.attempt, input=older))
    forked = exchanged(events, given, stale)
    return exchanged(forked, event, replace(event, visit=replace(event.visit, input=older)))


def commit_after_the_lease(events: list[ev.Event]) -> list[ev.Event]:
    event = one_in_the_middle(events)
    return exchanged(events, event, ev.NodeLeft(event.revision, event.visit.node), event)


def commit_after_the_withdrawal(events: list[ev.Event]) -> list[ev.Event]:
    event = one_in_the_middle(events)
    withdrawn = ev.UnitWithdrawn(event.revision, event.visit.node, event.visit.attempt)
    return exchanged(events, event, withdrawn, event)


def moved_seam(events: list[ev.Event], batches: int) -> list[ev.Event]:
    """The second part begins ``batches`` later than the first one ended."""
    event = second_part(events)
    visit = event.visit
    moved = replace(visit, skip=visit.skip + batches, batches=visit.batches - batches)
    return exchanged(events, event, replace(event, visit=moved))


def overlap(events: list[ev.Event]) -> list[ev.Event]:
    return moved_seam(events, -1)


def gap(events: list[ev.Event]) -> list[ev.Event]:
    return moved_seam(events, +1)


def end_left_out(events: list[ev.Event]) -> list[ev.Event]:
    """The second part says that the partition is whole, one batch before its end."""
    event = second_part(events)
    short = replace(event.visit, batches=event.visit.batches - 1)
    return exchanged(events, event, replace(event, visit=short))


SEEDED: dict[Callable[[list[ev.Event]], list[ev.Event]], tuple[str, str]] = {
    lost_visit: ("isolation", "the config's head was"),
    doubled_visit: ("completeness", "was visited twice"),
    forked_chain: ("isolation", "the config's head was"),
    commit_after_the_lease: ("fencing", "registration of"),
    commit_after_the_withdrawal: ("fencing", "had no open assignment"),
    overlap: ("completeness", "continued after 1 batches, 2 were done"),
    gap: ("completeness", "continued after 3 batches, 2 were done"),
    end_left_out: ("completeness", "had 3 batches, in epoch 0 it had 2"),
}


def test_the_record_as_it_is_breaks_nothing(recorded: RunFolder) -> None:
    events = read_journal(recorded.history)
    assert [event.visit.whole for event in commits(events)].count(False) == 1
    assert verify(RunResult(recorded)) == []


@pytest.mark.parametrize("seed", SEEDED, ids=lambda seed: seed.__name__)
def test_a_seeded_violation_is_found(
    recorded: RunFolder, seed: Callable[[list[ev.Event]], list[ev.Event]]
) -> None:
    invariant, words = SEEDED[seed]
    changed = seed(read_journal(recorded.history))
    write_history(recorded.history, changed)
    found = verify(RunResult(recorded))
    assert any(v.invariant == invariant and words in v.story for v in found), found


@pytest.mark.parametrize("file", ["tensors.safetensors", "tree.json", "manifest.json"])
def test_an_altered_checkpoint_is_found(recorded: RunFolder, file: str) -> None:
    last = commits(read_journal(recorded.history))[-1].visit.output
    path = Path(last.url, file)
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    found = verify(RunResult(recorded))
    invariants = ["durability", "checkpoints"] if file == "manifest.json" else ["durability"]
    assert [violation.invariant for violation in found] == invariants
    assert all(last.url in violation.story for violation in found)


def test_a_run_that_goes_on_meanwhile_may_give_checkpoints_up(recorded: RunFolder) -> None:
    history = recorded.history.read_text()
    events = read_journal(recorded.history)
    first = one_in_the_middle(events)
    write_history(recorded.history, events[: events.index(first) + 1])
    earlier = RunResult(recorded)
    recorded.history.write_text(history)
    checkpoint.remove(first.visit.output)
    assert verify(earlier) == []
    checkpoint.remove(commits(events)[-1].visit.output)
    assert [v.invariant for v in verify(RunResult(recorded))] == ["durability"]


HERE = deciding(load_recipe(RECIPE))


@pytest.mark.parametrize(
    ("versions", "code", "words"),
    [
        (HERE, 1, "decisions: of"),
        ({**HERE, "numpy": "1.0"}, 0, f"numpy 1.0 decided, here is {HERE['numpy']}"),
        ({}, 0, "does not say by which versions"),
    ],
    ids=["the same versions", "another version", "no versions on record"],
)
def test_decisions_that_do_not_follow_from_the_record_are_wrong_unless_versions_differ(
    happened: list[ev.Event], tmp_path: Path, versions: Mapping[str, str], code: int, words: str
) -> None:
    """As after a change of the scheduler that is forged in all places."""
    led = [replace(e, versions=versions) if isinstance(e, ev.LeaderChanged) else e for e in happened]
    folder = RunFolder(tmp_path / PLAN.run)
    folder.path.mkdir()
    record(led, folder, scheduler="random")
    command = CliRunner().invoke(app, ["verify", str(folder.path)])
    assert command.exit_code == code, command.output
    assert re.search(r"of \d+ decisions \d+ are the same when made again, and then comes", command.output)
    assert words in command.output
