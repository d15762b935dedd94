"""People decide on configs while a run goes on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import reduce
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from cerebro_elastic import Run
from cerebro_elastic.config import StoreSettings
from cerebro_elastic.core.history.machine import fold
from cerebro_elastic.core.invariants import check
from cerebro_elastic.core.model.configs import Status
from cerebro_elastic.core.model.state import State
from cerebro_elastic.front_end.live_page.actions import ACTIONS
from cerebro_elastic.runs.verbs import Add, Extend, Retry, Verb, as_words
from cerebro_elastic.store.client.base import Delete
from cerebro_elastic.store.client.embedded import EmbeddedEtcd
from support.commands import Cerebro, assert_shape
from support.ledger import Leader, Ledger
from support.live_record import live_record
from support.pages import parsed


@pytest.fixture
def run(etcd: EmbeddedEtcd, project: Path) -> Iterator[Ledger]:
    with live_record(etcd, project) as ledger:
        yield ledger


def test_stop_and_resume(run: Ledger, at_etcd: list[str], cerebro: Cerebro) -> None:
    said = cerebro("stop", run.keys.run, "c0001", "--reason", "diverges", *at_etcd)
    assert (said.code, said.err) == (0, "")
    assert "c0001 is stopped in epoch 1; `resume` continues it" in said.out
    stopped = run.state().configs["c0001"]
    assert (stopped.status, stopped.reason, stopped.by_hand) == (Status.STOPPED, "diverges", True)
    printed = cerebro("stop", run.keys.run, "c0001", "--json", *at_etcd).out
    assert_shape("stop", printed)
    again = json.loads(printed)
    assert (again["config"], again["epoch"]) == ("c0001", 0), "once more changes nothing"
    assert run.state().configs["c0001"] == stopped
    said = cerebro("resume", run.keys.run, "c0001", *at_etcd)
    assert (said.code, said.out) == (0, "c0001 continues in epoch 1\n")
    assert run.state().configs["c0001"].status is Status.LIVE
    run.store.txn([], [Delete(run.keys.leader)])
    said = cerebro("stop", run.keys.run, "--all", "--by", "Ada", *at_etcd)
    assert "but no controller leads it: it ends once one does" in said.err
    ended = [(config.status, config.reason) for config in run.state().configs.values()]
    assert ended == [(Status.STOPPED, "the run was ended by hand (by Ada)")] * 2


def test_a_failed_config_is_tried_again_by_command_and_on_the_page(
    run: Ledger, at_etcd: list[str], cerebro: Cerebro
) -> None:
    name, live = run.keys.run, Run.open(run.keys.run, store=StoreSettings.at(at_etcd[1]))

    def fail() -> None:
        fence, config = run.store.get(run.keys.leader), run.config("c0001")
        assert fence is not None
        assert config is not None
        Leader(run, fence.create_revision).end_config(config, Status.FAILED, "boom")

    assert "no config of run" in cerebro("retry", name, *at_etcd).err
    fail()
    assert f"has failed: to have it tried again: cerebro retry {name} c0001" in (
        cerebro("resume", name, "c0001", *at_etcd).err
    )
    said = cerebro("retry", name, "c0000", *at_etcd)
    assert (said.code, "config c0000 is live: only a failed one is tried again" in said.err) == (1, True)
    said = cerebro("retry", name, "--by", "me", *at_etcd)
    assert (said.code, said.err) == (0, "")
    assert "1 failed config (c0001) will be tried again: run" in said.out
    config = run.state().configs["c0001"]
    assert (config.status, config.reason, config.by_hand) == (Status.LIVE, "tried again by me", False)
    fail()
    assert ACTIONS["retry"](by="you").perform(live).said == "1 failed config will be tried again: c0001."
    assert run.state().configs["c0001"].reason == "tried again by you"
    assert check(run.history(), readable=lambda _ref: True) == []
    assert reduce(fold, run.history(), State()).configs == run.state().configs


@pytest.mark.parametrize(
    ("verb", "expected"),
    [
        (Extend(epochs=3, configs=["c0", "c1"]), {"epochs": 3, "configs": ["c0", "c1"], "num": None}),
        (
            Extend(num=9, budget={"units": 4, "timeout": 5}),
            {"num": 9, "budget": ["units=4.0", "timeout=5.0"]},
        ),
        (Retry(configs=["c0", "c1"], by="Ada L."), {"configs": ["c0", "c1"], "by": "Ada L."}),
        (Add(hparams={"lr": "1"}, like="c0", start="best"), {"hparams": ["lr=1"], "start": "best"}),
    ],
)
def test_a_command_is_started_with_the_arguments_of_a_verb(verb: Verb, expected: dict[str, Any]) -> None:
    given = parsed(["cerebro", type(verb).__name__.lower(), "a-run", *as_words(verb)])
    assert {name: given[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("start", "words", "epoch", "checkpoint"),
    [
        ("here", "in epoch 4 with the state of c0000", 3, "/states/2"),
        ("best", "in epoch 3 with the state of c0000", 2, "/states/1"),
        ("scratch", "from scratch", 0, None),
    ],
)
def test_added_configs_begin_at_the_given_checkpoint(
    run: Ledger,
    at_etcd: list[str],
    cerebro: Cerebro,
    start: str,
    words: str,
    epoch: int,
    checkpoint: str | None,
) -> None:
    said = cerebro("add", run.keys.run, "lr=1e-2", "act=tanh", "--like", "c0000", "--from", start, *at_etcd)
    assert (said.code, said.err) == (0, "")
    assert said.out == f"c0002 is added and begins {words}: act=tanh lr=0.01\n"
    new = run.state().configs["c0002"]
    assert dict(new.hparams) == {"lr": 0.01, "act": "tanh"}
    assert (new.epoch, new.head and new.head.url, new.by_hand) == (epoch, checkpoint, True)
    assert check(run.history(), readable=lambda _ref: True) == []
    assert reduce(fold, run.history(), State()).configs["c0002"] == new


def test_a_config_like_one_without_a_state_begins_from_scratch(
    run: Ledger, at_etcd: list[str], cerebro: Cerebro
) -> None:
    said = cerebro("add", run.keys.run, "lr=5", "--like", "c0001", "--from", "here", *at_etcd)
    assert said.out == ("c0002 is added and begins from scratch, as c0001 has no state yet: act=relu lr=5\n")


def test_the_same_from_python(run: Ledger, at_etcd: list[str]) -> None:
    live = Run.open(run.keys.run, store=StoreSettings.at(at_etcd[1]))
    assert live.status().phase == "running"
    assert live.stop("c0000").status is Status.STOPPED
    new = live.add({"lr": 1}, like="c0000", start="best")
    assert new.parent is not None
    assert (new.parent.config, new.hparams["lr"]) == ("c0000", 1)
    assert live.resume("c0000").status is Status.LIVE
    followed = live.follow()
    assert set(next(followed).state.configs) == {"c0000", "c0001", new.id}
    live.stop(new.id)
    assert any(view.state.configs[new.id].status is Status.STOPPED for view in islice(followed, 50))
    with pytest.raises(TimeoutError, match="it continues"):
        live.wait(0.1)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["stop"], "name a config of run"),
        (["stop", "c0000", "--all"], "or give --all to end the whole run"),
        (["add", "lr=0.3", "act=tanh", "--from", "best"], "name that config with --like"),
        (["stop", "c9"], "has no config 'c9'; choices: c0000, c0001"),
        (["add", "--like", "c0000", "width=3"], "has no hyper-parameter 'width'; choices: act, lr"),
        (["add", "--like", "c0000", "lr"], "'lr' is not KEY=VALUE"),
        (["add", "--like", "c0000", "lr=abc"], "lr='abc': lr has to be a number; c0000 has 0.1"),
        (["add", "--like", "c0000", "lr=true"], "lr=True: lr has to be a number"),
        (["add", "--like", "c0000", "lr=.nan"], "lr=nan: lr has to be a number"),
        (["add", "--like", "c0000", "lr=[0.1"], "lr is '[0.1', which is no value: write it as in a recipe"),
        (["add", "--like", "c0000", "act=3"], "act=3: act has to be one of 'relu'"),
        (
            ["add", "--like", "c0000", "lr=0.1", "--from", "scratch"],
            "c0000 is this config already (live): it has the same",
        ),
        (["resume", "c0000"], "config 'c0000' is live: only a stopped one can be resumed"),
        (
            ["add", "--like", "c0001", "--from", "best"],
            "has no best epoch yet: none has ended with a finite value of 'val_acc'",
        ),
        (["add", "--like", "c0000", "--from", "there"], "'there' is not one of"),
        (["extend", "--budget", "units=many"], "extend, argument budget: could not convert"),
        (["extend", "--budget", "units"], "'units' is not KEY=VALUE"),
        (
            ["drain", "n", "--grace", "-1"],
            "drain, argument grace: Input should be greater than or equal to 0",
        ),
    ],
)
def test_an_impossible_request_is_reported(
    run: Ledger, at_etcd: list[str], cerebro: Cerebro, words: list[str], message: str
) -> None:
    before = run.state()
    verb, *rest = words
    said = cerebro(verb, run.keys.run, *rest, *at_etcd)
    assert said.code in (1, 2)
    assert message in " ".join(said.err.replace("│", " ").split())
    assert run.state() == before
