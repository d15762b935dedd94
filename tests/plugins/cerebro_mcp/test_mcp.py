"""An agent reads a run and proposes, also nonsense: over the protocol, on a record in a real etcd."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anyio
import pytest

pytest.importorskip("mcp")

from mcp import Client

from cerebro_elastic import Run
from cerebro_elastic.core.invariants import check
from cerebro_elastic.core.model.configs import Status
from cerebro_elastic.core.model.events import ConfigCreated, ConfigEnded
from cerebro_elastic.extending.running import Allowance
from cerebro_elastic.store.client.embedded import EmbeddedEtcd
from cerebro_mcp.server import server_of
from cerebro_mcp.text import MOST_TOKENS, tokens
from cerebro_mcp.tools import Desk
from support.ledger import Leader, Ledger
from support.live_record import live_record


@pytest.fixture
def record(etcd: EmbeddedEtcd, tmp_path: Path) -> Iterator[Ledger]:
    with live_record(etcd, tmp_path) as ledger:
        yield ledger


@pytest.fixture
def run(record: Ledger, etcd: EmbeddedEtcd) -> Run:
    return Run.open(record.keys.run, store=etcd.settings)


def agent(run: Run, *calls: tuple[str, Any], configs: int = 9, **allowed: Any) -> list[str]:
    """What the agent's calls were answered, one after the other; a refusal begins with that word."""
    return agents(run, calls, configs=configs, **allowed)[0]


def agents(
    run: Run, *scripts: Any, configs: int = 9, units: int | None = None, may_stop: bool = True
) -> list[list[str]]:
    """The same for several agents at once, each with a server of its own."""
    answers: list[list[str]] = [[] for _ in scripts]

    async def play(script: Any, said: list[str]) -> None:
        desk = Desk(run, Allowance("robot", configs, units), may_stop)
        async with Client(server_of(desk)) as client:
            for name, arguments in script:
                result = await client.call_tool(name, arguments)
                said.append(result.content[0].text)
                assert result.is_error == said[-1].startswith("refused: ")

    async def all_at_once() -> None:
        async with anyio.create_task_group() as group:
            for script, said in zip(scripts, answers, strict=True):
                group.start_soon(play, script, said)

    with ThreadPoolExecutor(1) as thread:  # playwright's loop of other tests stays in the main one
        thread.submit(anyio.run, all_at_once).result()
    return answers


def add(lr: Any, act: Any = "relu", reason: Any = "a hunch", **more: Any) -> tuple[str, Any]:
    return "add", {"hparams": {"lr": lr, "act": act}, "reason": reason, **more}


def clone(**given: Any) -> tuple[str, Any]:
    return "add", {"like": "c0000", "hparams": {"lr": 0.02}, "start": "here", "reason": "a hunch", **given}


def test_an_agent_reads_what_was_tried_and_adds_and_stops_with_its_reasons_on_record(
    run: Run, record: Ledger
) -> None:
    board, one, added, cloned, stopped, after = agent(
        run,
        ("leaderboard", {}),
        ("config", {"config": "c0000"}),
        add(0.02),
        clone(hparams={"lr": 0.05}, start="best", reason="it\nfell"),
        ("stop", {"config": "c0001", "reason": " it diverges "}),
        ("leaderboard", {}),
    )
    assert (
        '1. c0000 live, 3 epochs | best 0.9 in epoch 2 | {"act": "relu", "lr": 0.1} | curve 0.5 0.9 0.7'
        in board
    )
    assert "space: lr loguniform: [0.01, 1.0]" in board
    assert "you may add 9 more configs; you may stop configs" in board
    assert one.splitlines()[-3:] == ["3: val_acc 0.7", "2: val_acc 0.9", "1: val_acc 0.5"]
    assert added.startswith("c0002 is added and begins from scratch: ")
    assert cloned.startswith("c0003 is added and begins in epoch 3 with the state of c0000: ")
    assert stopped == "c0001 is stopped in epoch 1"
    assert "c0001 stopped, 0 epochs" in after
    assert "why: it diverges (by robot)" in after
    assert "you may add 7 more configs" in after
    assert "added by robot" in agent(run, ("config", {"config": "c0003"}))[0]
    history = record.history()
    by_agent = [
        event for event in history if isinstance(event, ConfigCreated | ConfigEnded) and event.by_hand
    ]
    reasons = [e.config.reason if isinstance(e, ConfigCreated) else e.reason for e in by_agent]
    assert reasons == ["a hunch (by robot)", "it␤fell (by robot)", "it diverges (by robot)"]
    assert check(history, readable=lambda _ref: True) == []


def test_an_agent_sees_a_config_of_several_trainings_and_all_that_its_proposals_must_satisfy(
    etcd: EmbeddedEtcd, tmp_path: Path
) -> None:
    space = {"opt": {"branches": {"sgd": {"lr": {"loguniform": [0.01, 1.0]}}, "none": {}}}}
    keys = {
        "repeats": 2,
        "search": {"method": "random", "num": 2, "space": space},
        "objective": [{"metric": "val_acc", "mode": "max"}, {"metric": "val_loss"}],
        "constraint": {"metric": "latency_ms", "below": 20},
    }
    with live_record(etcd, tmp_path, **keys) as record:
        run = Run.open(record.keys.run, store=etcd.settings)
        board, one, stopped = agent(
            run,
            ("leaderboard", {}),
            ("config", {"config": "c0000"}),
            ("stop", {"config": "c0001", "reason": "it diverges"}),
        )
        assert "objective val_acc (max), val_loss (min)" in board
        assert "space: opt branches: " in board
        assert "\nspace of opt=sgd: lr loguniform: [0.01, 1.0]\n" in board
        assert "constraint: latency_ms below 20" in board
        assert one.startswith("c0000 live, added by the search, begun at the beginning")
        assert stopped.startswith("c0001")
        statuses = {name: config.status for name, config in record.state().configs.items()}
        assert [statuses[f"c0001.r{repeat}"] for repeat in (0, 1)] == [Status.STOPPED] * 2


def test_a_config_of_several_trainings_is_one_of_the_budget_and_is_added_whole_or_not_at_all(
    etcd: EmbeddedEtcd, tmp_path: Path
) -> None:
    with live_record(etcd, tmp_path, repeats=2) as record:
        run = Run.open(record.keys.run, store=etcd.settings)
        before = record.state()
        assert "the config takes 8 units, and robot may add 7 more of 7" in agent(run, add(0.02), units=7)[0]
        assert record.state() == before
        added, refused = agent(run, add(0.02), add(0.03), configs=1)
        assert added.startswith("c0002 is added")
        assert "the budget is used up" in refused
        assert set(record.state().configs) - set(before.configs) == {"c0002.r0", "c0002.r1"}
        again = agent(run, add(0.02))[0]
        assert "c0002 is this config already (live)" in again
        assert "Its result: live, no value of val_acc yet" in again


NONSENSE = [
    (("addd", {}), "no tool 'addd' exists; did you mean 'add'?"),
    (("config", {"config": "c9"}), "has no config 'c9'"),
    (add(0.02, resaon="x"), "add has no argument 'resaon'; did you mean 'reason'?"),
    (add(0.02, reason=""), "add, argument reason: String should have at least 1 character"),
    (("add", {"hparams": {"lr": 0.02}, "reason": "r"}), "the new config lacks act"),
    (("add", {"hparams": {"lr": 0.02, "act": "relu", "width": 3}, "reason": "r"}), "hyper-parameter 'width'"),
    (add(7.0), "lr=7.0 lies outside the search's space, loguniform: [0.01, 1.0]"),
    (add(10**400), "lr has to be a number"),
    (add(0.02, act="x" * 10**5), "take 100023 bytes: at most 4000"),
    (add(0.1), "c0000 is this config already (live)"),
    (clone(start="there"), "'scratch', 'here' or"),
    (clone(like="best"), "has no config 'best'"),
]  # fmt: skip


def test_nonsense_is_refused_by_name_and_changes_nothing(run: Run, record: Ledger) -> None:
    before = record.state()
    for (call, words), said in zip(NONSENSE, agent(run, *(call for call, _ in NONSENSE)), strict=True):
        assert said.startswith("refused: "), call
        assert words in said, said
        assert tokens(said) <= MOST_TOKENS
    assert record.state() == before


def test_an_agent_may_do_no_more_than_it_was_allowed(run: Run, record: Ledger) -> None:
    calls = add(0.02), ("stop", {"config": "c0001", "reason": "r"})
    assert [said.split("; ")[0] for said in agent(run, *calls, configs=0, may_stop=False)] == [
        "refused: the server is read-only, so add is refused",
        "refused: you may not stop configs",
    ]
    one = clone(hparams={"lr": 0.3})
    said = agent(run, add(0.02), add(0.03), one, one, configs=3, units=6)
    assert "you may add 2 more configs of 2 units in all" in said[0]
    assert "the config takes 4 units, and robot may add 2 more of 6" in said[1]
    assert "you may add 1 more configs of 1 units in all" in said[2]
    assert "c0003 is this config already" in said[3]
    assert "c0004 is added" in agent(run, clone(hparams={"lr": 0.4}), configs=3, units=6)[0]
    assert "the budget is used up: robot may add 3 configs" in agent(run, add(0.06), configs=3)[0]
    assert len(record.state().configs) == 5


def test_two_agents_at_once_add_each_config_once_and_within_their_budget(run: Run, record: Ledger) -> None:
    rates = [0.02, 1, 1.0]
    both = agents(run, *([add(lr) for lr in rates],) * 2, configs=2)
    added = [said for answers in both for said in answers if "is added" in said]
    assert len(added) == 2
    new = [config for name, config in record.state().configs.items() if name > "c0001"]
    assert sorted(config.hparams["lr"] for config in new) == [0.02, 1.0]
    assert all(isinstance(config.hparams["lr"], float) for config in new)
    stops = agents(run, *([("stop", {"config": "c0001", "reason": why})] for why in ("mine", "yours")))
    refused = [answers[0] for answers in stops if answers[0].startswith("refused: ")]
    assert len(refused) == 1
    assert "c0001 is stopped already: " in refused[0]
    assert check(record.history(), readable=lambda _ref: True) == []


def test_a_run_that_has_ended_is_read_and_not_changed(run: Run, record: Ledger) -> None:
    fence = record.store.get(record.keys.leader)
    assert fence is not None
    for name in ("c0000", "c0001"):
        run.stop(name)
    leader = Leader(record, fence.create_revision)
    assert leader.end_run("finished", record.state().asked)
    board, *refused = agent(run, ("leaderboard", {}), add(0.02), ("stop", {"config": "c0000", "reason": "r"}))
    assert "is ended; objective val_acc (max)" in board
    assert all("has ended, and only a live run can be changed" in said for said in refused)
