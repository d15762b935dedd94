"""`cerebro host`, `cerebro etcd`: each error is one message. (test_torchx_component.py tests that they
work.)"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from cerebro_elastic import __version__
from cerebro_elastic.core.model.run import Plan, Spec
from cerebro_elastic.recipes import load_recipe
from cerebro_elastic.runs.start import etcd_server
from cerebro_elastic.runs.terminal_view import Watcher
from cerebro_elastic.store.client.base import Delete, Put
from cerebro_elastic.store.client.embedded import EmbeddedEtcd
from cerebro_elastic.store.client.etcd import EtcdStore
from cerebro_elastic.system.departure import leave_within, seconds_to_leave, stay
from cerebro_elastic.system.run_key import RunKey
from support.commands import Cerebro
from support.ledger import Ledger

pytestmark = pytest.mark.usefixtures("project", "imports_as_found")


@pytest.fixture
def opened(etcd: EmbeddedEtcd, project: Path, store_prefix: str) -> Iterator[Ledger]:
    """A run of the project's recipe that another host has opened."""
    recipe = load_recipe("recipe.yaml")
    run = f"hosted-{store_prefix.split('/')[2][:8]}"
    spec = Spec(
        Plan(run, 4, 3),
        recipe.resolved(),
        recipe.digest,
        "/another/machine/data",
        "",
        str(project),
        {},
        "/another/machine",
        __version__,
    )
    with closing(EtcdStore(etcd.settings)) as store:
        ledger = Ledger(store, run, RunKey.from_env(os.environ))
        ledger.open_run(spec)
        yield ledger


def words_for(ledger: Ledger, etcd: EmbeddedEtcd, *more: str) -> list[str]:
    return ["host", "recipe.yaml", "--run-id", ledger.keys.run, "--etcd", etcd.settings.endpoints[0], *more]


def test_no_recipe_on_this_machine(cerebro: Cerebro) -> None:
    said = cerebro("host", "elsewhere/recipe.yaml", "--etcd", "127.0.0.1:1")
    assert said.code == 2
    assert "elsewhere/recipe.yaml: cannot read the recipe: No such file" in said.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "no etcd is named, by which the hosts of a run find each other: give --etcd"),
        (["--etcd", "nonsense"], "'nonsense' is not HOST:PORT"),
        (["--etcd", "127.0.0.1:1", "--hosts", "8:2"], "--hosts is '8:2': give a number, or a range MIN:MAX"),
    ],
)
def test_wrong_arguments_are_reported(words: list[str], message: str, cerebro: Cerebro) -> None:
    said = cerebro("host", "recipe.yaml", *words)
    assert said.code == 1
    assert message in said.err


def test_a_recipe_that_differs_from_the_runs_is_refused(
    opened: Ledger, etcd: EmbeddedEtcd, cerebro: Cerebro
) -> None:
    said = cerebro(*words_for(opened, etcd, "--hosts", "2:3"))
    assert said.code == 1
    assert "was opened with another recipe:\n  nodes: auto -> 2:1000\ngive all hosts the same" in said.err


def test_a_folder_with_another_run_of_the_id(
    etcd: EmbeddedEtcd, cerebro: Cerebro, project: Path, store_prefix: str
) -> None:
    run = f"old-{store_prefix.split('/')[2][:8]}"
    folder = project / "runs" / run
    folder.mkdir(parents=True)
    (folder / "lock").touch()
    (folder / "spec.json").touch()
    (folder / "history.jsonl").touch()
    said = cerebro("host", "recipe.yaml", "--run-id", run, "--etcd", etcd.settings.endpoints[0])
    assert said.code == 1
    assert f"holds a run {run!r} that the etcd at hand does not know" in said.err
    assert (folder / "history.jsonl").exists()


def test_an_etcd_that_is_to_end_waits_for_hosts_that_leave(etcd: EmbeddedEtcd) -> None:
    """A scheduler asks all processes of a job at once."""
    lines: list[str] = []
    with closing(EtcdStore(etcd.settings)) as store:
        ledger = Ledger(store, "leaving")
        host = ledger.keys.hosts + "a"
        store.txn([], [Put(host, b"{}")])
        try:
            leave_within(0.5)
            etcd_server._wait_for_leaving(ledger, Watcher(say=lines.append))
            assert seconds_to_leave() <= 0, "the host has not left"
            stay()
            leave_within(60.0)
            threading.Timer(0.6, lambda: store.txn([], [Delete(host)])).start()
            etcd_server._wait_for_leaving(ledger, Watcher(say=lines.append))
            assert 30 < seconds_to_leave() < 59.5
        finally:
            stay()
    assert lines[-1] == "waiting up to 60 s for hosts to leave (Ctrl-C: at once)"


def test_a_host_that_comes_after_the_end(opened: Ledger, etcd: EmbeddedEtcd, cerebro: Cerebro) -> None:
    opened.store.txn([], [Put(opened.keys.outcome, b"{}")])
    said = cerebro(*words_for(opened, etcd))
    assert said.code == 0
    assert "to run the recipe again: another --run-id" in said.out
    assert "Leaderboard by" in said.out
    assert opened.store.range(opened.keys.hosts).items == ()


@pytest.mark.parametrize(
    ("has_key", "words", "said"),
    [
        (False, [], "the key of run 'lost' is not on this machine"),
        (True, [], "has no record of run 'lost': restore it on a machine that took part"),
        (True, ["--storage", "{folder}"], "has no folder `record`: give the place of the run's checkpoints"),
        (
            True,
            ["--home", "{folder}/old"],
            "data has the data of the run's etcd, which continues with them without",
        ),
    ],
)
def test_what_a_restored_etcd_lacks_is_named(
    has_key: bool,
    words: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    cerebro: Cerebro,
) -> None:
    monkeypatch.delenv("CEREBRO_RUN_KEY", raising=False)
    monkeypatch.delenv("CEREBRO_RUN_KEY_FILE", raising=False)
    if has_key:
        monkeypatch.setenv("CEREBRO_RUN_KEY", "0" * 64)
    home = str(tmp_path / "home")
    (tmp_path / "old" / "lost.etcd" / "data").mkdir(parents=True)
    answer = cerebro(
        "etcd", "lost", "--restore", "--home", home, *[word.format(folder=tmp_path) for word in words]
    )
    assert answer.code == 1
    assert said in answer.err
