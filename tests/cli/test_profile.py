"""The table of profiles, for people and for machines."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from cerebro_elastic.core.model.attempts import Attempt, Failure, FailureKind, Visit
from cerebro_elastic.core.model.configs import Config
from cerebro_elastic.core.model.nodes import Node
from cerebro_elastic.core.model.units import Phase, Strategy, Unit
from cerebro_elastic.store.client.base import Delete
from cerebro_elastic.system.run_key import RunKey
from support.commands import Cerebro
from support.hashing import BATCHES, Worker
from support.ledger import Ledger

SINGLE, DDP, FSDP = Strategy(), Strategy("ddp", 2), Strategy("fsdp", 2, options={"offload": True})


class Profiled:
    """A config with profiles of two strategies of three: one is refused, the other trains it."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        lease = ledger.store.grant(60)
        leader = ledger.lead("a-leader", lease)
        assert leader is not None
        self.leader = leader
        self.node = ledger.register(Node("a", "host", hardware="A100"), lease)
        leader.create_config(Config("c0000", {"lr": 0.1}))
        single = self.worker(SINGLE, Phase.PROFILE)
        assert ledger.record_profile(single.attempt, replace(single.profile(2.0), bytes=2_000_000))
        ddp = self.worker(DDP, Phase.PROFILE)
        assert ledger.record_profile(ddp.attempt, ddp.profile(2.0, refusal="nothing is trainable"))

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
def profiled(ledger: Ledger) -> Iterator[Profiled]:
    spec = ledger.spec()
    assert spec is not None
    run = f"{ledger.keys.run}-profiled"
    other = Ledger(ledger.store, run, RunKey.from_env(os.environ))
    other.open_run(replace(spec, plan=replace(spec.plan, run=run, epochs=9, strategies=(SINGLE, DDP, FSDP))))
    yield Profiled(other)
    other.store.txn([], [Delete(item.key) for item in other.store.range(other.keys.prefix).items])


def rows(cerebro: Cerebro, profiled: Profiled, at_etcd: list[str]) -> dict[str, dict[str, Any]]:
    said = cerebro("status", profiled.ledger.keys.run, "--json", *at_etcd)
    assert (said.code, said.err) == (0, "")
    return {row["strategy"]: row for row in json.loads(said.out)["profiles"]}


def test_the_table_has_each_strategy(profiled: Profiled, at_etcd: list[str], cerebro: Cerebro) -> None:
    table = rows(cerebro, profiled, at_etcd)
    assert list(table) == ["single", "ddp x2", "fsdp x2 offload=True"]
    single, ddp, fsdp = table.values()
    assert {row["config"] for row in table.values()} == {"c0000"}
    assert {row["hardware"] for row in table.values()} == {"A100"}
    assert (single["seconds"], single["bytes"], single["units"], single["used"]) == (6.0, 2_000_000, 0, True)
    assert (ddp["seconds"], ddp["refusal"], ddp["used"]) == (None, "nothing is trainable", False)
    assert (fsdp["seconds"], fsdp["refusal"]) == (None, None)
    profiled.train()
    refined = rows(cerebro, profiled, at_etcd)["single"]
    assert (refined["seconds"], refined["units"]) == (9.0, 1), "the profile said 6, the unit took 12"
    shown = " ".join(cerebro("status", profiled.ledger.keys.run, "--verbose", *at_etcd).out.split())
    assert (
        "c0000 on A100 strategy s/unit MB/rank units single 9 2 1 fastest "
        "ddp x2 - - 0 refused: nothing is trainable fsdp x2 offload=True - - 0 not profiled"
    ) in shown


def test_a_unit_that_ran_out_of_memory_refuses_its_strategy(
    profiled: Profiled, at_etcd: list[str], cerebro: Cerebro
) -> None:
    profiled.run_out_of_memory()
    single = rows(cerebro, profiled, at_etcd)["single"]
    assert (single["refusal"], single["used"]) == ("it took 9 GB", False)
