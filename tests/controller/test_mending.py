"""Foreign writes into any key of a run: the leader names them and puts the key back, and the run goes on to
its end."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from cerebro_elastic.controller import candidate as candidates
from cerebro_elastic.controller.candidate import Candidate, Host
from cerebro_elastic.core.history.machine import fold
from cerebro_elastic.core.invariants import check
from cerebro_elastic.core.model.attempts import Attempt
from cerebro_elastic.core.model.codec import encode
from cerebro_elastic.core.model.configs import Config
from cerebro_elastic.core.model.events import RecordMended, UnitCommitted
from cerebro_elastic.core.model.nodes import Node
from cerebro_elastic.core.model.run import Plan
from cerebro_elastic.core.model.state import State
from cerebro_elastic.core.model.units import Unit
from cerebro_elastic.errors import RunError
from cerebro_elastic.scheduling.longest_remaining import LongestRemaining
from cerebro_elastic.store.client.base import Delete, Op, Put
from cerebro_elastic.store.ledger.foreign import ForeignValue
from cerebro_elastic.store.ledger.journal import Journal, read_journal
from support.ledger import Ledger
from support.memory_store import MemoryStore
from support.world import World

DEEP = "[" * 5000 + "]" * 5000
UNITS = 12

GARBAGE: dict[str, Callable[[bytes], bytes]] = {
    "half": lambda value: value[: len(value) // 2],
    "nothing": lambda _: b"",
    "no JSON": lambda _: b"hello",
    "no UTF-8": lambda _: b"\xff\xfe\x00{",
    "deep": lambda _: DEEP.encode(),
    "another type": lambda _: b"[1, 2]",
    "wrong types": lambda value: json.dumps(dict.fromkeys(json.loads(value), 7)).encode(),
    "huge numbers": lambda value: value[:-1] + b',"epoch":1e999,"revision":1e999}',
    "many digits": lambda value: value[:-1] + b',"epoch":' + b"9" * 5000 + b"}",
    "another version": lambda value: json.dumps({**json.loads(value), "v": 99}).encode(),
    "an unknown kind": lambda value: json.dumps({**json.loads(value), "kind": "Later"}).encode(),
    "one field too many": lambda value: json.dumps({**json.loads(value), "more": 1}).encode(),
    "a megabyte": lambda _: b"x" * 1_000_000,
    "as it is": lambda value: value,
    "of another": lambda _: encode(Config("c9", {})).encode(),
    "of another run": lambda _: encode(Plan("other", 1, 1)).encode(),
}

KEYS = {
    "spec": "spec",
    "event": "event",
    "leader": "leader",
    "homes": "homes",
    "order": "order",
    "outcome": "outcome",
    "opening": "opening",
    "mended": "mended",
    "hosts": "hosts/h",
    "nodes": "nodes/a",
    "an unknown node": "nodes/z",
    "control": "control/last",
    "children": "children/c0000/c0007",
    "configs": "configs/c0000",
    "an unknown config": "configs/c9",
    "assign": "assign/a",
    "the second": "assign/a/second",
    "an unknown assignment": "assign/z",
    "an unknown second": "assign/z/second",
    "saving": "saving/a",
    "meeting": "meeting/a",
    "quarantined": "quarantined/a",
    "quarantined_for": "quarantined_for/a",
    "logged": "logged/c0000",
    "profiles": "profiles/c0000/000000000007",
    "visits": "visits/c0000/00000/00000",
    "an unknown visit": "visits/c0000/00009/00000",
    "an unknown key": "notes",
    "what is no text": "configs/\udcff",
}


class Scene:
    """A run that its one candidate leads; its node works whenever the candidate pauses. ``after`` maps a
    number of units to what somebody else then does."""

    def __init__(self, journal: Path, store: MemoryStore | None = None) -> None:
        plan = Plan("r", partitions=2, epochs=3)
        made = store or MemoryStore()
        self.world = World(plan, 2, LongestRemaining(), store=lambda _clock: made)
        self.world.join("a")
        self.journal = Journal(journal)
        self.said: list[str] = []
        self.pauses = self.rest = 0
        self.after: dict[int, Callable[[], object]] = {}

    @property
    def ledger(self) -> Ledger:
        return self.world.ledger

    def lead(self, name: str = "me") -> None:
        host = Host(say=self.said.append, pause=self.pause)
        world = self.world
        Candidate(self.ledger, world.policy, world.search, self.journal, host, name=name).run()

    def pause(self, _state: State) -> None:
        self.pauses += 1
        assert self.pauses < 1000, self.said[-5:]
        world, done = self.world, len(self.world.acknowledged)
        due = next((number for number in sorted(self.after) if number <= done), None)
        if due is not None and not self.rest and self.ledger.assignment("a") is not None:
            world.start("a")
            self.after.pop(due)()
            self.rest = 3
        if self.rest:  # whoever leads is faster than a unit
            self.rest -= 1
            return
        if not self.ledger.holds("a", world.leases["a"]):  # as its agent does
            world.join("a")
        world.start("a")
        while world.workers:
            world.commit(0)

    def write(self, key: str, change: Callable[[bytes], bytes] | None) -> None:
        """Change the key, or delete it."""
        name = self.ledger.keys.prefix + key
        item = self.world.store.get(name)
        before = item.value if item else encode(Unit("c0000", 0, 0)).encode()
        op: Op = Delete(name) if change is None else Put(name, _changed(before, change))
        self.world.store.txn([], [op])

    def verdict(self) -> None:
        """The run has ended well; its record and its store say the same."""
        events, state = read_journal(self.journal.path), State()
        for event in events:
            state = fold(state, event)
        now = self.ledger.state()
        assert state.outcome == "finished", self.said[-6:]
        assert replace(state, revision=0, leader=None) == replace(now, revision=0, leader=None)
        assert state.outcome == "finished"
        assert check(events, readable=lambda ref: ref.digest in self.world.saved) == []
        assert sum(isinstance(event, UnitCommitted) for event in events) == UNITS
        assert self.ledger.visits() == [e.visit for e in events if isinstance(e, UnitCommitted)]
        assert self.ledger.spec() is not None
        assert self.ledger.children("c0000") == {}


def _changed(value: bytes, change: Callable[[bytes], bytes]) -> bytes:
    try:
        return change(value)
    except (ValueError, RecursionError):  # it was no JSON before
        return b'{"v":1,"kind":"Config","id":"c9","hparams":{"deep":' + DEEP.encode() + b"}}"


@pytest.fixture(autouse=True)
def _a_quick_candidate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(candidates, "_STEP", 0.01)


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path / "history.jsonl")


@pytest.mark.parametrize("kind", KEYS)
def test_whatever_is_written_into_a_key_the_run_goes_on(kind: str, tmp_path: Path) -> None:
    """All garbage in turn, each while a unit is under way, and the key's deletion."""
    changes = [*GARBAGE.values(), None]
    for first in range(0, len(changes), UNITS - 1):
        scene = Scene(tmp_path / f"{first}.jsonl")
        some = changes[first : first + UNITS - 1]
        for after, change in enumerate(some, start=1):
            scene.after[after] = partial(scene.write, KEYS[kind], change)
        scene.lead()
        assert not scene.after
        scene.verdict()


@pytest.mark.parametrize(
    "kind", ["spec", "configs", "assign", "the second", "nodes", "homes", "visits", "outcome", "leader"]
)
@pytest.mark.parametrize("change", ["half", "as it is", None])
def test_the_next_leader_puts_back_what_was_written_while_nobody_led(
    kind: str, change: str | None, scene: Scene
) -> None:
    def stop() -> None:
        raise KeyboardInterrupt

    scene.after[5] = stop
    with pytest.raises(KeyboardInterrupt):
        scene.lead("before")
    scene.write(KEYS[kind], GARBAGE[change] if change else None)
    if kind == "spec" and change != "as it is":  # whoever starts the run again writes it anew
        with pytest.raises(RunError, match="start the run again where it was started first"):
            scene.lead("after")
        return
    scene.rest = 20
    scene.lead("after")
    scene.verdict()


def test_a_run_of_which_all_was_deleted_goes_on(scene: Scene) -> None:
    """``etcdctl del --prefix``, by mistake."""

    def wipe() -> None:
        store = scene.world.store
        store.txn([], [Delete(item.key) for item in store.range(scene.ledger.keys.prefix).items])

    scene.after[5] = wipe
    scene.lead()
    scene.verdict()


def test_the_log_says_what_the_key_held_and_what_the_leader_does(scene: Scene) -> None:
    scene.after[3] = lambda: scene.write("configs/c0000", GARBAGE["half"])
    scene.lead()
    (message,) = [text for text in scene.said if "others" in text]
    assert "/cerebro/r/configs/c0000" in message
    assert '{"epoch"' in message
    assert "putting back" in message
    (mended,) = [e for e in read_journal(scene.journal.path) if isinstance(e, RecordMended)]
    assert mended.keys == ("configs/c0000",)


def test_an_assignment_that_others_wrote_is_over(scene: Scene) -> None:
    """A valid one, too: it can never commit, nor be committed twice."""
    store, keys = scene.world.store, scene.ledger.keys

    def forge() -> None:
        config, node = scene.ledger.config("c0001"), scene.ledger.node("a")
        assert config is not None
        assert node is not None
        attempt = Attempt(Unit("c0001", 0, 0), "a", node.registration, config.revision, config.head)
        store.txn([], [Put(keys.assign("a"), encode(attempt).encode())])

    scene.after[3] = forge
    scene.lead()
    scene.verdict()
    (mended,) = [e for e in read_journal(scene.journal.path) if isinstance(e, RecordMended)]
    assert len(mended.withdrawn) == 1


def test_a_forged_event_is_no_event(scene: Scene) -> None:
    """Of which nothing else was written."""
    forged = encode(RecordMended(0, ("configs/c0000",)))
    scene.after[3] = lambda: scene.write("event", lambda _: forged.encode())
    scene.lead()
    scene.verdict()
    assert not any(isinstance(event, RecordMended) for event in read_journal(scene.journal.path))


def test_repeated_foreign_writes_end_the_run_with_a_clear_message(scene: Scene) -> None:
    pause = scene.pause

    def scribble(state: State) -> None:
        scene.write("configs/c0000", GARBAGE["half"])
        pause(state)

    scene.pause = scribble  # type: ignore[method-assign]
    with pytest.raises(RunError, match=r"configs/c0000.* put back 20 times: find out who writes there"):
        scene.lead()


def test_a_process_that_does_not_know_the_run_waits_for_the_leader_and_then_says_so(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.write("configs/c0000", GARBAGE["half"])
    monkeypatch.setattr(candidates, "MENDED_SECONDS", 0.0)
    journal, world = Journal(tmp_path / "fresh.jsonl"), scene.world
    with pytest.raises(ForeignValue, match=r"configs/c0000.*is not of this run"):
        Candidate(scene.ledger, world.policy, world.search, journal, Host(), clock=world.clock).run()


def test_a_node_without_a_lease_is_nobodys(scene: Scene) -> None:
    """Its key would stay for ever, and keep the name."""
    lease = scene.world.store.grant(30)
    scene.write("nodes/b", lambda _: encode(Node("b", "host", boot="ghost")).encode())
    assert scene.ledger.register(Node("b", "host", boot="real"), lease).boot == "real"
