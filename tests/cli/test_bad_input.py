"""Bad input as users type it: one clear message and a non-zero exit; nothing is started or left behind."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from cerebro_elastic import __version__
from cerebro_elastic.core.model.codec import encode
from cerebro_elastic.core.model.events import RunOpened
from cerebro_elastic.core.model.nodes import Node
from cerebro_elastic.core.model.run import Plan, Spec
from cerebro_elastic.data.manifest import read_manifest
from cerebro_elastic.errors import CerebroError, DataError, RecipeError
from cerebro_elastic.recipes import load_recipe
from cerebro_elastic.runs.folder import RunFolder
from cerebro_elastic.runs.start.preflight import PreflightResult, check
from cerebro_elastic.store.client.base import Put
from cerebro_elastic.store.client.embedded import EmbeddedEtcd
from cerebro_elastic.store.client.etcd import EtcdStore
from cerebro_elastic.store.ledger.journal import Journal
from cerebro_elastic.system.run_key import RunKey
from support.commands import Cerebro
from support.ledger import Ledger

pytestmark = pytest.mark.usefixtures("project", "imports_as_found")


# Errors in the recipe's text alone: (what is replaced, by what, line, message).
RECIPES = {
    "a misspelt key": ("epochs:", "epoch:", 1, "unknown key 'epoch'; did you mean 'epochs'? choices: "),
    "broken YAML": ("[16, 64]", "[16, 64", 8, "not valid YAML"),
    "a grid that has no end": ("[16, 64]", "{uniform: [0, 1]}", 7, "'width' is continuous"),
}


@pytest.mark.parametrize(("old", "new", "line", "message"), RECIPES.values(), ids=RECIPES)
def test_a_wrong_recipe_is_reported_with_its_line(
    old: str, new: str, line: int, message: str, project: Path, cerebro: Cerebro
) -> None:
    file = project / "recipe.yaml"
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new, 1))
    said = cerebro("run", "recipe.yaml")
    assert said.code == 2
    assert f"error: recipe.yaml:{line}: " in said.err
    assert message in said.err
    assert not list(project.glob("runs/*")), "nothing is left of it"


COMMANDS = {
    "no such recipe": (
        ["run", "other.yaml"],
        "other.yaml: cannot read the recipe: No such file",
    ),
    "no nodes": (["run", "recipe.yaml", "--nodes", "0"], "nodes is '0': nodes is a number from 1 to 1000"),
    "a run id that is a path": (
        ["run", "recipe.yaml", "--run-id", "../x"],
        "run id '../x' names a folder",
    ),
    "another's folder": (["run", "recipe.yaml", "--home", ".", "--run-id", "mine"], "is no run's folder"),
    "no home": (["run", "recipe.yaml", "--home", "/proc/nowhere"], "choose another --home"),
    "no endpoint": (["run", "recipe.yaml", "--etcd", "nonsense"], "'nonsense' is not HOST:PORT"),
    "status of no run": (["status", "nonsense"], "there is no run 'nonsense' in"),
    "join nobody": (["join", "nonsense", "--etcd", "127.0.0.1:1"], "did not answer for 0.3 s"),
    "an etcd for a recipe": (
        ["etcd", "my_run.yaml"],
        "my_run.yaml is a recipe, and this command takes a run",
    ),
    "prepare nowhere": (["prepare", "a_users_data:load", "/proc/x", "--partitions", "2"], "cannot write"),
}


@pytest.mark.parametrize(("words", "message"), COMMANDS.values(), ids=COMMANDS)
def test_a_wrong_command_is_reported(
    words: list[str], message: str, project: Path, cerebro: Cerebro, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "mine").mkdir()
    (project / "mine" / "thesis.txt").touch()
    monkeypatch.setenv("CEREBRO_ETCD_PATIENCE", "0.3")
    said = cerebro(*words)
    assert said.code in (1, 2)
    assert said.err.startswith("error: ")
    assert message in said.err
    assert not list(project.glob("runs/*"))
    assert list(project.glob("mine/*")) == [project / "mine" / "thesis.txt"]


def test_a_misspelt_run_is_reported_with_the_nearest_name(project: Path, cerebro: Cerebro) -> None:
    (project / "runs" / "digits").mkdir(parents=True)
    (project / "runs" / "digits" / "spec.json").touch()
    assert "did you mean 'digits'? choices: digits" in cerebro("status", "digts").err


def test_a_run_that_is_live_is_not_run_twice(project: Path, cerebro: Cerebro) -> None:
    with RunFolder(project / "runs" / "recipe").locked():
        said = cerebro("run", "recipe.yaml")
    assert said.code == 1
    assert "being run already: watch it with `cerebro status recipe`" in said.err


def test_credentials_that_are_refused(
    etcd: EmbeddedEtcd, cerebro: Cerebro, monkeypatch: pytest.MonkeyPatch, project: Path
) -> None:
    monkeypatch.setenv("CEREBRO_ETCD_USER", "nobody")
    monkeypatch.setenv("CEREBRO_ETCD_PASSWORD", "wrong")
    said = cerebro("run", "recipe.yaml", "--etcd", etcd.settings.endpoints[0])
    assert said.code == 1
    assert "authentication is not enabled" in said.err
    assert "wrong" not in said.err
    assert not list(project.glob("runs/*"))


def test_a_run_of_this_id_in_a_shared_store(etcd: EmbeddedEtcd, cerebro: Cerebro, project: Path) -> None:
    spec = Spec(Plan("taken", 1, 1), {}, "", "", "", "", {}, "", "")
    with closing(EtcdStore(etcd.settings)) as store:
        Ledger(store, "taken", RunKey.from_env(os.environ)).open_run(spec)
    for words in ([], ["--fresh"]):
        said = cerebro(
            "run", "recipe.yaml", "--run-id", "taken", "--etcd", etcd.settings.endpoints[0], *words
        )
        assert said.code == 1
        assert "already has a run 'taken'" in said.err
        assert "etcdctl del --prefix /cerebro/taken/" in said.err
        assert not list(project.glob("runs/*"))


# Machines that want to join or leave a run.


def respec(ledger: Ledger, **changes: Any) -> None:
    """The run with a changed spec, as if it had been started with that."""
    spec = ledger.spec()
    assert spec is not None
    ledger.store.txn([], [Put(ledger.keys.spec, encode(replace(spec, **changes)).encode())])


@pytest.mark.parametrize("words", [["join", "{}"], ["status", "{}"]])
def test_a_misspelt_run_in_a_store_is_reported_with_the_nearest_name(
    words: list[str], ledger: Ledger, at_etcd: list[str], cerebro: Cerebro, project: Path
) -> None:
    run = ledger.keys.run
    said = cerebro(*(word.format(run[:-1]) for word in words), *at_etcd)
    assert said.code == 1
    assert f"knows no run {run[:-1]!r}; did you mean {run!r}? choices: " in said.err
    assert not list(project.glob("runs/*"))


def test_a_run_that_has_ended_is_not_joined(
    ledger: Ledger, at_etcd: list[str], cerebro: Cerebro, project: Path
) -> None:
    leader = ledger.lead("me", ledger.store.grant(30))
    assert leader is not None
    leader.end_run("finished")
    said = cerebro("join", ledger.keys.run, *at_etcd)
    assert said.code == 1
    assert f"run {ledger.keys.run!r} has ended, and only a live run can be changed" in said.err
    assert not list(project.glob("runs/*"))


JOINS: dict[str, tuple[Callable[[Ledger], object], list[str], str]] = {
    "a name that is taken": (
        lambda ledger: ledger.register(Node("n", "a-machine"), ledger.store.grant(30)),
        ["--name", "n"],
        "has a node 'n' already, on a-machine: choose another --name",
    ),
    "another version": (
        lambda ledger: respec(ledger, version="0.0.9"),
        [],
        f"was started by cerebro-elastic 0.0.9, this is {__version__}: install the same version",
    ),
    "no project": (
        lambda ledger: respec(ledger, root="/no/where"),
        [],
        "imports its modules from /no/where, which is not on this machine: put the project there",
    ),
    "other code": (
        lambda ledger: respec(ledger, code={"a_net.py": "0" * 64}),
        [],
        "is trained with a_net.py, which is not on this machine",
    ),
}


@pytest.mark.parametrize(("arrange", "words", "message"), JOINS.values(), ids=JOINS)
def test_a_machine_that_cannot_join_reports_why(
    arrange: Callable[[Ledger], object],
    words: list[str],
    message: str,
    ledger: Ledger,
    at_etcd: list[str],
    cerebro: Cerebro,
    project: Path,
) -> None:
    arrange(ledger)
    nodes = set(ledger.state().nodes)
    said = cerebro("join", ledger.keys.run, *words, *at_etcd)
    assert said.code in (1, 2)
    assert message in " ".join(said.err.split())
    assert set(ledger.state().nodes) == nodes
    assert not list(project.glob("runs/*"))


def test_draining_an_unknown_node_is_refused(ledger: Ledger, at_etcd: list[str], cerebro: Cerebro) -> None:
    run = ledger.keys.run
    assert f"no node 'node-0' is registered in run {run!r}; choices: (none)" in (
        cerebro("drain", run, "node-0", *at_etcd).err
    )
    ledger.register(Node("node-1", "host"), ledger.store.grant(30))
    said = cerebro("drain", run, "node-0", *at_etcd)
    assert said.code == 1
    assert "did you mean 'node-1'? choices: node-1" in said.err


def test_a_run_whose_store_is_another(project: Path, cerebro: Cerebro, at_etcd: list[str]) -> None:
    """Begun in one etcd, gone on with in another, which would begin it anew."""
    recipe = load_recipe(project / "recipe.yaml")
    spec = Spec(Plan("recipe", 1, 1), recipe.resolved(), recipe.digest, "", "", "", {}, "", "")
    folder = RunFolder(project / "runs" / "recipe")
    folder.path.mkdir(parents=True)
    (folder.path / "lock").touch()
    folder.spec.write_text(encode(spec))
    Journal(folder.history).append([RunOpened(7, spec.plan)])
    said = cerebro("run", "recipe.yaml", *at_etcd)
    assert said.code == 1
    assert "run 'recipe' has begun, but in another store than this" in said.err
    assert not folder.endpoint.exists()


def test_a_folder_whose_record_is_damaged(project: Path, cerebro: Cerebro) -> None:
    (project / "runs" / "recipe").mkdir(parents=True)
    (project / "runs" / "recipe" / "lock").touch()
    (project / "runs" / "recipe" / "spec.json").write_text("{}")
    (project / "runs" / "recipe" / "history.jsonl").touch()
    for words in (["run", "recipe.yaml"], ["status", "recipe"], ["verify", "recipe"]):
        said = cerebro(*words)
        assert said.code == 1
        assert "runs/recipe/spec.json is damaged" in said.err


# What is found by the check of module and data: (what is replaced, by what, the error's kind, message).
CHECKED = {
    "no such class": ("a_users_net:Net", "a_users_net:Ne", "TaskError", "has no 'Ne'; did you mean 'Net'?"),
    "an import that fails": ("a_users_net:", "needs:", "TaskError", "needs.py:1: No module named 'nonsense'"),
    "a module that exits": ("a_users_net:", "exits:", "TaskError", "exits.py:1: SystemExit"),
    "no argument": (
        'Net"',
        'Net", trainer: {gradient_clip: 1}',
        "TaskError",
        "'gradient_clip_val'?",
    ),
    "no such transform": (
        "valid: 0.2",
        "transform: 'a_users_data:no'",
        "TaskError",
        "has no 'no'",
    ),
    "fewer rows than partitions": (":load", ":three_rows", "DataError", "2 training rows for 4 partitions"),
    "a source that raises": (":load", ":raises", "DataError", "a_users_data.py:24: KeyError: 'images'"),
    "no such file": ("a_users_data:load", "no.npz", "DataError", "no.npz does not exist"),
}


@pytest.mark.parametrize(("old", "new", "kind", "message"), CHECKED.values(), ids=CHECKED)
def test_a_wrong_module_or_dataset_is_reported(
    old: str, new: str, kind: str, message: str, project: Path
) -> None:
    (project / "needs.py").write_text("import nonsense\n")
    (project / "raises.py").write_text("\nraise ValueError('boom')\n")
    (project / "exits.py").write_text("raise SystemExit(2)\n")
    (project / "broken.py").write_text("x = (\n")
    with pytest.raises(CerebroError) as caught:
        check_text((project / "recipe.yaml").read_text().replace(old, new, 1), project)
    assert type(caught.value).__name__ == kind
    assert message in str(caught.value)
    assert not (project / "data" / "manifest.json").exists()


def test_a_cache_too_small_for_any_partition_is_reported(project: Path) -> None:
    text = (project / "recipe.yaml").read_text()
    with pytest.raises(RecipeError, match=r"cache_bytes is 100, and the largest .* has \d+ bytes: allow"):
        check_text(f"{text}\nnode: {{cache_bytes: 100}}", project)
    check_text(f"{text}\nnode: {{cache_bytes: 1M}}", project)


def test_batches_of_which_no_partition_has_one_are_reported(project: Path) -> None:
    text = (project / "recipe.yaml").read_text()
    with pytest.raises(DataError, match=r"drop_last leaves nothing of a partition of \d+ rows in batches of"):
        check_text(text.replace("partitions: 4", "partitions: 4, batch_size: 999, drop_last: true"), project)


def test_the_users_files_are_known_by_their_digests(project: Path) -> None:
    package = project / "helpers_of_a_user"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "layers.py").write_text("WIDTH = 3\n")
    net = project / "a_users_net.py"
    net.write_text(f"import helpers_of_a_user.layers\n{net.read_text()}")
    (project / "not_imported.py").write_text("")
    text = (project / "recipe.yaml").read_text()

    def known() -> dict[str, str]:
        """Without what modules of other tests, which this process has imported, are or read."""
        return {name: digest for name, digest in check_text(text, project).code.items() if name[0].isalpha()}

    before = known()
    assert set(before) == {
        "a_users_data.py",
        "a_users_net.py",
        "helpers_of_a_user/__init__.py",
        "helpers_of_a_user/layers.py",
    }
    (package / "layers.py").write_text("WIDTH = 4\n")
    after = known()
    assert {name for name in after if after[name] != before[name]} == {"helpers_of_a_user/layers.py"}


def check_text(text: str, project: Path) -> PreflightResult:
    """The check that goes before every run, of a recipe's text."""
    recipe = load_recipe(yaml.safe_load(text), root=project)
    points = [{name: domain.choice[0] for name, domain in recipe.search.space.items() if domain.choice}]
    url = recipe.data.url
    return check(recipe, points, url or str(project / "data"), prepare=url is None)


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (
            lambda folder: _edit(folder / "manifest.json", '"seed": 0', '"seed": 1'),
            "was changed after",
        ),
        (lambda folder: _cut(folder / "train/00001/x.npy"), "bytes instead of"),
    ],
    ids=["manifest changed", "file cut short"],
)
def test_a_damaged_dataset_is_reported(
    harm: Callable[[Path], None], message: str, project: Path, cerebro: Cerebro
) -> None:
    assert cerebro("prepare", "a_users_data:load", "set", "--partitions", "4").code == 0
    assert read_manifest(str(project / "set")).rows == (4, 4, 4, 4)
    text = (project / "recipe.yaml").read_text()
    text = text.replace('source: "a_users_data:load", partitions: 4, valid: 0.2', f"url: {project / 'set'}")
    check_text(text, project)
    harm(project / "set")
    with pytest.raises(CerebroError, match=message):
        check_text(text, project)


def _edit(file: Path, old: str, new: str) -> None:
    file.write_text(file.read_text().replace(old, new, 1))


def _cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-8])


def test_the_real_command_leaves_nothing_of_a_failed_start(project: Path, cerebro: Cerebro) -> None:
    """Through the preflight's own process."""
    _edit(project / "recipe.yaml", ":load", ":raises")
    said = cerebro("run", "recipe.yaml")
    assert said.code == 1
    assert f"{project}/a_users_data.py:24: KeyError: 'images'; correct the function" in said.err
    assert not list(project.glob("runs/*"))
