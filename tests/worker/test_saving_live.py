"""States saved behind the next unit, live: a node by real torchrun, on an S3 that takes its time."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from stage import Stage

from cerebro_elastic.core.history.lineage import history
from cerebro_elastic.core.invariants import check
from cerebro_elastic.core.model.attempts import FailureKind
from cerebro_elastic.core.model.events import UnitAssigned, UnitCommitted, UnitFailed, UnitTrained
from cerebro_elastic.core.model.units import Strategy
from cerebro_elastic.store.client.embedded import EmbeddedEtcd
from cerebro_elastic.system import forkserver
from cerebro_elastic.worker.offline.visit_replayer import VisitReplayer
from support.processes import ranks_of
from support.proxy import Bad, BadProxy, Request
from support.waiting import wait_for

pytestmark = pytest.mark.cluster

MODULE = """
from torch import nn


def model():
    return nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 3))


def prepared(batch, deed):
    return batch
"""


def source() -> dict[str, np.ndarray]:
    x = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    return {"x": x, "y": x.argmax(1)}


@pytest.fixture
def stage(etcd: EmbeddedEtcd, s3: BadProxy, tmp_path: Path) -> Iterator[Stage]:  # noqa: ARG001
    with ExitStack() as stack:
        made = Stage(
            *(tmp_path, etcd, stack, MODULE, source),
            strategies=(Strategy(),),
            batch_size=4,
            storage="s3://bucket/storage",
        )
        for name in ("first", "second"):
            made.create(name)
        yield made


def late(config: str) -> Callable[[Request], Bad | None]:
    """What is written of this config's checkpoints comes late."""

    def plan(request: Request) -> Bad | None:
        written = request.method in ("PUT", "POST") and f"/checkpoints/{config}/" in request.path
        return Bad.LATE if written else None

    return plan


def differ_from_their_replay(stage: Stage) -> list[str]:
    """The configs whose visits, done again, give another digest."""
    visits, state, different = stage.ledger.visits(), stage.ledger.state(), []
    with VisitReplayer(stage.spec, stage.folder / "cache", "cpu") as replayer:
        for name in state.configs:
            own = [visit for visit in visits if visit.unit.config == name]
            for at, visit in history(name, state.configs, {name: own}, stage.plan):
                url = f"{stage.folder}/again/{name}-{visit.attempt}"
                if replayer(at, visit, visit.input, url).visit.output.digest != visit.output.digest:
                    different.append(name)
    return different


@pytest.mark.usefixtures("imports_as_found")
def test_the_next_unit_begins_before_the_last_one_is_committed(stage: Stage, s3: BadProxy) -> None:
    """And who is killed meanwhile loses what is saved, and nothing else."""
    node = stage.start("n", 1)
    wait_for(lambda: stage.said("n", "ready"), "the node")
    save_behind_the_next(stage, s3)
    die_in_a_save(stage, s3, node)
    assert [v.unit.config for v in stage.ledger.visits()] == ["first", "second", "first"]
    assert check(stage.ledger.history()) == []
    assert differ_from_their_replay(stage) == []


def save_behind_the_next(stage: Stage, s3: BadProxy) -> None:
    s3.plan = late("first")
    stage.assign("first", ["n"], Strategy())
    wait_for(lambda: stage.ledger.saving("n"), "the first unit to be trained")
    second = stage.assign("second", ["n"], Strategy())
    stage.partial_unit(second, "n")
    assert stage.ledger.visits() == []
    s3.reset()
    stage.done(second)
    assert stage.ledger.attempt_events()[:4] == [
        *((UnitAssigned, "first"), (UnitTrained, "first"), (UnitAssigned, "second"), (UnitCommitted, "first"))
    ]
    assert stage.ledger.attempt_events()[-1] == (UnitCommitted, "second")


def die_in_a_save(stage: Stage, s3: BadProxy, node: forkserver.Process) -> None:
    s3.plan = late("first")
    stage.assign("first", ["n"], Strategy())
    wait_for(lambda: stage.ledger.saving("n"), "the second unit to be trained")
    os.kill(ranks_of(node.pid)[0], signal.SIGKILL)
    (failure,) = wait_for(lambda: stage.config("first").failures, "the failure")
    assert (failure.kind, stage.ledger.attempt_events()[-1]) == (FailureKind.CRASH, (UnitFailed, "first"))
    s3.reset()
    wait_for(lambda: len(stage.said("n", "ready")) == 2, "the rank to be there again")
    stage.done(stage.assign("first", ["n"], Strategy()))
