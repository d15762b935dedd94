"""The table of trials, for people and for machines."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from cerebro_elastic.core.model.attempts import Attempt, Failure, FailureKind, Visit
from cerebro_elastic.core.model.configs import Config
from cerebro_elastic.core.model.nodes import Node
from cerebro_elastic.core.model.units import Phase, Strategy, Unit
from cerebro_elastic.run_key import RunKey
from cerebro_elastic.store.client.base import Delete
from support.hashing import BATCHES, Worker
from support.ledger import Ledger

Cerebro = Callable[..., Any]
SINGLE, DDP, FSDP = Strategy(), Strategy("ddp", 2), Strategy("fsdp", 2, options={"offload": True})


class Choosing:
    """A config that has been tried by two choices of three, refused by one, and trained by the other."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        lease = ledger.store.grant(60)
        leader = ledger.lead("a-leader", lease)
        assert leader is not None
        self.leader = leader
        self.node = ledger.register(Node("a", "host", hardware="A100"), lease)
        leader.create_config(Config("c0000", {"lr": 0.1}))
        single = self.worker(SINGLE, Phase.PROFILE)
        assert ledger.record_profile(single.attempt, replace(single.trial(2.0), bytes=2_000_000))
        ddp = self.worker(DDP, Phase.PROFILE)
        assert ledger.record_profile(ddp.attempt, ddp.trial(2.0, refusal="nothing is trainable"))

    def worker(self, strategy: Strategy, phase: Phase = Phase.TRAIN) -> Worker:
        config = self.ledger.config("c0000")
        assert config is not None
        unit = Unit("c0000", 0, 0, phase)
        attempt = Attempt(
            unit, "a", self.node.registration, config.revision, config.head, strategy, hardware="A100"
        )
        token = self.leader.assign(attempt)
        assert token is not None
        return Worker(replace(attempt, token=token), config)

    def train(self) -> Visit:
        worker, spec = self.worker(SINGLE), self.ledger.spec()
        assert spec is not None
        visit = worker.train(BATCHES, 4.0)
        assert self.ledger.commit(worker.attempt, worker.config, visit, spec.plan)
        return visit

    def run_out_of_memory(self) -> None:
        worker = self.worker(SINGLE)
        failure = Failure(
            worker.attempt.unit,
            "a",
            worker.attempt.token,
            FailureKind.OUT_OF_MEMORY,
            "it took 9 GB",
            SINGLE,
            "A100",
        )
        assert self.ledger.fail(worker.attempt, worker.config, failure)


@pytest.fixture
def choosing(ledger: Ledger) -> Iterator[Choosing]:
    spec = ledger.spec()
    assert spec is not None
    run = f"{ledger.keys.run}-choosing"
    other = Ledger(ledger.store, run, RunKey.from_env(os.environ))
    other.open_run(replace(spec, plan=replace(spec.plan, run=run, epochs=9, strategies=(SINGLE, DDP, FSDP))))
    yield Choosing(other)
    other.store.txn([], [Delete(item.key) for item in other.store.range(other.keys.prefix).items])


def rows(cerebro: Cerebro, choosing: Choosing, at_etcd: list[str]) -> dict[str, dict[str, Any]]:
    said = cerebro("trials", choosing.ledger.keys.run, "--json", *at_etcd)
    assert (said.code, said.err) == (0, "")
    return {row["choice"]: row for row in json.loads(said.out)["trials"]}


def test_the_table_tells_each_choice(choosing: Choosing, at_etcd: list[str], cerebro: Cerebro) -> None:
    told = rows(cerebro, choosing, at_etcd)
    assert list(told) == ["single", "ddp x2", "fsdp x2 offload=True"]
    single, ddp, fsdp = told.values()
    assert {row["config"] for row in told.values()} == {"c0000"}
    assert {row["hardware"] for row in told.values()} == {"A100"}
    assert (single["seconds"], single["bytes"], single["units"], single["used"]) == (6.0, 2_000_000, 0, True)
    assert (ddp["seconds"], ddp["refusal"], ddp["used"]) == (None, "nothing is trainable", False)
    assert (fsdp["seconds"], fsdp["refusal"]) == (None, None)
    choosing.train()
    refined = rows(cerebro, choosing, at_etcd)["single"]
    assert (refined["seconds"], refined["units"]) == (9.0, 1), "the trial said 6, the unit took 12"
    shown = " ".join(cerebro("trials", choosing.ledger.keys.run, *at_etcd).out.split())
    assert shown == (
        "c0000 on A100 choice s/unit MB/rank units single 9 2 1 fastest "
        "ddp x2 - - 0 refused: nothing is trainable fsdp x2 offload=True - - 0 untried"
    )


def test_a_unit_that_ran_out_of_memory_refuses_its_choice(
    choosing: Choosing, at_etcd: list[str], cerebro: Cerebro
) -> None:
    choosing.run_out_of_memory()
    single = rows(cerebro, choosing, at_etcd)["single"]
    assert (single["refusal"], single["used"]) == ("it took 9 GB", False)


def test_a_long_story_is_cut_for_people(choosing: Choosing, at_etcd: list[str], cerebro: Cerebro) -> None:
    worker = choosing.worker(FSDP, Phase.PROFILE)
    story = "out of memory:\n" + "a lot of numbers\n" * 500
    assert choosing.ledger.record_profile(worker.attempt, worker.trial(2.0, refusal=story))
    said = cerebro("trials", choosing.ledger.keys.run, *at_etcd)
    assert len(said.out.splitlines()) < 20
    assert rows(cerebro, choosing, at_etcd)["fsdp x2 offload=True"]["refusal"] == story


def test_with_one_choice_there_is_nothing_to_tell(
    ledger: Ledger, at_etcd: list[str], cerebro: Cerebro
) -> None:
    said = cerebro("trials", ledger.keys.run, *at_etcd)
    assert said.code == 0
    assert f"run {ledger.keys.run} trains by single and tries nothing else" in said.out
