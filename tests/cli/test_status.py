"""A run's status, live and afterwards, and draining a node."""

from __future__ import annotations

import json
from pathlib import Path

from cerebro_elastic.core.model.attempts import Attempt, Failure, FailureKind
from cerebro_elastic.core.model.codec import encode
from cerebro_elastic.core.model.configs import Config
from cerebro_elastic.core.model.nodes import Node
from cerebro_elastic.core.model.units import Unit
from cerebro_elastic.runs.folder import RunFolder
from cerebro_elastic.store.ledger.journal import Journal
from support.commands import Cerebro, assert_shape
from support.ledger import Leader, Ledger


def populate(ledger: Ledger) -> None:
    """Three nodes and a leader; one node is quarantined for a full disk."""
    lease = ledger.store.grant(60)
    leader = ledger.lead("a-leader", lease)
    assert leader is not None
    leader.create_config(Config("c0000", {"lr": 0.1}))
    for name in ("calm", "leaving", "full"):
        ledger.register(Node(name, "host"), lease)
    state = ledger.state()
    attempt = assigned(ledger, "full", leader)
    failure = Failure(attempt.unit, "full", attempt.token, FailureKind.DISK_FULL, "no space left")
    assert ledger.fail(attempt, state.configs["c0000"], failure)
    assert leader.quarantine("full", "its disk is full", attempt.token, 60.0)


def assigned(ledger: Ledger, node: str, leader: Leader) -> Attempt:
    state = ledger.state()
    revision = state.configs["c0000"].revision
    leader.assign(Attempt(Unit("c0000", 0, 0), node, state.nodes[node].registration, revision))
    attempt = ledger.assignment(node)
    assert attempt is not None
    return attempt


def test_an_option_without_effect_is_refused(ledger: Ledger, at_etcd: list[str], cerebro: Cerebro) -> None:
    said = cerebro("status", ledger.keys.run, "--json", "--verbose", *at_etcd)
    assert (said.code, "--verbose would do nothing with --json" in said.err) == (1, True)


def test_draining_and_quarantines_are_shown(
    ledger: Ledger, at_etcd: list[str], cerebro: Cerebro, project: Path
) -> None:
    run = ledger.keys.run
    populate(ledger)
    said = cerebro("drain", run, "leaving", "--grace", "30", *at_etcd)
    assert (said.code, said.err) == (0, "")
    assert f"leaving leaves run {run} when its unit is done" in said.out
    assert cerebro("drain", run, "leaving", *at_etcd).code == 0, "once more changes nothing"

    printed = cerebro("status", run, "--json", *at_etcd).out
    assert_shape("status", printed)
    answer = json.loads(printed)
    assert answer["leader"] == "a-leader"
    assert answer["draining"] == {"leaving": 30.0}
    assert answer["quarantined"] == {"full": "its disk is full"}
    assert answer["nodes"] == {"calm": None, "leaving": None, "full": None}
    shown = " ".join(cerebro("status", run, *at_etcd).out.split())
    assert f"run {run}: live, led by a-leader" in shown
    assert "full idle quarantined: its disk is full" in shown
    assert "leaving idle leaving" in shown
    assert not list(project.glob("runs/*"))


def test_the_status_of_a_killed_run_is_read_from_its_record(
    ledger: Ledger, at_etcd: list[str], cerebro: Cerebro, project: Path
) -> None:
    """They left the address of a store that is gone."""
    run = ledger.keys.run
    populate(ledger)
    folder = RunFolder(project / "runs" / run)
    folder.path.mkdir(parents=True)
    Journal(folder.history).resume(ledger.read())
    spec = ledger.spec()
    assert spec is not None
    folder.spec.write_text(encode(spec))
    folder.endpoint.write_text("127.0.0.1:1")
    said = cerebro("status", run)
    assert said.code == 0
    assert "not running; the same `cerebro run` continues it" in " ".join(said.out.split())
    folder.endpoint.write_text(at_etcd[1])
    assert f"run {run}: live" in cerebro("status", run).out


def test_quarantines_end_when_the_run_is_started_again(ledger: Ledger) -> None:
    populate(ledger)
    assert set(ledger.state().quarantined) == {"full"}
    ledger.release_nodes()
    assert ledger.state().quarantined == {}
