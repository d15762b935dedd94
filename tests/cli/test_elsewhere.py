"""Commands about a run of other machines, on a machine that has only the address of its etcd."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from cerebro_elastic import Run, __version__
from cerebro_elastic.core.model.attempts import Attempt, Visit
from cerebro_elastic.core.model.configs import Config
from cerebro_elastic.core.model.events import RunOpened, StateRead, UnitCommitted
from cerebro_elastic.core.model.nodes import Node
from cerebro_elastic.core.model.run import Plan, Spec
from cerebro_elastic.core.model.units import CheckpointRef, Unit
from cerebro_elastic.recipes import load_recipe
from cerebro_elastic.runs.start.etcd_server import in_use
from cerebro_elastic.store.client.base import Delete
from cerebro_elastic.store.client.embedded import EmbeddedEtcd
from cerebro_elastic.store.client.etcd import EtcdStore
from cerebro_elastic.system.run_key import RunKey
from support.commands import Cerebro
from support.etcd_cluster import compact
from support.ledger import Ledger


def begun(ledger: Ledger, root: Path) -> None:
    """A run of one config and two partitions, after the first epoch."""
    recipe = load_recipe("recipe.yaml", objective={"metric": "acc", "mode": "max"})
    run, elsewhere = ledger.keys.run, "/another/machine"
    plan = Plan(run, partitions=2, epochs=3)
    digest = recipe.digest
    ledger.open_run(
        Spec(plan, recipe.resolved(), digest, elsewhere, "", str(root), {}, elsewhere, __version__)
    )
    lease = ledger.store.grant(60)
    leader = ledger.lead("a-leader", lease)
    assert leader is not None
    leader.create_config(Config("c0000", {"lr": 0.1, "width": 16}))
    node = ledger.register(Node("a-node", "a-host"), lease)
    for partition in (0, 1):
        config = ledger.config("c0000")
        assert config is not None
        unit = Unit("c0000", 0, partition)
        leader.assign(Attempt(unit, node.name, node.registration, config.revision, config.head))
        attempt = ledger.assignment(node.name)
        assert attempt is not None
        ref = CheckpointRef(f"{elsewhere}/checkpoints/{partition}", "d", 1)
        metrics = {"acc": 0.875} if partition else {}
        visit = Visit(
            unit, partition, node.name, attempt.token, config.head, ref, 8, 1, 1.0, 0.1, 1e9, metrics=metrics
        )
        assert ledger.commit(attempt, config, visit, plan)


@pytest.fixture
def elsewhere(etcd: EmbeddedEtcd, project: Path) -> Iterator[Ledger]:
    run = f"far-{uuid.uuid4().hex[:8]}"
    with closing(EtcdStore(etcd.settings)) as store:
        ledger = Ledger(store, run, RunKey.from_env(os.environ))
        begun(ledger, project / "gone")
        yield ledger
        store.txn([], [Delete(item.key) for item in store.range(ledger.keys.prefix).items])


def test_results_and_report_are_made_of_the_etcd_alone(
    elsewhere: Ledger, etcd: EmbeddedEtcd, at_etcd: list[str], cerebro: Cerebro, project: Path
) -> None:
    run = elsewhere.keys.run
    result = Run.open(run, store=etcd.settings).result
    assert isinstance(result.events[0], RunOpened)
    assert sum(isinstance(event, UnitCommitted) for event in result.events) == 2
    assert (result.best.config, result.best.best) == ("c0000", 0.875)

    said = cerebro("report", run, *at_etcd)
    assert (said.code, said.out.strip()) == (0, f"{run}.html")
    assert "0.875" in (project / f"{run}.html").read_text()
    said = cerebro("report", run, "--output", "page.html", *at_etcd)
    assert (said.code, said.out.strip()) == (0, "page.html")
    assert not (project / "runs").exists(), "no folder of a run was made"


def test_of_a_history_that_the_etcd_has_forgotten_there_is_the_state(
    elsewhere: Ledger, etcd: EmbeddedEtcd
) -> None:
    compact(etcd.settings.endpoints[0], elsewhere.now())
    result = Run.open(elsewhere.keys.run, store=etcd.settings).result
    assert [type(event) for event in result.events] == [StateRead]
    assert len(result.best.visits) == 2
    assert (result.best.config, result.best.best) == ("c0000", 0.875)


def test_commands_that_need_the_project_say_so(
    elsewhere: Ledger, at_etcd: list[str], cerebro: Cerebro, project: Path
) -> None:
    run = elsewhere.keys.run
    said = cerebro("export", run, "model", *at_etcd)
    assert said.code == 1
    assert f"{project / 'gone'}, which is not on this machine" in said.err
    (project / "gone").mkdir()
    said = cerebro("export", run, "model", *at_etcd)
    assert said.code == 1
    assert "/another/machine, which is not on this machine" in said.err
    assert not (project / "model").exists()
    (project / "gone").rmdir()
    for command in (["verify", run], ["replay", run, "--config", "best"]):
        said = cerebro(*command, *at_etcd)
        assert said.code == 1
        assert "which is not on this machine: put it there as the run has it" in said.err
    assert not (project / "runs").exists(), "no folder of a run was made"


def test_an_etcd_is_in_use_as_long_as_anybody_takes_part(elsewhere: Ledger) -> None:
    """Also those of `cerebro run` and `cerebro join`, which are no hosts."""
    store, keys = elsewhere.store, elsewhere.keys
    assert in_use(elsewhere)
    store.txn([], [Delete(keys.leader)])
    assert in_use(elsewhere), "a node"
    store.txn([], [Delete(keys.node("a-node"))])
    assert not in_use(elsewhere)
