"""The README, the tutorial and the how-to pages hold: their code blocks do what they say when typed off."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from typer.testing import CliRunner

from cerebro_elastic import __version__, prepare
from cerebro_elastic.cli.app import app
from cerebro_elastic.core.model.configs import Config
from cerebro_elastic.core.model.interfaces import ConfigView, SearchContext
from cerebro_elastic.core.model.run import Plan, Spec
from cerebro_elastic.core.model.units import Unit
from cerebro_elastic.recipes import load_recipe
from cerebro_elastic.runs.from_recipe import make_search
from cerebro_elastic.runs.start.preflight import check
from cerebro_elastic.testing.policy_contract import check_policy, scheduling_contexts
from cerebro_elastic.training.unit_runner import UnitRunner
from support.pages import (
    PAGES,
    ROOT,
    blocks,
    commands,
    module_at,
    name_of,
    parsed,
    typed,
    typed_in_a_fork,
    write_files,
)

SWEEP = "docs/tutorial/first-sweep.md"
LIVE = (
    "run",
    "join",
    "drain",
    "stop",
    "resume",
    "add",
    "extend",
    "etcd",
    "host",
    "report",
    "prepare",
    "plan",
    "simulate",
)
"""Commands that need a live run, or something that only a reader has."""
ADAPTER = {"softmax_section.py", "softmax_task.py", "test_softmax.py"}
"""The files of the adapter of another framework."""


@pytest.fixture(scope="module")
def newcomer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tutorial's files in a folder of one's own, and the one command."""
    folder = tmp_path_factory.mktemp("newcomer")
    assert write_files(SWEEP, folder) == {"my_net.py", "my_data.py", "my_run.yaml", "my_search.py"}
    assert ["cerebro", "run", "my_run.yaml"] in commands(SWEEP)
    assert "best checkpoint" in typed(["cerebro", "run", "my_run.yaml"], folder)
    return folder


def test_the_readme_shows_the_tutorials_files() -> None:
    shown = {
        block.file: block.code for block in blocks("README.md") if block.file and block.kind != "console"
    }
    taught = {block.file: block.code for block in blocks(SWEEP) if block.file}
    assert set(shown) == {"my_net.py", "my_data.py", "my_run.yaml"}
    assert {name: taught[name] for name in shown} == shown
    assert ["cerebro", "run", "my_run.yaml"] in commands("README.md")


def test_the_numbers_of_the_landing_page_are_those_of_evidence() -> None:
    rows = re.findall(
        r"^\| \[.*\]\((docs/evidence/\w+\.md)\)[^|]*\|(.*)\|$", (ROOT / "README.md").read_text(), re.M
    )
    assert len(rows) == 3
    for page, results in rows:
        numbers = re.findall(r"[\d.]+(?=(?: |&nbsp;)(?:s|MB|GB)\b)", results)
        assert len(numbers) >= 3
        measured = re.findall(r"\d+(?:\.\d+)?", (ROOT / page).read_text())
        assert set(numbers) <= set(measured), page


@pytest.mark.parametrize("page", [name_of(page) for page in PAGES])
def test_every_command_is_understood(page: str) -> None:
    for words in commands(page):
        if words[0].endswith("cerebro"):
            parsed(words)


@pytest.mark.cluster
@pytest.mark.usefixtures("imports_as_found")
def test_the_readmes_commands_after_a_run(newcomer: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CEREBRO_HOME", str(newcomer / "runs"))
    monkeypatch.setenv("PYTHONHASHSEED", "0")  # or `replay` replaces this process by one that has it
    after = [c for c in commands("README.md") if c[0].endswith("cerebro") and c[1] not in LIVE]
    assert {command[1] for command in after} == {"verify", "replay", "status", "doctor"}
    for command in after:
        done = CliRunner().invoke(app, ["my_run" if word == "digits" else word for word in command[1:]])
        assert done.exit_code == 0, done.output


@pytest.mark.cluster
def test_the_tutorials_winner_is_used_without_us(newcomer: Path) -> None:
    page = "docs/tutorial/take-the-winner.md"
    assert write_files(page, newcomer) == {"use_it.py"}
    for command in commands(page):
        if command[1] not in ("verify", "replay"):  # those are the README's, too
            shown = typed_in_a_fork(command, newcomer)
    assert re.search(r"digit: \d", shown)


@pytest.mark.cluster
def test_the_tutorials_python(newcomer: Path) -> None:
    (snippet,) = [b.code for b in blocks(SWEEP) if b.kind == "python" and b.file is None]
    (newcomer / "snippet.py").write_text(snippet)
    *rows, last = typed_in_a_fork(["python", "snippet.py"], newcomer).splitlines()
    assert {row.split()[0] for row in rows} == {"c0000", "c0001", "c0002", "c0003"}
    assert "val_acc" in last


def shorten(script: Path) -> None:
    """Fewer epochs and configs than the page has."""
    code = re.sub(r"max_epochs=\d", "max_epochs=2", script.read_text())
    script.write_text(code.replace("num=9", "num=3"))


@pytest.mark.cluster
def test_the_tutorials_trainer(newcomer: Path) -> None:
    shorten(newcomer / "my_search.py")
    shown = typed_in_a_fork(["python", "my_search.py"], newcomer)
    assert {f"c000{i} {{'lr'" in shown for i in range(4)} == {True}


@pytest.mark.cluster
def test_the_page_for_users_of_optuna(newcomer: Path) -> None:
    (script,) = write_files("docs/coming-from/optuna.md", newcomer)
    shorten(newcomer / script)
    assert "'lr': " in typed_in_a_fork(["python", script], newcomer)


@pytest.fixture
def functions(tmp_path: Path) -> tuple[UnitRunner, Config]:
    """The task of the example of plain functions, in ``tmp_path``, and its first config."""
    assert write_files("docs/how-to/models.md", tmp_path) >= {"my_functions.py", "my_functions.yaml"}
    recipe = load_recipe(tmp_path / "my_functions.yaml")
    points = [proposal.hparams for proposal in make_search(recipe).propose(SearchContext())]
    found = check(recipe, points, str(tmp_path / "data"), prepare=True)
    plan = Plan("example", found.partitions, recipe.epochs, seed=recipe.seed)
    place = (found.data, found.data_digest, str(tmp_path), found.code, str(tmp_path))
    spec = Spec(plan, recipe.resolved(), recipe.digest, *place, version=__version__)
    return UnitRunner(spec, tmp_path / "cache", "cpu"), Config("c0000", points[0])


@pytest.mark.usefixtures("imports_as_found")
def test_the_example_of_plain_functions(functions: tuple[UnitRunner, Config]) -> None:
    runner, config = functions
    done = None
    for partition in range(3):
        unit = Unit(config.id, 0, partition)
        done = runner.perform(runner.job(config, unit, done.state if done else None))
        config = replace(config, visited=(*config.visited, partition))
    assert done is not None
    assert done.metrics["val_acc"] > 0.5


@pytest.mark.usefixtures("imports_as_found")
def test_the_example_of_rows(tmp_path: Path) -> None:
    assert "my_rows.py" in write_files("docs/how-to/data.md", tmp_path)
    rows = ["url,label"]
    for n in range(4):
        np.save(tmp_path / f"{n}.npy", np.full((2, 2), n))
        rows.append(f"file://{tmp_path}/{n}.npy,{n}")
    (tmp_path / "rows.csv").write_text("\n".join(rows) + "\n")
    words = next(words for words in commands("docs/how-to/data.md") if "--bad" in words)
    function = words[words.index("--rows") + 1]
    settings = {"rows": function, "partitions": 2, "valid": 0, "workers": 1}
    made = prepare(tmp_path / "rows.csv", tmp_path / "out", root=tmp_path, **settings)
    assert [(column.name, column.dtype, column.shape) for column in made.columns] == [
        ("x", "<f4", (2, 2)),
        ("y", "<i8", ()),
    ]


@pytest.fixture
def plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files of the page on plugins, to be imported."""
    names = {"shortest.py", "doubling.py", "halton.py", "half_traffic.py", "running_mean.py"}
    assert write_files("docs/how-to/plugins.md", tmp_path) == names | ADAPTER
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_the_example_of_a_policy(plugins: Path) -> None:
    policy = module_at(plugins / "shortest.py").ShortestRemaining

    @settings(max_examples=30)
    @given(scheduling_contexts())
    def contract(moment: object) -> None:
        check_policy(policy, moment)  # type: ignore[arg-type]

    contract()


@pytest.mark.usefixtures("imports_as_found")
def test_the_examples_of_contract_tests_run(plugins: Path) -> None:
    tests = [b.code for b in blocks("docs/how-to/plugins.md") if b.kind == "python" and "def test_" in b.code]
    assert len(tests) == 2
    for number, code in enumerate(tests):
        (plugins / f"contract_{number}.py").write_text(code)
        module_at(plugins / f"contract_{number}.py").test_contract()


def test_the_example_of_a_sampler(plugins: Path) -> None:
    recipe = load_recipe(
        {
            "name": "halton",
            "task": {"kind": "torch", "model_fn": "m:f", "loss": "cross_entropy"},
            "data": {"source": "x.npz"},
            "search": {"space": {"lr": [1, 2, 3], "width": [1, 2]}},
        }
    )
    sampler = module_at(plugins / "halton.py").Halton(recipe)
    known: list[ConfigView] = []
    while (sample := sampler.sample(known)) is not None:
        known.append(ConfigView(f"c{len(known)}", sample.hparams))
    assert len(known) == 6, "each point once"


@pytest.mark.usefixtures("imports_as_found")
def test_the_example_of_a_task(plugins: Path, functions: tuple[UnitRunner, Config]) -> None:
    runner, config = functions
    task = module_at(plugins / "running_mean.py").RunningMean({}, plugins)
    state, rows = None, 0
    for partition in range(3):
        result = task.train(runner.job(config, Unit(config.id, 0, partition), state))
        state, rows = result.state, rows + result.samples
    assert state["rows"] == rows
    assert abs(result.metrics["mean"]) < 0.1


@pytest.mark.usefixtures("imports_as_found")
def test_the_example_of_another_framework_keeps_the_contract(tmp_path: Path) -> None:
    assert write_files("docs/how-to/plugins.md", tmp_path) >= ADAPTER
    assert len((tmp_path / "softmax_task.py").read_text().splitlines()) <= 60
    without_torch = (
        "import sys; sys.modules['torch'] = None\n"
        "import pytest; sys.exit(pytest.main(['-q', '-p', 'no:cacheprovider', 'test_softmax.py']))"
    )
    done = subprocess.run([sys.executable, "-c", without_torch], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert "13 passed" in done.stdout


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
@pytest.mark.parametrize(("target", "extras"), [("run", "lightning,examples"), ("check", "dev")])
def test_make_installs_what_the_target_needs_and_says_so(target: str, extras: str, tmp_path: Path) -> None:
    words = ["make", "--dry-run", "--always-make", "--no-print-directory", f"VENV={tmp_path}", target]
    shown = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert f"-e '.[{extras}]'" in shown
    assert shown.count("pip install") == 1
    assert "GB on disk" in shown.partition("pip install")[0]
    assert "--quiet" not in shown


def test_every_other_yaml_block_is_a_recipe() -> None:
    for page in PAGES:
        for block in blocks(name_of(page)):
            if block.kind == "yaml":
                load_recipe(yaml.safe_load(block.code))


def test_the_pages_of_python_compile() -> None:
    for page in PAGES:
        for block in blocks(name_of(page)):
            if block.kind == "python":
                compile(block.code, name_of(page), "exec")
