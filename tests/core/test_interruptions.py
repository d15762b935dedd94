"""A user of the store ends in the middle of an action: before each verb, and after each verb before its
answer arrives. The others go on, the run ends as if nothing had happened, and no unit is done twice."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from enum import Enum
from itertools import product
from typing import Any, cast

import pytest

from cerebro_elastic.core.model.attempts import FailureKind
from cerebro_elastic.core.model.configs import Status
from cerebro_elastic.core.model.run import Plan
from cerebro_elastic.core.model.units import CheckpointRef, Phase, Strategy
from cerebro_elastic.scheduling.longest_remaining import LongestRemaining
from cerebro_elastic.store.client.base import Store
from cerebro_elastic.store.client.embedded import EmbeddedEtcd
from cerebro_elastic.store.client.etcd import EtcdStore
from cerebro_elastic.system.clock import Clock
from support.hashing import BATCHES, digest
from support.memory_store import MemoryStore
from support.world import World

VERBS = ("get", "range", "txn", "grant", "keep", "revoke", "watch")


class When(Enum):
    BEFORE = "before"
    AFTER = "after"


class Ended(BaseException):
    """The process that used the store has ended."""


class Interrupting:
    """A store whose user ends at its verb number ``at``, counted while it is armed."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._at: tuple[int, When] | None = None
        self._armed = False
        self.verbs: list[str] = []

    @contextmanager
    def armed(self, at: tuple[int, When] | None) -> Iterator[None]:
        self._at, self._armed = at, True
        with suppress(Ended):
            yield
        self._armed = False

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self._store, name)
        return self._interrupted(name, verb) if name in VERBS and self._armed else verb

    def _interrupted(self, name: str, verb: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            at, when = self._at or (-1, When.BEFORE)
            due = len(self.verbs) == at
            self.verbs.append(name)
            if due and when is When.BEFORE:
                raise Ended
            result = verb(*arguments)
            if due:
                if name == "watch":
                    result.close()
                raise Ended
            return result

        return call


def settle(world: World, steps: int = 12) -> None:
    for _ in range(steps):
        world.control()


def of(world: World, node: str) -> int:
    """The node's worker."""
    return next(at for at, worker in enumerate(world.workers) if worker.attempt.node == node)


def commit(world: World) -> None:
    world.commit(of(world, "a"))


def gang_is_tried(world: World) -> None:
    """One config's first strategy is refused, the other's is not; then both profile the gang."""
    world.refuse(0)
    for _ in range(3):
        while world.workers:
            world.commit(0)
        settle(world, 3)
        for name in "abc":
            world.start(name)


def companion(world: World) -> str:
    """A node of a gang that does not lead it."""
    return world.workers[0].attempt.nodes[-1]


Script = Callable[[World], object]
GANG = Strategy("ddp", 2, 2)
OF_NODES: dict[str, Script] = {
    "commit": commit,
    "fail": lambda w: (w.fail(of(w, "a"), FailureKind.DISK_FULL), settle(w)),
    "take over": lambda w: (commit(w), w.elect(), settle(w)),
    "drain and split": lambda w: (w.drain("a"), w.split(0, 1), w.lose("a")),
    "drain and finish": lambda w: (w.drain("a"), commit(w), w.lose("a")),
    "drain and give up": lambda w: (w.drain("a"), w.give_up(0), w.lose("a")),
    "drain an idle node": lambda w: (w.drain("c"), w.lose("c")),
    "move homes after a drain": lambda w: (w.drain("a"), w.split(0, 1), settle(w)),
    "join": lambda w: w.join("d"),
    "join again": lambda w: w.join("a"),
    "move homes after a join": lambda w: (w.join("d"), settle(w)),
    "save behind the next unit": lambda w: (
        *(w.trained(of(w, "a")), settle(w)),
        *(commit(w), w.start("a"), settle(w)),
    ),
    "lose what is saved": lambda w: (w.trained(of(w, "a")), settle(w), w.lose("a"), settle(w)),
    "fail to save": lambda w: (
        *(w.trained(of(w, "a")), settle(w)),
        *(w.fail(of(w, "a"), FailureKind.DISK_FULL), settle(w)),
    ),
}
OF_GANGS: dict[str, Script] = {
    "gang commits": lambda w: (w.commit(0), settle(w)),
    "companion fails": lambda w: (w.fail(1), settle(w)),
    "companion is lost": lambda w: (w.lose(companion(w)), settle(w)),
    "companion leaves": lambda w: (w.drain(name := companion(w)), w.split(0, 1), w.lose(name)),
}
PLANS: dict[str, tuple[Script, tuple[Strategy, ...]]] = {
    **{name: (script, (Strategy(),)) for name, script in OF_NODES.items()},
    **{name: (script, (GANG,)) for name, script in OF_GANGS.items()},
    "gang is tried": (gang_is_tried, (Strategy(), GANG)),
}
"""What is interrupted, and the strategies of its run."""


def interrupted(
    plan: str,
    at: tuple[int, When] | None,
    make: Callable[[Clock], Store] = MemoryStore,
    patience: float = 0.0,
) -> tuple[World, list[str]]:
    """A run in whose middle ``plan`` is interrupted: then the others go on, whoever was cut off wakes up
    late, and in the end b and c are there alone. Also the plan's verbs, as far as it came."""
    script, strategies = PLANS[plan]
    stores: list[Interrupting] = []

    def interrupting(clock: Clock) -> Store:
        stores.append(Interrupting(make(clock)))
        return cast(Store, stores[0])

    run = Plan(uuid.uuid4().hex, partitions=4, epochs=1, evaluations=1, max_nodes=4, strategies=strategies)
    world = World(run, 2, LongestRemaining(), store=interrupting, patience=patience)
    world.elect()
    for name in "abc":
        world.join(name)
    settle(world)
    world.start("a")
    world.start("b")
    with stores[0].armed(at):
        script(world)
    assert world.check() == []
    world.check_fold()
    settle(world)
    world.start("c")
    while world.workers:
        world.commit(0)
    assert world.finish(["b", "c"], 200), world.ledger.state()
    return world, stores[0].verbs


def judge(world: World) -> None:
    """Every unit was done once, in one go or in parts that come to the same."""
    assert world.check() == []
    world.check_fold()
    heads: dict[str, CheckpointRef] = {}
    configs = world.ledger.state().configs
    for visit in world.ledger.visits():
        if visit.whole and visit.unit.phase is Phase.TRAIN:
            config = visit.unit.config
            result = digest(heads.get(config), visit.unit, configs[config].hparams, range(BATCHES))
            heads[config] = CheckpointRef(f"mem:{result}", result, 1)
    for config in configs.values():
        assert (config.status, config.head) == (Status.FINISHED, heads[config.id])


@pytest.mark.parametrize("plan", PLANS)
def test_an_interruption_at_every_point_of_a_plan_does_no_harm(plan: str) -> None:
    world, verbs = interrupted(plan, None)
    judge(world)
    assert verbs
    for at in product(range(len(verbs)), When):
        judge(interrupted(plan, at)[0])


@pytest.mark.parametrize(
    ("plan", "verb", "when"),
    [
        ("drain and split", 3, When.BEFORE),
        ("join again", 3, When.AFTER),
        ("gang commits", 0, When.AFTER),
    ],
)
def test_interruptions_over_a_real_etcd_do_no_harm(
    etcd: EmbeddedEtcd, plan: str, verb: int, when: When
) -> None:
    with closing(EtcdStore(etcd.settings)) as store:
        world, verbs = interrupted(plan, (verb, when), lambda _clock: store, patience=0.02)
        assert verbs[verb:] == ["txn"]
        judge(world)
        for controller in world.controllers:
            controller.__exit__()
