"""A finished run: its leaderboard, record and replay; an ordinary fit beside it; its decisions made again and
its forecast; and its model, taken out of it."""

from __future__ import annotations

import builtins
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from ordinary_fit import EPOCHS, PARTITIONS, ordinary_fit
from safetensors.torch import load_file

from cerebro_elastic import Run, RunResult
from cerebro_elastic.core.history.view import RunView
from cerebro_elastic.core.invariants import check
from cerebro_elastic.core.model.events import RunEnded
from cerebro_elastic.core.model.units import CheckpointRef
from cerebro_elastic.errors import DamagedCheckpoint, RunError, StorageError
from cerebro_elastic.hop.objects.encoder import Encoder
from cerebro_elastic.hop.optimizer_state import to_names
from cerebro_elastic.recipes import load_recipe
from cerebro_elastic.reporting.results import leaderboard
from cerebro_elastic.runs.folder import RunFolder
from cerebro_elastic.runs.forecast.simulate import simulate
from cerebro_elastic.runs.from_recipe import make_search
from cerebro_elastic.runs.results.export import export
from cerebro_elastic.runs.results.replay import replay
from cerebro_elastic.runs.results.result import load_picked
from cerebro_elastic.runs.results.verify import redecide_run, verify
from cerebro_elastic.scheduling.longest_remaining import Randomized
from cerebro_elastic.scheduling.look_ahead import Auto
from cerebro_elastic.simulation import Redecision, redecide
from cerebro_elastic.system.files import Place, locate, read, sizes
from support.same import assert_same

pytestmark = pytest.mark.cluster


def test_leaderboard_is_sorted_and_complete(finished: RunResult) -> None:
    rows = finished.leaderboard
    assert [row.status for row in rows] == ["finished"] * 4
    values = [row.best for row in rows]
    assert values == sorted(values, reverse=True, key=lambda v: v or 0.0)
    assert all(len(row.curve) == 2 and len(row.visits) == 6 for row in rows)
    assert {(row.hparams["lr"], row.hparams["width"]) for row in rows} == {
        (lr, width) for lr in (0.01, 0.003) for width in (16, 32)
    }
    assert finished.best is rows[0]
    assert {visit.node for row in rows for visit in row.visits} == {"node-0", "node-1"}


class ZMQInteractiveShell:
    """By its name rich knows a notebook."""


def test_a_notebook_shows_the_leaderboard_once(
    finished: RunResult, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(builtins, "get_ipython", ZMQInteractiveShell, raising=False)
    assert "Leaderboard by val_acc" in finished._repr_html_()
    assert capsys.readouterr().out == ""
    assert repr(finished.best).startswith(f"<ConfigResult {finished.best.config} lr=0.0")


def test_opened_again_it_is_the_same(finished: RunResult) -> None:
    again = Run.open("finished", home=finished.folder.path.parent).result
    assert again.leaderboard == finished.leaderboard
    state = again.state(again.best.config)
    assert state is not None


def test_status_after_the_end(finished: RunResult) -> None:
    run = Run(finished.folder)
    now = run.status()
    assert (run.id, now.phase, now.live, now.head) == ("finished", "ended", False, finished.head)


def test_a_run_that_has_ended_is_followed_and_waited_for(finished: RunResult) -> None:
    run = Run(finished.folder)
    assert [len(view.log) for view in run.follow()] == [len(finished.view.log)]
    assert run.wait(0).leaderboard == finished.leaderboard


def test_unknown_names_list_the_known(finished: RunResult) -> None:
    with pytest.raises(RunError, match="finished"):
        Run.open("finishd", home=finished.folder.path.parent)
    with pytest.raises(RunError, match="c0000"):
        finished.config("c00")


def test_the_invariants_hold(finished: RunResult) -> None:
    assert verify(finished) == []


def test_replay_is_bit_identical(finished: RunResult) -> None:
    done = list(replay(finished, "c0003"))
    assert len(done) == 6
    assert all(visit.same for visit in done)


@pytest.fixture
def copy(finished: RunResult, tmp_path: Path) -> Iterator[RunFolder]:
    """The run's folder, to do harm to, which is undone: all names in it are absolute."""
    shutil.copytree(finished.folder.path, tmp_path / "kept")
    yield finished.folder
    shutil.rmtree(finished.folder.path)
    shutil.copytree(tmp_path / "kept", finished.folder.path)


def test_a_line_that_is_no_event_is_named(copy: RunFolder) -> None:
    lines = copy.history.read_text().splitlines()
    copy.history.write_text("\n".join([*lines[:3], "nonsense", *lines[3:]]) + "\n")
    with pytest.raises(RunError, match=r"history\.jsonl:4"):
        RunResult(copy)


# An ordinary fit beside it.


@pytest.fixture
def as_it_was(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """An ordinary fit leaves its seed in the environment."""
    request.getfixturevalue("imports_as_found")
    for name in ("PL_GLOBAL_SEED", "PL_SEED_WORKERS"):
        monkeypatch.setenv(name, "0")


def assert_equal(result: RunResult, nodes: int) -> None:
    assert {v.node for row in result.leaderboard for v in row.visits} == {f"node-{i}" for i in range(nodes)}
    for row in result.leaderboard:
        assert [v.unit.epoch for v in row.visits] == [e for e in range(EPOCHS) for _ in range(PARTITIONS)]
        trainer, module, metrics = ordinary_fit(result, row)
        state = result.state(row.config, best=False)
        assert_same(dict(state["state_dict"]), dict(module.state_dict()), "weights")
        (optimizer,), (scheduler,) = trainer.optimizers, trainer.lr_scheduler_configs
        assert_same(state["optimizer_states"][0], to_names(optimizer, module), "optimizer")
        carried = Encoder().tree(scheduler.scheduler.state_dict())
        assert_same(state["lr_schedulers"][0], carried, "scheduler")
        assert state["global_step"] == trainer.global_step
        assert state["epoch"] == trainer.current_epoch == EPOCHS
        assert [dict(metrics_of_epoch) for metrics_of_epoch in row.curve] == metrics.seen


@pytest.mark.usefixtures("as_it_was")
def test_training_by_hops_over_two_nodes_is_one_ordinary_fit(finished: RunResult) -> None:
    assert len(finished.leaderboard) == 4
    assert_equal(finished, 2)


# In the simulator.


def test_a_controller_would_decide_the_same_again(finished: RunResult) -> None:
    search = make_search(finished.recipe)
    assert redecide(finished.events, Auto(), search).explanation is None
    assert redecide(finished.events, Randomized(), search).explanation is not None


def test_verify_makes_the_decisions_again(finished: RunResult) -> None:
    again = redecide_run(finished, 60.0)
    assert again is not None
    assert (again.explanation, again.matched) == (None, again.total)
    assert again.total > 12, "each unit was one"
    assert redecide_run(finished, 0.0) == Redecision(0, again.total)


def test_its_forecast_has_its_results(finished: RunResult) -> None:
    done = simulate(finished.recipe, like=finished).simulation
    objective = finished.recipe.objective
    assert check(done.events) == []
    again = leaderboard(RunView(done.events), objective)
    assert [(row.config, row.best) for row in again] == [(r.config, r.best) for r in finished.leaderboard]
    assert done.seconds > 0


def test_more_nodes_are_faster(finished: RunResult) -> None:
    more = load_recipe(finished.recipe.resolved(), root=finished.recipe.root, nodes=3)
    forecasts = [simulate(recipe, like=finished).simulation.seconds for recipe in (more, finished.recipe)]
    assert forecasts[0] < forecasts[1]


# Taken out of it.


@pytest.fixture(scope="module")
def model(finished: RunResult, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("export") / "best"
    # What an export that was killed has left; below nothing but this one is there.
    with subprocess.Popen(["true"]) as killed:
        killed.wait()
    (folder.parent / f".best.tmp-{killed.pid}" / "half").mkdir(parents=True)
    assert len(repr(export(finished, folder))) < 1000, "a line in a notebook"
    return folder


def test_the_weights_are_those_of_the_best_epoch(finished: RunResult, model: Path) -> None:
    state = finished.state(finished.best.config)["state_dict"]
    weights = load_file(model / "model.safetensors")
    assert set(weights) == set(state)
    assert all(torch.equal(weights[name], state[name]) for name in state)
    checkpoint = torch.load(model / "model.ckpt", weights_only=True)
    best = finished.best
    assert best.best_epoch is not None
    assert checkpoint["epoch"] == best.best_epoch
    assert checkpoint["hyper_parameters"] == dict(best.hparams)
    assert checkpoint["global_step"] == 23 * checkpoint["epoch"], "45 batches an epoch, 2 to a step"


def test_the_card_says_where_the_model_comes_from(finished: RunResult, model: Path) -> None:
    best, text = finished.best, (model / "README.md").read_text()
    for part in (
        f"# finished, {best.config}",
        f"| lr | {best.hparams['lr']} |",
        f"| val_acc | {best.best:.4g} |",
        'Net.load_from_checkpoint("model.ckpt")',
        "license: unknown",
        finished.spec.data_digest,
        "Training that continues from these files starts without:\n- the random generators",
        str(finished.lines[-1].digest),
        f"{len(best.visits)} visits on ",
    ):
        assert part in text
    record = json.loads((model / "record.json").read_text())
    assert record["hparams"] == dict(best.hparams)
    assert record["visits"][0]["output"]["digest"] == best.visits[0].output.digest
    assert len(record["visits"]) == 3 * record["epoch"]


@pytest.mark.usefixtures("s3")
def test_a_model_may_go_to_a_url(finished: RunResult, model: Path) -> None:
    url = "s3://bucket/models/best"
    export(finished, url)
    written = {path.rpartition("/")[2]: read(Place(locate(url).fs, path)) for path in sizes(locate(url))}
    assert written.keys() == {path.name for path in model.iterdir()}
    assert written["model.safetensors"] == (model / "model.safetensors").read_bytes()
    with pytest.raises(RunError, match="s3://bucket/models/best is not empty"):
        export(finished, url)
    with pytest.raises(StorageError, match="more slashes behind its protocol: s3://bucket/n"):
        export(finished, Path("s3://bucket/n"))


def test_the_report_was_written_at_the_end(finished: RunResult) -> None:
    page = finished.folder.report.read_text()
    assert finished.best.config in page
    (board,) = re.findall(r'(?s)<script type="application/json" id="board-of-report">(.*?)</script>', page)
    units = json.loads(board)[0]["spans"]
    assert len(units) == sum(len(row.visits) for row in finished.leaderboard)


def test_a_state_that_is_deleted_while_it_is_read_is_chosen_anew(finished: RunResult) -> None:
    ended = next(n for n, line in enumerate(finished.lines) if isinstance(line.event, RunEnded))
    ref = finished.best.best_checkpoint
    assert ref is not None
    gone = replace(ref, url=f"{ref.url}-gone")
    looks: list[int] = []

    def pick(result: RunResult) -> tuple[int, CheckpointRef]:
        looks.append(len(result.lines))
        return len(looks), gone if len(looks) == 1 else ref

    result, picked, state = load_picked(finished.upto(ended), pick)
    assert (looks, picked) == ([ended, len(finished.lines)], 2)
    assert len(result.lines) == len(finished.lines)
    assert state["state_dict"].keys() == finished.state(finished.best.config)["state_dict"].keys()
    with pytest.raises(DamagedCheckpoint):  # of a run that has ended nothing is deleted any more
        load_picked(finished, lambda _result: (0, gone))
