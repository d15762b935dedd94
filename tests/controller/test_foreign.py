"""Foreign writes into the keys of a run: whoever follows it names the key, and the run stops."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from cerebro_elastic.controller import candidate as candidates
from cerebro_elastic.controller.candidate import Candidate, Host
from cerebro_elastic.core.model.codec import encode
from cerebro_elastic.core.model.configs import Config
from cerebro_elastic.core.model.run import Plan
from cerebro_elastic.core.model.state import State
from cerebro_elastic.core.model.units import Unit
from cerebro_elastic.scheduling.longest_remaining import LongestRemaining
from cerebro_elastic.store.client.base import Delete, Op, Put
from cerebro_elastic.store.ledger.foreign import ForeignValue
from cerebro_elastic.store.ledger.journal import Journal
from support.ledger import Ledger
from support.memory_store import MemoryStore
from support.world import World

DEEP = "[" * 5000 + "]" * 5000

GARBAGE: dict[str, Callable[[bytes], bytes]] = {
    "half": lambda value: value[: len(value) // 2],
    "nothing": lambda _: b"",
    "no JSON": lambda _: b"hello",
    "deep": lambda _: DEEP.encode(),
    "wrong types": lambda value: json.dumps(dict.fromkeys(json.loads(value), 7)).encode(),
    "huge numbers": lambda value: value[:-1] + b',"epoch":1e999,"revision":1e999}',
    "another version": lambda value: json.dumps({**json.loads(value), "v": 99}).encode(),
    "an unknown kind": lambda value: json.dumps({**json.loads(value), "kind": "Later"}).encode(),
    "as it is": lambda value: value,
    "of another": lambda _: encode(Config("c9", {})).encode(),
}

KEYS = {
    "spec": "spec",
    "event": "event",
    "leader": "leader",
    "homes": "homes",
    "order": "order",
    "outcome": "outcome",
    "opening": "opening",
    "hosts": "hosts/h",
    "nodes": "nodes/a",
    "an unknown node": "nodes/z",
    "control": "control/last",
    "children": "children/c0000/c0007",
    "configs": "configs/c0000",
    "assign": "assign/a",
    "the second": "assign/a/second",
    "an unknown assignment": "assign/z",
    "saving": "saving/a",
    "meeting": "meeting/a",
    "quarantined": "quarantined/a",
    "quarantined_for": "quarantined_for/a",
    "logged": "logged/c0000",
    "profiles": "profiles/c0000/000000000007",
    "visits": "visits/c0000/00000/00000",
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


def _changed(value: bytes, change: Callable[[bytes], bytes]) -> bytes:
    try:
        return change(value)
    except (ValueError, RecursionError):  # it was no JSON before
        return b'{"v":1,"kind":"Config","id":"c9","hparams":{"deep":' + DEEP.encode() + b"}}"


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path / "history.jsonl")


@pytest.fixture(autouse=True)
def _a_quick_candidate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(candidates, "_STEP", 0.01)


NOT_READ = {"meeting", "an unknown key"}
"""Keys whose values the core does not read."""
LASTING = {"spec", "event", "configs", "assign", "homes", "visits"}
"""Those that are there in the middle of a run, and end with no lease."""


def ended(scene: Scene) -> str:
    """The error that ends the run; nothing if it has finished."""
    try:
        scene.lead()
    except ForeignValue as error:
        return str(error)
    assert scene.ledger.state().outcome == "finished"
    return ""


@pytest.mark.parametrize("kind", KEYS)
def test_whatever_others_write_into_a_key_stops_the_run_with_its_name(kind: str, tmp_path: Path) -> None:
    for name, change in [*GARBAGE.items(), ("gone", None)]:
        scene = Scene(tmp_path / f"{name}.jsonl")
        scene.after[3] = partial(scene.write, KEYS[kind], change)
        error = ended(scene)
        stops = kind in LASTING if change is None else kind not in NOT_READ
        if (kind, name) == ("spec", "as it is"):  # as `cerebro run` with changed code does
            stops = False
        assert bool(error) == stops, (name, error)
        assert not stops or KEYS[kind].partition("/")[0] in error
        assert not stops or "`cerebro etcd RUN --restore`" in error


@pytest.mark.parametrize("kind", ["spec", "configs", "assign", "nodes", "homes", "visits", "outcome"])
def test_the_next_leader_sees_foreign_writes_made_while_nobody_led(kind: str, scene: Scene) -> None:
    def stop() -> None:
        raise KeyboardInterrupt

    scene.after[5] = stop
    with pytest.raises(KeyboardInterrupt):
        scene.lead("before")
    scene.write(KEYS[kind], GARBAGE["half"])
    with pytest.raises(ForeignValue, match=KEYS[kind].partition("/")[0]):
        scene.lead("after")


def test_a_run_of_which_all_was_deleted_stops(scene: Scene) -> None:
    """``etcdctl del --prefix``, by mistake."""

    def wipe() -> None:
        store = scene.world.store
        store.txn([], [Delete(item.key) for item in store.range(scene.ledger.keys.prefix).items])

    scene.after[5] = wipe
    assert "is gone" in ended(scene)
