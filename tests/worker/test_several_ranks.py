"""Units on several ranks, live: on the two of one node, and in gangs of nodes; what fails, fails alone."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from stage import Stage

from cerebro_elastic.core.history.progress import advance, next_units
from cerebro_elastic.core.model.attempts import FailureKind, Visit
from cerebro_elastic.core.model.configs import Config
from cerebro_elastic.core.model.units import Strategy
from cerebro_elastic.hop import checkpoint
from cerebro_elastic.store.client.embedded import EmbeddedEtcd
from cerebro_elastic.system import forkserver
from cerebro_elastic.training.unit_runner import UnitRunner
from support.processes import ranks_of
from support.waiting import SOON, wait_for

pytestmark = pytest.mark.cluster

MODULE = """
import functools
import time
import torch
from torch import nn
from cerebro_elastic.training.parallel.collectives import ranks

@functools.cache
def kept():
    return []


def model(dropout=0.0):
    return nn.Sequential(nn.Linear(3, 8), nn.Dropout(dropout), nn.Tanh(), nn.Linear(8, 3))


def prepared(batch, deed):
    if deed == "raise" and ranks()[0] == 1:
        raise ValueError("not to the liking of rank 1")
    if deed == "pause":
        time.sleep(0.1)
    if deed == "keep":
        kept().append(torch.ones(10_000_000))
    return batch
"""

DDP = Strategy("ddp", 2)
FSDP = Strategy("fsdp", 2)
OVER = Strategy("fsdp", 2, 2)
THREE = Strategy("fsdp", 3, 2)
ROWS, BATCH = 100, 7
"""40 rows a partition: the last batch has five, which two ranks do not divide."""


def source() -> dict[str, np.ndarray]:
    x = np.random.default_rng(0).normal(size=(ROWS, 3)).astype(np.float32)
    return {"x": x, "y": x.argmax(1)}


@dataclass
class Play:
    """A stage with a node of two ranks and one of one."""

    stage: Stage
    pair: forkserver.Process
    one: forkserver.Process

    def unit(self, config: str, nodes: list[str], strategy: Strategy) -> Visit:
        attempt = self.stage.assign(config, nodes, strategy)
        self.stage.done(attempt)
        visit = self.stage.ledger.visits()[-1]
        failures = self.stage.config(config).failures
        # A text, so that pytest shows the whole of it.
        assert visit.attempt == attempt.token, "\n".join(f"{f.node}: {f.kind}: {f.story}" for f in failures)
        return visit


@pytest.fixture(scope="module")
def play(etcd: EmbeddedEtcd, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Play]:
    with ExitStack() as stack:
        folder = tmp_path_factory.mktemp("play")
        strategies = (Strategy(), DDP, FSDP, OVER, THREE)
        stage = Stage(folder, etcd, stack, MODULE, source, strategies=strategies, batch_size=BATCH)
        play = Play(stage, stage.start("pair", 2), stage.start("one", 1, CEREBRO_GROWTH="150M"))
        wait_for(lambda: len(stage.said("pair", "ready")) == 2 and stage.said("one", "ready"), "the nodes")
        yield play


WAYS = [(["pair"], DDP), (["one", "pair"], OVER), (["pair"], FSDP), (["pair", "one"], THREE)]


@pytest.mark.usefixtures("imports_as_found")
def test_a_config_hops_over_nodes_and_gangs_and_ends_where_it_would_have_alone(play: Play) -> None:
    play.stage.create("a")
    visits = [play.unit("a", nodes, strategy) for nodes, strategy in WAYS]
    assert [(v.strategy, v.nodes) for v in visits] == [(strategy, tuple(nodes)) for nodes, strategy in WAYS]
    assert {(v.samples, v.batches) for v in visits} == {(40, 6)}

    unit_runner = UnitRunner(play.stage.spec, play.stage.folder / "cache", "cpu")
    at, state = Config("a", {"deed": "train", "lr": 0.01}), None
    for visit in visits:
        alone = unit_runner.perform(unit_runner.job(at, next_units(at, play.stage.plan)[0], state))
        assert visit.metrics == pytest.approx(alone.metrics, rel=1e-5)
        state, at = alone.state, advance(at, visit, play.stage.plan)
    assert state is not None
    hopped = checkpoint.load(visits[-1].output)
    for key, value in state["model"].items():
        assert torch.allclose(hopped["model"][key], value, rtol=1e-5, atol=1e-6), key
    assert (hopped["step"], hopped["scheduler"]) == (state["step"], state["scheduler"])


def test_a_failure_on_one_rank_is_reported_and_ends_the_attempt_for_all(play: Play) -> None:
    before = ranks_of(play.pair.pid), ranks_of(play.one.pid)
    play.stage.create("fails", deed="raise")
    play.stage.done(play.stage.assign("fails", ["one", "pair"], OVER))
    (failure,) = play.stage.config("fails").failures
    assert (failure.kind, failure.node, failure.strategy) == (FailureKind.EXCEPTION, "pair", OVER)
    assert "not to the liking of rank 1" in failure.story
    play.stage.create("goes-on")
    play.unit("goes-on", ["one", "pair"], OVER)
    assert (ranks_of(play.pair.pid), ranks_of(play.one.pid)) == before


def test_a_checkpoint_in_parts_that_was_damaged_is_made_again(play: Play) -> None:
    """By the rank that leads, in processes of its own; the other waits for it."""
    play.stage.create("damaged")
    head = play.unit("damaged", ["pair"], FSDP).output
    for file in Path(head.url).iterdir():
        file.write_bytes(file.read_bytes()[:-1])
    after = play.unit("damaged", ["one", "pair"], OVER)
    assert after.input == head
    checkpoint.verify(head)
    assert play.stage.said("one", "repaired a damaged checkpoint")
    assert play.stage.config("damaged").failures == ()


def test_a_rank_whose_memory_has_grown_starts_anew_and_nobody_notices(play: Play) -> None:
    """Each unit keeps 240 MB for good. Memory counts from what a process has after its first unit."""
    stage, before = play.stage, (ranks_of(play.one.pid), play.stage.node("one"))
    ready = len(stage.said("one", "ready"))
    stage.create("keeps", deed="keep")
    for units, (nodes, strategy) in enumerate(((["one"], Strategy()), (["one", "pair"], OVER)), 1):
        play.unit("keeps", nodes, strategy)
        play.unit("keeps", nodes, strategy)
        wait_for(lambda n=units: len(stage.said("one", "ready")) == ready + n, "a fresh process")  # type: ignore[misc]
    assert (ranks_of(play.one.pid), stage.node("one")) == before
    assert stage.config("keeps").failures == ()
    assert len(stage.said("one", "restarting: memory has grown")) == 2


def test_a_rank_killed_inside_a_gang_ends_the_attempt_and_no_other_process(play: Play) -> None:
    before, (victim,) = ranks_of(play.pair.pid), ranks_of(play.one.pid)
    ready = len(play.stage.said("one", "ready"))
    play.stage.create("loses", deed="pause")
    attempt = play.stage.assign("loses", ["pair", "one"], THREE)
    play.stage.partial_unit(attempt, "one")
    os.kill(victim, signal.SIGKILL)
    play.stage.done(attempt)
    (failure,) = play.stage.config("loses").failures
    assert (failure.kind, failure.node) == (FailureKind.CRASH, "one")
    wait_for(lambda: len(play.stage.said("one", "ready")) == ready + 1, "the rank to be started anew")
    visit = play.unit("loses", ["pair", "one"], THREE)
    assert visit.nodes == ("pair", "one")
    assert ranks_of(play.pair.pid) == before


def test_a_rank_killed_takes_its_node_down_and_up_again(play: Play) -> None:
    """Its sibling ends, too, as torchrun has it; the node does not leave."""
    before, (other,) = ranks_of(play.pair.pid), ranks_of(play.one.pid)
    play.stage.create("dies", deed="pause")
    attempt = play.stage.assign("dies", ["one", "pair"], THREE)
    play.stage.partial_unit(attempt, "one")
    ready = len(play.stage.said("pair", "ready"))
    os.kill(before[1], signal.SIGKILL)
    play.stage.done(attempt)
    (failure,) = play.stage.config("dies").failures
    assert (failure.kind, failure.node) == (FailureKind.CRASH, "pair"), failure.story
    wait_for(lambda: len(play.stage.said("pair", "ready")) == ready + 2, "both ranks to be started anew")
    assert play.stage.node("pair").drain is None
    play.unit("dies", ["one", "pair"], THREE)
    assert ranks_of(play.one.pid) == [other]


def test_a_member_that_leaves_takes_what_is_done_with_it(play: Play) -> None:
    """All ranks stop at the same batch; another choice takes up the rest."""
    play.stage.create("leaves", deed="pause", batch_size=1)
    attempt = play.stage.assign("leaves", ["pair", "one"], THREE)
    play.stage.partial_unit(attempt, "one")
    assert play.stage.ledger.drain("one", 1.0)
    play.stage.done(attempt)
    part = play.stage.ledger.visits()[-1]
    assert (part.attempt, part.whole) == (attempt.token, False)
    assert 0 < part.batches < 40
    assert play.stage.node("pair").drain is None
    rest = play.unit("leaves", ["pair"], DDP)
    assert (rest.skip, rest.skip + rest.batches, rest.whole) == (part.batches, 40, True)
    assert play.one.wait(SOON) == 0
