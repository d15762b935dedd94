"""Every verb of the ledger: its guard's refusals, its one event, and lost answers."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from itertools import product

import pytest

from cerebro_elastic.core.model import events as ev
from cerebro_elastic.core.model.attempts import Attempt, Failure, FailureKind, Member, ProfileResult, Visit
from cerebro_elastic.core.model.configs import Config, Status
from cerebro_elastic.core.model.events import Event
from cerebro_elastic.core.model.nodes import Node
from cerebro_elastic.core.model.run import Plan, Spec
from cerebro_elastic.core.model.units import CheckpointRef, Measurement, PartialUnit, Phase, Strategy, Unit
from cerebro_elastic.errors import LeaseLost, RunError, TxnUnknown
from cerebro_elastic.store.client.base import Store
from cerebro_elastic.store.client.embedded import EmbeddedEtcd
from cerebro_elastic.store.client.etcd import EtcdStore
from cerebro_elastic.store.ledger.operators import OperatorLedger
from support.faults import Lost, losing
from support.histories import folded
from support.ledger import Ledger
from support.memory_store import MemoryStore

GANG = Strategy("ddp", 2, 2)
SEQUENCES = list(product((None, Lost.REQUEST, Lost.ANSWER), repeat=2))


@pytest.fixture(params=["memory", "etcd"])
def store(request: pytest.FixtureRequest, etcd: EmbeddedEtcd) -> Iterator[Store]:
    with closing(MemoryStore() if request.param == "memory" else EtcdStore(etcd.settings)) as store:
        yield store


class Stage:
    """A run with a leader, a node ``n`` and a config ``c0``, and the values to go on with."""

    def __init__(self, store: Store, strategies: tuple[Strategy, ...] = (Strategy(),)) -> None:
        self.store = store
        self.faults: list[Lost | None] = []
        self.begin = store.range("/cerebro/").revision + 1
        self.plan = Plan(uuid.uuid4().hex, partitions=2, epochs=1, evaluations=1, strategies=strategies)
        self.spec = Spec(self.plan, {"epochs": 1}, "", "", "", "", {}, "", "")
        lossy = losing(store, lambda: self.faults.pop(0) if self.faults else None)
        self.ledger = Ledger(lossy, self.plan.run)
        assert self.ledger.open_run(self.spec)
        self.lease = store.grant(30)
        leader = self.ledger.lead("controller", self.lease)
        assert leader is not None
        self.leader = leader
        self.node_lease = store.grant(30)
        self.node = self.ledger.register(Node("n", "host"), self.node_lease)
        assert leader.assign_homes({0: ("n",), 1: ("n",)}) is not None
        assert leader.create_config(Config("c0", {"lr": 0.1})) is not None

    @property
    def config(self) -> Config:
        config = self.ledger.config("c0")
        assert config is not None
        return config

    def attempt(self, partition: int = 0) -> Attempt:
        config = self.config
        unit = Unit("c0", config.epoch, partition)
        return Attempt(unit, "n", self.node.registration, config.revision, config.head)

    def assigned(self, partition: int = 0) -> Attempt:
        attempt = self.attempt(partition)
        token = self.leader.assign(attempt)
        assert token is not None
        return replace(attempt, token=token)

    def visit(self, attempt: Attempt, digest: str = "d") -> Visit:
        output = CheckpointRef(f"mem:{attempt.token}", digest, 1)
        k = len(self.config.visited)
        return Visit(attempt.unit, k, "n", attempt.token, attempt.input, output, 8, 2, 1.5, 0.5, 0.0)

    def failure(self, attempt: Attempt) -> Failure:
        return Failure(attempt.unit, "n", attempt.token, FailureKind.EXCEPTION, "boom")

    def depose(self) -> None:
        self.store.revoke(self.lease)
        self.lease = self.store.grant(30)
        assert self.ledger.lead("another", self.lease) is not None

    def register_anew(self) -> None:
        self.node_lease = self.store.grant(30)
        self.node = self.ledger.register(self.node, self.node_lease)

    def events(self) -> list[Event]:
        """The run's history until its last transaction, which folds to the snapshot."""
        snapshot, events = self.ledger.state(), list[Event]()
        with self.ledger.events(self.begin) as stream:
            while not events or events[-1].revision < self.ledger.revision():
                events += stream.next(5)
        assert replace(folded(events), revision=0) == replace(snapshot, revision=0)
        return events

    def kinds(self, last: int) -> list[type[Event]]:
        """The kinds of the last events."""
        return [type(event) for event in self.events()[-last:]]

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        before = self.store.range(self.ledger.keys.prefix).items
        yield
        assert self.store.range(self.ledger.keys.prefix).items == before


@pytest.fixture
def stage(store: Store) -> Iterator[Stage]:
    made = Stage(store)
    yield made
    store.revoke(made.lease)
    store.revoke(made.node_lease)


@pytest.fixture
def memory_stage() -> Stage:
    return Stage(MemoryStore())


CONTROLLER: dict[str, Callable[[Stage, Attempt], int | None]] = {
    "create_config": lambda s, _: s.leader.create_config(Config("c1", {})),
    "end_config": lambda s, _: s.leader.end_config(s.config, Status.STOPPED, "enough"),
    "resume_config": lambda s, _: s.leader.resume_config(s.config, "go on"),
    "place": lambda s, _: s.leader.assign_homes({0: ("n",), 1: ("n",)}),
    "order": lambda s, _: s.leader.set_order((("n", "c0", 0, 1),)),
    "assign": lambda s, _: s.leader.assign(s.attempt(1)),
    "withdraw": lambda s, a: s.leader.withdraw(a),
    "set_aside": lambda s, a: s.leader.quarantine("m", "it fails", a.token, 60.0),
    "end_run": lambda s, _: s.leader.end_run("finished"),
}


def test_people_stop_resume_and_clone_under_any_leader(stage: Stage) -> None:
    ledger = stage.ledger
    attempt = stage.assigned()
    assert ledger.commit(attempt, stage.config, stage.visit(attempt), stage.plan)
    stage.depose()
    stopped = ledger.stop("c0", "enough")
    assert stopped is not None
    assert (stopped.status, stopped.reason, stopped.by_hand) == (Status.STOPPED, "enough", True)
    with stage.unchanged():
        assert ledger.stop("c0", "again") == stopped
        assert ledger.stop("c9", "why") is None
    clone = ledger.clone("c0", {"width": 3})
    assert clone is not None
    assert (clone.id, clone.hparams, clone.head) == ("c0001", {"lr": 0.1, "width": 3}, stopped.head)
    assert list(ledger.children("c0")) == ["c0001"]
    with stage.unchanged(), pytest.raises(RunError, match=r"c0001 is this config already \(live\)"):
        ledger.clone("c0", {"width": 3})
    with (
        stage.unchanged(),
        pytest.raises(RunError, match=r"c0 is this .*Change a hyper-parameter, or resume c0"),
    ):
        ledger.clone("c0", {"lr": 0.1})
    with stage.unchanged(), pytest.raises(RunError, match="c0 is this config already"):
        ledger.clone("c0", {}, lambda _parent: None)
    resumed = ledger.resume("c0", "after all")
    assert resumed is not None
    assert resumed.status is Status.LIVE
    with stage.unchanged():
        assert ledger.resume("c0", "again") == resumed
    assert stage.kinds(3) == [ev.ConfigEnded, ev.ConfigCreated, ev.ConfigResumed]


def evaluated(stage: Stage) -> Config:
    """The config at the end of its last epoch."""
    unit = Unit("c0", 0, 0, Phase.EVALUATE)
    attempt = replace(stage.attempt(), unit=unit)
    token = stage.leader.assign(attempt)
    assert token is not None
    assert attempt.input is not None
    visit = replace(stage.visit(replace(attempt, token=token)), output=attempt.input)
    assert stage.ledger.commit(replace(attempt, token=token), stage.config, visit, stage.plan)
    return stage.config


def test_each_transaction_is_one_event_and_the_fold_is_the_snapshot(stage: Stage) -> None:
    ledger = stage.ledger
    first = stage.assigned(0)
    assert ledger.commit(first, stage.config, stage.visit(first), stage.plan)
    second = stage.assigned(1)
    assert ledger.fail(second, stage.config, stage.failure(second))
    third = stage.assigned(1)
    stage.register_anew()
    assert stage.leader.withdraw(third) is not None
    assert stage.leader.end_config(stage.config, Status.STOPPED, "enough") is not None
    stage.store.revoke(stage.node_lease)
    assert stage.leader.end_run("finished") is not None
    assert [type(event) for event in stage.events()] == [
        *(ev.RunOpened, ev.LeaderChanged, ev.NodeJoined, ev.HomesAssigned, ev.ConfigCreated),
        *(ev.UnitAssigned, ev.UnitCommitted, ev.UnitAssigned, ev.UnitFailed, ev.UnitAssigned),
        *(ev.NodeLeft, ev.NodeJoined, ev.UnitWithdrawn, ev.ConfigEnded, ev.NodeLeft, ev.RunEnded),
    ]
    assert [visit.unit.partition for visit in ledger.visits()] == [0]
    assert ledger.visits_of("c0") == ledger.visits()
    assert ledger.ended()


@pytest.mark.parametrize("lost", [None, *Lost])
def test_a_measurement_is_noted_once_when_the_run_has_ended(memory_stage: Stage, lost: Lost | None) -> None:
    stage = memory_stage
    for partition in (0, 1):
        trained = stage.assigned(partition)
        assert stage.ledger.commit(trained, stage.config, stage.visit(trained), stage.plan)
    config = evaluated(stage)
    assert config.head is not None
    operator = OperatorLedger(stage.ledger)
    found = Measurement(0, "c0", 1, config.head, {"test_loss": 0.5}, 9, 1.0, by="Ann")
    with stage.unchanged():
        assert not operator.measure(found), "the run goes on"
    assert stage.leader.end_run("finished") is not None
    stage.faults.append(lost)
    assert operator.measure(found)
    assert operator.measure(replace(found, by="Bob"))
    events = [event for event in stage.events() if isinstance(event, ev.ConfigMeasured)]
    assert [event.measurement for event in events] == [found, replace(found, number=1, by="Bob")]


@pytest.mark.parametrize("verb", CONTROLLER)
def test_a_deposed_controller_changes_nothing(stage: Stage, verb: str) -> None:
    attempt = stage.assigned()
    stage.depose()
    with stage.unchanged():
        assert CONTROLLER[verb](stage, attempt) is None


def test_a_leader_is_not_displaced(stage: Stage) -> None:
    lease = stage.store.grant(30)
    assert stage.ledger.lead("another", lease) is None
    assert stage.ledger.lead("controller", stage.lease) == stage.leader
    stage.store.revoke(lease)
    with pytest.raises(LeaseLost):
        Ledger(stage.store, uuid.uuid4().hex).lead("another", lease)


def test_an_assignment_needs_an_idle_node_its_registration_and_the_config_as_it_is(stage: Stage) -> None:
    attempt = stage.assigned()
    with stage.unchanged():
        assert stage.leader.assign(stage.attempt(1)) is None, "busy"
    assert stage.ledger.fail(attempt, stage.config, stage.failure(attempt))
    with stage.unchanged():
        moved = replace(stage.attempt(), config_revision=attempt.config_revision)
        assert stage.leader.assign(moved) is None, "the config has moved"
        assert stage.leader.assign(replace(stage.attempt(), node="m")) is None, "no such node"
    stale = stage.attempt()
    stage.register_anew()
    with stage.unchanged():
        assert stage.leader.assign(stale) is None, "registered anew"


def saved_behind(stage: Stage, partition: int = 0) -> Attempt:
    saving = stage.ledger.mark_trained(stage.assigned(partition))
    assert saving is not None
    return saving


FENCES: dict[str, Callable[[Stage, Attempt], object]] = {
    "withdrawn": lambda s, a: s.leader.withdraw(a),
    "reassigned": lambda s, a: (s.leader.withdraw(a), s.assigned()),
    "registered anew": lambda s, _: s.register_anew(),
    "gone": lambda s, _: s.store.revoke(s.node_lease),
    "config ended": lambda s, _: s.leader.end_config(s.config, Status.STOPPED, "enough"),
}


@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.parametrize("fence", FENCES)
def test_a_fenced_attempt_reports_nothing(stage: Stage, fence: str, trained: bool) -> None:
    attempt = saved_behind(stage) if trained else stage.assigned()
    config, visit = stage.config, stage.visit(attempt)
    FENCES[fence](stage, attempt)
    with stage.unchanged():
        assert not stage.ledger.commit(attempt, config, visit, stage.plan)
        assert not stage.ledger.fail(attempt, config, stage.failure(attempt))
        assert not stage.ledger.give_up(attempt)
        assert trained or stage.ledger.mark_trained(attempt) is None


def test_a_second_commit_is_true_for_the_same_visit_only(stage: Stage) -> None:
    attempt, config = stage.assigned(), stage.config
    visit = stage.visit(attempt)
    assert stage.ledger.commit(attempt, config, visit, stage.plan)
    with stage.unchanged():
        assert stage.ledger.commit(attempt, config, visit, stage.plan)
        assert not stage.ledger.commit(attempt, config, stage.visit(attempt, "other"), stage.plan)
        assert not stage.ledger.fail(attempt, config, stage.failure(attempt))


def test_a_node_is_ready_once(stage: Stage) -> None:
    node = stage.ledger.register(Node("m", "host", boot="b", starting=True), stage.node_lease)
    with stage.unchanged():
        stage.ledger.mark_ready("m", "another boot")
        stage.ledger.mark_ready("nobody", "b")
    stage.ledger.mark_ready("m", "b", [2, 0])
    ready = replace(node, starting=False, cached=(0, 2))
    assert stage.ledger.node("m") == stage.ledger.state().nodes["m"] == ready
    with stage.unchanged():
        stage.ledger.mark_ready("m", "b")
        again = Node("m", "host", boot="b", starting=True)
        assert stage.ledger.register(again, stage.node_lease) == stage.ledger.node("m"), "no second time"
    assert isinstance(stage.events()[-1], ev.NodeReady)


def test_a_node_is_drained_once_and_its_attempt_still_stands(stage: Stage) -> None:
    attempt, config = stage.assigned(), stage.config
    assert stage.ledger.drain("n", 9.5)
    assert stage.ledger.node("n") == replace(stage.node, drain=9.5)
    with stage.unchanged():
        assert stage.ledger.drain("n", 1.0)
        assert not stage.ledger.drain("m", 1.0)
        assert stage.ledger.register(Node("n", "host"), stage.node_lease) == stage.ledger.node("n")
    part = replace(stage.visit(attempt), whole=False)
    assert stage.ledger.commit(attempt, config, part, stage.plan)
    assert stage.config.partial_unit == PartialUnit(0, part.batches)
    assert stage.kinds(3) == [ev.UnitAssigned, ev.NodeDraining, ev.UnitCommitted]
    stage.store.revoke(stage.node_lease)
    assert stage.ledger.node("n") is None, "it leaves with its lease"
    assert not stage.ledger.drain("n", 1.0)


def gang_of(stage: Stage, partition: int = 0) -> Attempt:
    """An attempt of ``n`` and ``m``, assigned."""
    companion = stage.ledger.register(Node("m", "host"), stage.node_lease)
    gang = (Member("m", companion.registration),)
    attempt = replace(stage.attempt(partition), strategy=GANG, gang=gang)
    token = stage.leader.assign(attempt)
    assert token is not None
    return replace(attempt, token=token)


def test_a_gang_is_assigned_and_freed_in_one_transaction() -> None:
    stage = Stage(MemoryStore(), strategies=(GANG,))
    attempt, ledger = gang_of(stage), stage.ledger
    assert ledger.assignment("n") == ledger.assignment("m") == attempt
    assert set(ledger.state().attempts) == {"n", "m"}
    with stage.unchanged():
        together = replace(stage.attempt(1), strategy=GANG, gang=attempt.gang)
        assert stage.leader.assign(together) is None, "busy"
        alone = replace(stage.attempt(1), node="m", registration=attempt.gang[0].registration)
        assert stage.leader.assign(alone) is None, "busy"
    visit = replace(stage.visit(attempt), strategy=GANG, gang=("m",))
    assert ledger.commit(attempt, stage.config, visit, stage.plan)
    assert ledger.state().attempts == {}

    attempt = gang_of(stage, 1)
    assert ledger.fail(attempt, stage.config, replace(stage.failure(attempt), node="m"))
    state = ledger.state()
    assert (state.attempts, set(state.streaks)) == ({}, {"m"})

    assert ledger.give_up(gang_of(stage, 1))
    assert stage.leader.withdraw(gang_of(stage, 1))
    assert ledger.state().attempts == {}
    kinds = [type(event) for event in stage.events() if not isinstance(event, ev.NodeJoined | ev.NodeLeft)]
    ends = (ev.UnitCommitted, ev.UnitFailed, ev.UnitWithdrawn, ev.UnitWithdrawn)
    assert kinds[-8:] == [kind for end in ends for kind in (ev.UnitAssigned, end)]


@pytest.mark.parametrize("who", ["n", "m"])
def test_a_gang_that_lost_a_node_reports_nothing(memory_stage: Stage, who: str) -> None:
    stage = memory_stage
    attempt, config = gang_of(stage), stage.config
    stage.ledger.register(stage.ledger.node(who), stage.store.grant(30))  # type: ignore[arg-type]
    visit = replace(stage.visit(attempt), strategy=GANG, gang=("m",))
    profiling = replace(attempt, unit=replace(attempt.unit, phase=Phase.PROFILE))
    profile = ProfileResult(profiling.unit, GANG, "cpu", "n", attempt.token)
    with stage.unchanged():
        assert not stage.ledger.commit(attempt, config, visit, stage.plan)
        assert not stage.ledger.fail(attempt, config, stage.failure(attempt))
        assert not stage.ledger.record_profile(profiling, profile)
        assert not stage.ledger.give_up(attempt)


def failed_once(stage: Stage) -> Attempt:
    attempt = stage.assigned()
    assert stage.ledger.fail(attempt, stage.config, stage.failure(attempt))
    return attempt


@pytest.mark.parametrize("ends", ["commit", "fail"])
def test_what_a_leader_decides_before_it_sees_a_save_end_does_not_happen(stage: Stage, ends: str) -> None:
    """The end of a save may begin a node's streak of failures, or end it."""
    stage.leader.create_config(Config("c1", {}))
    failed = failed_once(stage)
    saving, before = saved_behind(stage), stage.ledger.state()
    unit, revision = Unit("c1", 0, 1), before.configs["c1"].revision
    other = Attempt(unit, "n", stage.node.registration, revision)
    if ends == "commit":
        assert stage.ledger.commit(saving, stage.config, stage.visit(saving), stage.plan)
    else:
        assert stage.ledger.fail(saving, stage.config, stage.failure(saving))
    with stage.unchanged():
        assert stage.leader.write(before, ev.UnitAssigned(0, other)) is None
        assert stage.leader.write(before, ev.NodeQuarantined(0, "n", "it fails", failed.token, 60.0)) is None
    assert stage.leader.write(stage.ledger.state(), ev.UnitAssigned(0, other)) is not None
    stage.events()


# Lost requests and answers: every sequence of up to two.


REPORTS: dict[type[Event], Callable[[Stage, Attempt], object]] = {
    ev.UnitCommitted: lambda s, a: s.ledger.commit(a, s.config, s.visit(a), s.plan),
    ev.UnitFailed: lambda s, a: s.ledger.fail(a, s.config, s.failure(a)),
    ev.UnitTrained: lambda s, a: s.ledger.mark_trained(a),
    ev.UnitWithdrawn: lambda s, a: (s.ledger.give_up(a), True),
    ev.NodeDraining: lambda s, _: s.ledger.drain("n", 9.5),
    ev.ConfigCreated: lambda s, _: s.ledger.clone("c0", {"lr": 0.2}),
    ev.ConfigEnded: lambda s, _: s.ledger.stop("c0", "enough"),
}


@pytest.mark.parametrize("faults", SEQUENCES, ids=str)
@pytest.mark.parametrize("event", REPORTS)
def test_with_lost_answers_a_report_happens_once(
    memory_stage: Stage, event: type[Event], faults: tuple[Lost, ...]
) -> None:
    attempt = memory_stage.assigned()
    memory_stage.faults = list(faults)
    assert REPORTS[event](memory_stage, attempt)
    memory_stage.faults = []
    assert memory_stage.kinds(2) == [ev.UnitAssigned, event]


def test_a_withdrawal_behind_a_lost_commit_stands(memory_stage: Stage) -> None:
    stage = memory_stage
    attempt = stage.assigned()

    def withdrawn_meanwhile() -> Lost:
        assert stage.leader.withdraw(attempt)
        return Lost.REQUEST

    ledger = Ledger(losing(stage.store, withdrawn_meanwhile), stage.plan.run)
    assert not ledger.commit(attempt, stage.config, stage.visit(attempt), stage.plan)
    assert ledger.visits() == []


@pytest.mark.parametrize("faults", SEQUENCES, ids=str)
def test_open_register_and_lead_with_lost_answers(faults: tuple[Lost, ...]) -> None:
    stage = Stage(MemoryStore())
    stage.depose()
    ledger, store = stage.ledger, stage.store
    stage.faults = list(faults)
    node = ledger.register(stage.node, lease := store.grant(30))
    assert node == ledger.node("n")
    assert node.registration > stage.node.registration
    assert store.get(ledger.keys.node("n")).lease == lease  # type: ignore[union-attr]

    fresh = Ledger(ledger.store, "fresh")
    stage.faults = list(faults)
    spec = replace(stage.spec, plan=replace(stage.spec.plan, run="fresh"))
    fresh.open_run(spec)
    assert fresh.spec() == spec

    stage.faults = list(faults)
    leader = next(found for _ in range(4) if (found := fresh.lead("me", lease)))
    assert store.get(fresh.keys.leader).create_revision == leader.fence  # type: ignore[union-attr]


@pytest.mark.parametrize("verb", CONTROLLER)
def test_a_lost_answer_raises_in_the_controller(memory_stage: Stage, verb: str) -> None:
    attempt = memory_stage.assigned()
    memory_stage.faults = [Lost.REQUEST]
    with memory_stage.unchanged(), pytest.raises(TxnUnknown):
        CONTROLLER[verb](memory_stage, attempt)


def test_the_history_begins_with_a_node_that_came_before_its_run(store: Store) -> None:
    ledger, plan, lease = Ledger(store, uuid.uuid4().hex), Plan("r", 1, 1), store.grant(30)
    node = ledger.register(Node("early", "host"), lease)
    assert ledger.open_run(Spec(plan, {}, "", "", "", "", {}, "", ""))
    assert [type(event) for event in ledger.history()] == [ev.NodeJoined, ev.RunOpened]
    assert folded(ledger.history()).nodes == {"early": node}
    store.revoke(lease)


def test_a_failure_is_answered_once_and_a_busy_node_not_at_all(stage: Stage) -> None:
    first = failed_once(stage)
    second = failed_once(stage)
    assert stage.leader.quarantine("n", "it fails", second.token, 60.0) is not None
    state = stage.ledger.state()
    assert (state.quarantined, state.quarantined_for, state.streaks["n"].failures) == (
        {"n": "it fails"},
        {"n": second.token},
        2,
    )
    with stage.unchanged():
        assert stage.leader.quarantine("n", "again", second.token, 60.0) is None
    stage.ledger.release_nodes()
    with stage.unchanged():
        for old in (first, second):
            assert stage.leader.quarantine("n", "late", old.token, 60.0) is None
    third = stage.assigned()
    with stage.unchanged():
        assert stage.leader.quarantine("n", "busy", third.token, 60.0) is None
    assert stage.kinds(3) == [
        ev.NodeQuarantined,
        ev.NodeReleased,
        ev.UnitAssigned,
    ]
    assert stage.ledger.commit(third, stage.config, stage.visit(third), stage.plan)
    state = stage.ledger.state()
    assert (state.quarantined, state.quarantined_for, state.streaks) == ({}, {}, {})
