"""Attempts in this process: real task, data, checkpoints and ledger; only the store is in memory."""

from __future__ import annotations

import faulthandler
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import pytest
import torch
from scene import Scene

from cerebro_elastic.core.history.progress import next_units
from cerebro_elastic.core.model.attempts import Attempt, FailureKind, Member, Prefetch
from cerebro_elastic.core.model.configs import Status
from cerebro_elastic.core.model.events import NodeDraining, UnitCommitted, UnitWithdrawn
from cerebro_elastic.core.model.nodes import Node
from cerebro_elastic.core.model.units import CheckpointRef, Strategy, Unit
from cerebro_elastic.errors import DamagedCheckpoint, StorageError, StoreUnavailable
from cerebro_elastic.hop import checkpoint
from cerebro_elastic.system.cache_space import Room
from cerebro_elastic.worker.state_fetcher import StateFetcher
from support.waiting import SOON


def test_a_unit_is_committed_with_a_readable_checkpoint_and_its_log(scene: Scene) -> None:
    attempt = scene.assign()
    scene.attempts.perform(attempt)
    (visit,) = scene.ledger.visits()
    assert (visit.unit, visit.index_in_epoch, visit.attempt, visit.input) == (
        attempt.unit,
        0,
        attempt.token,
        None,
    )
    assert (visit.samples, visit.batches) == (8, 2)
    assert visit.resources.cpu > 0
    assert visit.resources.memory_bytes > 10**7
    assert (visit.resources.gpu, visit.resources.gpu_bytes) == (0.0, 0), "there is no GPU"
    checkpoint.verify(visit.output)
    assert scene.config.head == visit.output
    assert visit.log is None or json.loads(Path(visit.log).read_text().splitlines()[0])
    assert scene.ledger.assignment("n") is None


def test_a_run_on_half_the_disk_that_its_data_need(make_scene: Callable[..., Scene]) -> None:
    """Each unit has to fetch its partition again, and the controller knows."""
    whole = make_scene("whole", data="memory://whole")
    scene = make_scene("half", data="memory://half", node={"cache_bytes": 600})
    for each in (whole, scene):
        while each.config.status is Status.LIVE:
            each.perform()
    visits = scene.ledger.visits()
    assert len(visits) == 8
    assert [visit.cached for visit in visits] == [(visit.unit.partition,) for visit in visits]
    assert all(visit.fetch_seconds for visit in visits)
    assert scene.ledger.state().nodes["n"].cached == (visits[-1].unit.partition,)
    assert [visit.cached for visit in whole.ledger.visits()] == [None] * 8
    assert [v.output.digest for v in visits] == [v.output.digest for v in whole.ledger.visits()]


@pytest.mark.parametrize("deed", ["raise", "exit", "memory"])
def test_an_error_of_the_users_code_fails_its_unit_and_nothing_else(scene: Scene, deed: str) -> None:
    """Also ``sys.exit(0)``: it would end the rank, and its agent with it, as if all was well."""
    kinds = {"memory": FailureKind.OUT_OF_MEMORY}
    scene.attempts.perform(scene.assign())
    (failure,) = scene.config.failures
    assert failure.kind is kinds.get(deed, FailureKind.EXCEPTION)
    assert "an_act.py" in failure.story
    assert scene.ledger.assignment("n") is None
    assert scene.ledger.node("n") == scene.node


@pytest.mark.parametrize("deed", ["nan"])
def test_a_loss_that_is_not_finite_fails_its_unit(scene: Scene, deed: str) -> None:  # noqa: ARG001
    scene.perform()
    (failure,) = scene.config.failures
    assert failure.kind is FailureKind.NOT_FINITE
    assert "loss is nan" in failure.story
    assert "not_finite: go-on" in failure.story
    assert scene.ledger.visits() == []
    assert not scene.checkpoints.exists()


def test_a_loss_that_is_not_finite_is_accepted_where_the_recipe_says_so(
    make_scene: Callable[..., Scene],
) -> None:
    scene = make_scene(deed="nan", limits={"not_finite": "go-on"})
    scene.perform()
    assert len(scene.ledger.visits()) == 1


@pytest.mark.parametrize(("expected", "seconds"), [(None, 20.0), (1.0, 20.0), (7.0, 35.0)])
def test_a_unit_may_take_as_long_as_such_units_take(
    make_scene: Callable[..., Scene],
    monkeypatch: pytest.MonkeyPatch,
    expected: float | None,
    seconds: float,
) -> None:
    scene, armed = make_scene(limits={"hang_seconds": 20, "hang_factor": 5}), list[float]()
    later = faulthandler.dump_traceback_later

    def arm(timeout: float, **how: Any) -> None:
        armed.append(timeout)
        later(timeout, **how)

    monkeypatch.setattr(faulthandler, "dump_traceback_later", arm)
    scene.attempts.perform(replace(scene.assign(), expected=expected))
    assert {round(each) for each in armed} == {seconds}, "to train, and to save"


def test_the_history_says_that_a_node_leaves_before_what_it_left_undone(scene: Scene) -> None:
    attempt = scene.assign()
    scene.leaving.ask(0.0)
    scene.attempts.perform(attempt)
    with scene.ledger.events(attempt.token + 1) as stream:
        draining, undone = [*stream.next(0), *stream.next(0)]
    assert isinstance(draining, NodeDraining)
    assert isinstance(undone, UnitWithdrawn | UnitCommitted)
    assert not isinstance(undone, UnitCommitted) or not undone.visit.whole


def test_an_attempt_of_yesterday_is_not_begun(scene: Scene) -> None:
    attempt = scene.assign()
    scene.register()
    scene.attempts.perform(attempt)
    assert scene.ledger.visits() == []
    assert not scene.checkpoints.exists()


def test_the_unit_of_another_node_of_the_same_name_is_left_to_it(scene: Scene) -> None:
    """Two nodes of one name see each other's assignments."""
    scene.store.revoke(scene.lease)
    scene.register("another")
    attempt = scene.assign()
    scene.attempts.perform(attempt)
    assert scene.ledger.visits() == []
    assert scene.ledger.assignment("n") == attempt


def test_an_attempt_that_is_done_is_not_done_again(scene: Scene) -> None:
    attempt = scene.assign()
    scene.attempts.perform(attempt)
    before = scene.ledger.revision()
    scene.attempts.perform(attempt)
    assert scene.ledger.revision() == before


def test_a_rank_that_does_not_find_the_lead_of_its_gang_fails_the_unit_at_once(scene: Scene) -> None:
    """No other rank knows the reason: the lead waits for this one."""
    lead = scene.ledger.register(Node("lead", "other", boot="other"), scene.lease)
    (unit, *_), config = next_units(scene.config, scene.plan), scene.config
    attempt = Attempt(
        *(unit, "lead", lead.registration, config.revision),
        strategy=Strategy("ddp", 2, 2),
        gang=(Member("n", scene.node.registration),),
    )
    token = scene.leader.assign(attempt)
    assert token is not None
    attempt = replace(attempt, token=token)
    scene.ledger.announce(attempt, "no-such-host.invalid", 1)
    scene.attempts.perform(attempt)
    (failure,) = scene.config.failures
    assert (failure.node, failure.kind) == ("n", FailureKind.CRASH)
    assert "the name 'no-such-host.invalid' of the host of rank 0 is not known here" in failure.story
    assert scene.ledger.assignment("lead") is None


def test_a_refused_commit_leaves_no_checkpoint(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """The node's lease ends while it trains."""
    attempt, commit = scene.assign(), scene.ledger.commit

    def too_late(*args):  # type: ignore[no-untyped-def]
        scene.register()
        return commit(*args)

    monkeypatch.setattr(scene.ledger, "commit", too_late)
    scene.attempts.perform(attempt)
    assert scene.ledger.visits() == []
    assert list(scene.checkpoints.iterdir()) == []


def test_a_store_out_of_reach_at_the_commit_ends_the_rank_and_keeps_its_work(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it was committed nobody knows here: the checkpoint stays."""

    def unreachable(*_: object) -> None:
        raise StoreUnavailable("away for 10 s")

    attempt = scene.assign()
    monkeypatch.setattr(scene.store, "txn", unreachable)
    with pytest.raises(StoreUnavailable):
        scene.attempts.perform(attempt)
    assert len(list(scene.checkpoints.iterdir())) == 1


def not_repaired(_ref: CheckpointRef, damage: DamagedCheckpoint) -> None:
    raise damage


@pytest.fixture
def state_fetcher() -> Iterator[StateFetcher]:
    fetched: list[int] = []
    state_fetcher = StateFetcher(lambda partition, _beat, _room: fetched.append(partition), not_repaired)
    yield state_fetcher
    state_fetcher.close()


def saved(folder: Path, value: float) -> CheckpointRef:
    return checkpoint.save({"w": torch.full((3,), value)}, str(folder / str(value)))


def test_a_state_fetched_ahead_is_the_state(state_fetcher: StateFetcher, tmp_path: Path) -> None:
    one, two = saved(tmp_path, 1.0), saved(tmp_path, 2.0)
    state_fetcher.prefetch(Prefetch(0, one))
    assert state_fetcher.load(one)["w"].tolist() == [1.0] * 3
    state_fetcher.prefetch(Prefetch(0, one))
    assert state_fetcher.load(two)["w"].tolist() == [2.0] * 3
    assert state_fetcher.load(None) is None


def test_the_state_of_a_queued_unit_is_loaded_ahead_once(
    state_fetcher: StateFetcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads: list[CheckpointRef] = []

    def load(ref: CheckpointRef, part: Any = None) -> Any:
        loads.append(ref)
        return real_load(ref, part)

    real_load = checkpoint.load
    monkeypatch.setattr(checkpoint, "load", load)
    one, two, three = (saved(tmp_path, value) for value in (1.0, 2.0, 3.0))
    refs = {4: one, 5: two, 6: three}

    def queued(token: int) -> Attempt:
        unit = Unit(f"c{token}", 0, 0)
        return Attempt(unit, "n", 1, 1, refs[token], token=token, queued_behind=token - 1)

    state_fetcher.queued(queued(4))
    state_fetcher.prefetch(Prefetch(0, one))
    state_fetcher.queued(queued(5))  # the unit ahead, 4, has not loaded its state yet
    assert state_fetcher.load(one)["w"].tolist() == [1.0] * 3
    assert state_fetcher.load(two)["w"].tolist() == [2.0] * 3
    assert loads == [one, two]
    state_fetcher.queued(queued(6))
    assert state_fetcher.load(two)["w"].tolist() == [2.0] * 3, "4 and 5 are over, 6 was withdrawn"
    state_fetcher.queued(replace(queued(6), token=8, queued_behind=7))
    assert list(state_fetcher._queued) == [8], "no state is held of what is over"


def test_a_fetch_ahead_is_broken_off_when_the_rank_ends() -> None:
    partial_unit, broken = Event(), list[Exception]()

    def fetch(_partition: int, beat: Callable[[], None], _room: Room) -> None:
        partial_unit.set()
        deadline = time.monotonic() + SOON
        try:
            while time.monotonic() < deadline:
                beat()
        except StorageError as error:
            broken.append(error)

    state_fetcher = StateFetcher(fetch, not_repaired)
    state_fetcher.prefetch(Prefetch(0))
    assert partial_unit.wait(60)
    state_fetcher.close()
    assert len(broken) == 1


def test_a_damaged_input_is_repaired_and_the_unit_goes_on(scene: Scene) -> None:
    scene.attempts.perform(scene.assign())
    head = scene.config.head
    assert head is not None
    for file in Path(head.url).iterdir():
        file.write_bytes(file.read_bytes()[:-1])
    scene.attempts.perform(scene.assign())
    assert scene.config.failures == ()
    checkpoint.verify(head)
    assert [visit.input for visit in scene.ledger.visits()] == [None, head]
