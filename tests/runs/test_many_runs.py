"""The runs of a home as things: listed, compared, pruned and removed; and what ``--json`` prints."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import typer.main
from recorded_run import record

from cerebro_elastic import Run
from cerebro_elastic.cli.app import app
from cerebro_elastic.cli.options import echo_json
from cerebro_elastic.cli.output import outcome_json
from cerebro_elastic.cli.shapes import SHAPES
from cerebro_elastic.errors import PrunedCheckpoint, RunError, StorageError
from cerebro_elastic.recipes import load_recipe
from cerebro_elastic.runs.folder import RunFolder
from cerebro_elastic.runs.results.result import RunResult
from cerebro_elastic.runs.start.prepare_run import check_project, write_spec
from cerebro_elastic.system.files import locate, moved
from support.commands import Cerebro, assert_shape


@pytest.fixture
def result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunResult]:
    """A run that has ended, in the home that commands use."""
    sys.modules.pop("a_recorded_model", None)
    monkeypatch.setenv("CEREBRO_HOME", str(tmp_path / "runs"))
    yield record(tmp_path, "first")
    sys.modules.pop("a_recorded_model", None)  # it is another file in the next test


def again(result: RunResult, run: str) -> RunFolder:
    """A run of another project with the same recipe, which never began."""
    folder = RunFolder(result.folder.path.parent / run)
    folder.path.mkdir()
    plan = replace(result.spec.plan, run=run)
    write_spec(folder, replace(result.spec, plan=plan, root="/elsewhere", storage=str(folder.path)))
    return folder


def test_what_commands_print_as_json_has_the_shape_of_the_reference(
    result: RunResult, cerebro: Cerebro, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    with_json = {name for name in commands if any("--json" in p.opts for p in commands[name].params)}
    assert with_json == {command.split()[0] for command in SHAPES}
    again(result, "second")
    typed = {
        "runs": [],
        "runs RUN RUN": ["first", "first"],
        "status": [],
        "verify": ["first"],
        "replay": ["first"],
        "export": ["first", str(tmp_path / "model")],
        "rm --checkpoints": ["first", "--keep", "winner", "--yes"],
        "plan": [str(tmp_path / "recipe.yaml"), "--from", "first"],
    }
    (tmp_path / "recipe.yaml").write_text(
        "task: {kind: torch, model_fn: 'm:f', loss: mse_loss}\n"
        "data: {source: 'm:d', partitions: 2}\n"
        "search: {space: {lr: [1]}}\n"
    )
    for command, words in typed.items():
        said = cerebro(*command.replace(" RUN", "").split(), *words, "--json")
        assert said.code == 0, (command, said)
        assert_shape(command, said.out)
    echo_json(outcome_json(result))
    assert_shape("run", capsys.readouterr().out)
    with pytest.raises(AssertionError):
        assert_shape("runs", '{"home": "x", "runs": [], "more": 1}')


def test_runs_are_listed_with_state_and_best(result: RunResult, cerebro: Cerebro) -> None:
    again(result, "second")
    damaged = RunFolder(result.folder.path.parent / "third")
    damaged.path.mkdir()
    damaged.spec.write_text("{")
    assert "second" not in cerebro("runs", "first").out
    for _ in range(2):  # read, and then kept
        of = {summary.run: summary for summary in Run.all()}
        assert [of[name].state for name in ("first", "second", "third")] == ["ended", "stopped", "damaged"]
        assert of["first"].best == result.best.best
        assert of["first"].bytes > 10_000
    shown = cerebro("runs").out
    assert ("2 finished" in shown, "third" in shown, "elsewhere" in shown) == (True, True, True)


def test_a_run_that_is_not_named_is_the_last_one(result: RunResult, cerebro: Cerebro) -> None:
    said = cerebro("status")
    assert said.out.startswith("run first: finished")
    assert "run first, the one of" in said.err
    row = next(line for line in said.out.splitlines() if line.startswith("c0001"))
    assert f"{result.config('c0001').best:.4f}" in row, "the value beside the gap is the best one"


def test_pruned_checkpoints_are_named_by_all_that_need_them(result: RunResult, cerebro: Cerebro) -> None:
    loser = result.leaderboard[-1].config
    pruned = Run.open("first").prune(["winner"])
    assert (pruned.exportable, pruned.kept) == ((result.best.config,), 1)
    assert Run.open("first").prune(["winner"]).urls == ()
    with pytest.raises(PrunedCheckpoint, match="removed by `cerebro rm --checkpoints` on 20"):
        result.state(loser)
    assert result.state("best")
    notes: list[str] = []
    assert Run.open("first").verify(say=notes.append) == []
    assert any("1 checkpoint that the run had kept cannot be compared" in note for note in notes)
    assert cerebro("replay", "first", "--config", loser).code == 0
    refused = cerebro("rm", "first", "--checkpoints", "--keep", "everything")
    assert (refused.code, "choices: best, last, winner" in refused.err) == (1, True)
    assert cerebro("rm", "first", "--checkpoints").out == "run first: nothing to remove\n"


def test_only_runs_that_have_ended_are_pruned_and_no_live_one_removed(
    result: RunResult, cerebro: Cerebro
) -> None:
    again(result, "second").history.touch()
    assert "has not ended" in cerebro("rm", "second", "--checkpoints", "--yes").err
    with result.folder.locked():
        assert "is live" in cerebro("rm", "first", "--yes").err
        assert "is live" in cerebro("rm", "first", "--checkpoints", "--yes").err
    assert "there is no one to confirm" in cerebro("rm", "first").err
    assert "need --checkpoints" in cerebro("rm", "first", "--keep", "best", "--yes").err
    assert result.folder.history.exists()


def test_all_that_is_a_runs_is_removed(result: RunResult, cerebro: Cerebro, tmp_path: Path) -> None:
    elsewhere = tmp_path / "storage" / "first"
    elsewhere.mkdir(parents=True)
    (elsewhere / "state").write_text("x")
    recipe = {**result.spec.recipe, "checkpoints": str(elsewhere.parent)}
    project = result.folder.path.with_name("first.project")  # Ray's copy
    project.mkdir()
    lock = project.with_name("first.project.lock")
    lock.touch()
    there = {"storage": str(elsewhere), "root": str(project)}
    write_spec(result.folder, replace(result.spec, recipe=recipe, **there))
    user = again(result, "second")
    write_spec(user, replace(user.read_spec(), data=f"{result.folder.path}/data"))
    said = cerebro("rm", "first", "--yes")
    assert said.code == 0
    assert str(elsewhere) in said.out
    assert "run second reads a checkpoint or the data of this one" in said.out
    assert not result.folder.path.exists()
    assert not elsewhere.exists()
    assert not project.exists()
    assert not lock.exists()
    assert user.spec.exists()


def test_runs_are_compared_by_recipe_data_code_and_results(result: RunResult, tmp_path: Path) -> None:
    sys.modules.pop("a_recorded_model", None)
    record(tmp_path, "second", epochs=1)
    comparison = Run.open(result.run).compare(Run.open("second"))
    values = {(row.subject, row.name): row.values for row in comparison.rows}
    assert values["recipe", "epochs"] == (2, 1)
    assert ("recipe", "seed") not in values
    assert values["result", "units"] == (8, 4)
    assert [len(curve) for curve in comparison.curves] == [2, 1]
    assert [len(config.values) for config in comparison.configs] == [2, 2]


def test_copied_and_moved_homes_have_their_own_checkpoints(
    result: RunResult, cerebro: Cerebro, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(moved.VARIABLE, "[]")
    home, copy = result.folder.path.parent, tmp_path / "copy"
    shutil.copytree(home, copy)
    before = sorted(home.rglob("*"))
    with pytest.raises(StorageError, match="one home is a copy of the other"):
        Run.open("first", home=copy).prune(["winner"])
    monkeypatch.setattr(moved, "_not_moved", set())  # as in a process that does not know the first home
    assert (
        "removes"
        in cerebro("rm", "first", "--checkpoints", "--yes", "--home", str(copy), "--keep", "winner").out
    )
    assert sorted(home.rglob("*")) == before
    shutil.copytree(copy / "first", copy / "second")
    assert "name that run" in cerebro("rm", "second", "--checkpoints", "--yes", "--home", str(copy)).err

    monkeypatch.setenv(moved.VARIABLE, "[]")
    home.rename(tmp_path / "moved")
    assert cerebro("verify", "first", "--home", str(tmp_path / "moved")).code == 0
    best = Run.open("first", home=tmp_path / "moved").result.best
    assert best.best_checkpoint is not None
    assert locate(best.best_checkpoint.url).path.startswith(f"{tmp_path}/moved/first/")
    joined = RunFolder(tmp_path / "joined" / "first")  # its checkpoints are where the record names them
    joined.path.mkdir(parents=True)
    shutil.copy(tmp_path / "moved" / "first" / "spec.json", joined.spec)
    assert locate(joined.read_spec().storage).path == f"{tmp_path}/moved/first"
    # What was beside the home is looked for where it was, or where it was moved to with it.
    assert moved.here(str(tmp_path / "data")) == str(tmp_path / "data")


def test_a_run_of_another_project_with_the_same_name_is_refused(
    result: RunResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(moved.VARIABLE, "[]")
    other = tmp_path / "other"
    other.mkdir()
    values = dict(result.spec.recipe)
    check_project(result.folder, load_recipe(values, root=tmp_path))
    with pytest.raises(RunError) as caught:
        check_project(result.folder, load_recipe(values, root=other))
    assert str(tmp_path) in str(caught.value)
    assert str(other) in str(caught.value)
    write_spec(result.folder, replace(result.spec, root=str(tmp_path / "moved away")))
    check_project(result.folder, load_recipe(values, root=other))
    assert moved.here(f"{tmp_path}/moved away/models.py") == f"{other}/models.py"
