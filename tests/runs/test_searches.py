"""Searches on real nodes: the recorded decisions are those that the search makes of the history."""

from __future__ import annotations

import os
import signal
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import cerebro_elastic
from cerebro_elastic import RunResult
from cerebro_elastic.core.model import events as ev
from cerebro_elastic.core.model.configs import Status
from cerebro_elastic.core.model.state import State
from cerebro_elastic.errors import CerebroError, RunError
from cerebro_elastic.hop import checkpoint
from cerebro_elastic.recipes import Recipe
from cerebro_elastic.runs.folder import RunFolder
from cerebro_elastic.runs.from_recipe import make_search
from cerebro_elastic.runs.results.replay import replay
from cerebro_elastic.runs.results.verify import verify
from cerebro_elastic.runs.terminal_view import Watcher
from support.chaos import recipe as storm_recipe
from support.cluster import Cluster
from support.faults import KINDS, Kind, What, Whom, random_plan
from support.lead import record_of
from support.recorded_search import unexplained
from support.storm import Storm
from support.waiting import SOON

pytestmark = pytest.mark.cluster

NET = """
import time
from pathlib import Path

import numpy as np
from torch import nn

class Pause(nn.Module):
    def forward(self, x):
        if Path(__file__).with_name("slowly").exists():
            time.sleep(0.2)
        return x

def load():
    x = np.random.default_rng(0).normal(size=(240, 8)).astype(np.float32)
    return {"x": x, "y": (x.sum(axis=1) > 0).astype(np.int64)}

def model(width, dropout=0.0):
    return nn.Sequential(
        Pause(), nn.Linear(8, width), nn.ReLU(), nn.Dropout(dropout), nn.Linear(width, 2)
    )
"""
SPACE = {"lr": {"loguniform": [1e-4, 1]}, "dropout": {"uniform": [0, 0.5]}}


def recipe(folder: Path, *, width: int = 4, nodes: int = 1, **search: object) -> Recipe:
    (folder / "searched_net.py").write_text(NET)
    task = {"kind": "torch", "model_fn": "searched_net:model", "loss": "cross_entropy", "optimizer": "SGD"}
    values = {
        "nodes": nodes,
        "task": {**task, "args": {"width": width}},
        "data": {"source": "searched_net:load", "partitions": 2},
        "search": {"space": SPACE, **search},
    }
    return cerebro_elastic.load_recipe(values, root=folder)


def run(made: Recipe, run_id: str, watcher: Watcher | None = None) -> RunResult:
    return cerebro_elastic.run(made, run_id=run_id, home=made.root / "runs", watcher=watcher)


class Killer:
    """Kills a node's agent, and with it its rank, after some visits of the node; until then units are slow,
    so that the node gets some."""

    def __init__(self, run_id: str, node: str, after: int, slowly: Path) -> None:
        self.mark = (f"--rdzv-id={run_id} ", f"--rdzv-conf=node={node},")
        self.node, self.left, self.slowly = node, after, slowly
        slowly.touch()

    def show(self, events: list[ev.Event], _state: State) -> None:
        before = self.left
        commits = [event for event in events if isinstance(event, ev.UnitCommitted)]
        self.left -= sum(commit.visit.node == self.node for commit in commits)
        if before > 0 >= self.left:
            self.slowly.unlink()
            for entry in Path("/proc").iterdir():
                if entry.name.isdigit() and self._is_meant(entry):
                    with suppress(ProcessLookupError):
                        os.kill(int(entry.name), signal.SIGKILL)

    def _is_meant(self, entry: Path) -> bool:
        try:
            command = (entry / "cmdline").read_text().replace("\0", " ")
        except OSError:
            return False
        return all(mark in command for mark in self.mark)


@pytest.fixture(scope="module")
def asha(tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    """A search in the middle of which one of its two nodes is killed."""
    run_id = f"asha-{uuid.uuid4().hex[:6]}"
    folder = tmp_path_factory.mktemp("asha")
    killer = Killer(run_id, "node-1", after=3, slowly=folder / "slowly")
    made = recipe(folder, nodes=2, method="asha", num=16, max_epochs=3)
    result = run(made, run_id, Watcher(show=killer.show))
    assert killer.left <= 0
    return result


def test_asha_decides_with_a_node_lost_as_it_would_have_without_us(asha: RunResult) -> None:
    assert any(isinstance(event, ev.NodeLeft) for event in asha.events)
    assert len(asha.leaderboard) == 16
    assert {row.status for row in asha.leaderboard} == {Status.FINISHED, Status.STOPPED}
    assert {len(row.curve) for row in asha.leaderboard} == {1, 3}
    decided = [e for e in asha.events if isinstance(e, ev.ConfigEnded | ev.ConfigResumed)]
    assert decided
    assert unexplained(asha.events, make_search(asha.recipe)) == []
    other = make_search(cerebro_elastic.load_recipe(asha.recipe, seed=99))
    assert unexplained(asha.events, other) != [], "another seed, other configs"
    assert verify(asha) == []


def test_a_search_goes_on_from_another_runs_best(asha: RunResult) -> None:
    best = asha.best
    assert best.best_epoch is not None
    assert best.best_checkpoint is not None
    behind = best.best_epoch
    start = {"run": str(asha.folder.path), "config": "best"}
    warm = recipe(asha.recipe.root, method="tpe", num=2, max_epochs=behind + 1, start=start, known=asha.run)
    result = run(warm, "warm")
    assert verify(result) == []
    assert unexplained(result.events, make_search(result.recipe)) == []
    for row in result.leaderboard:
        visits = [(v.unit.epoch, v.input) for v in row.visits]
        assert visits[0] == (behind, best.best_checkpoint)
        assert (len(visits), len(row.curve), row.behind) == (2, 1, behind)
    assert all(visit.same for visit in replay(result, result.best.config))
    checkpoint.verify(best.best_checkpoint)  # it is the other run's, and stays

    trials = result.recipe.search.known_configs
    assert {t.hparams["lr"] for t in trials} == {row.hparams["lr"] for row in asha.leaderboard}
    assert sum(trial.finished for trial in trials) == sum(
        r.status is Status.FINISHED for r in asha.leaderboard
    )
    assert not {t.hparams["lr"] for t in trials} & {row.hparams["lr"] for row in result.leaderboard}
    assert "run" not in result.spec.recipe["search"]["start"], "nothing more is needed of the other run"
    assert len(run(warm, "warm").events) == len(result.events), "the same recipe, the same run"
    with pytest.raises(RunError, match=r"search\.num: 2 -> 3") as error:
        run(cerebro_elastic.load_recipe(warm, search={"num": 3}), "warm")
    assert "search.start" not in str(error.value)


def test_an_impossible_start_is_reported_before_anything_starts(asha: RunResult) -> None:
    def error_of(**changed: Any) -> str:
        search = {"method": "random", "num": 1, "max_epochs": 20, "start": {"run": asha.run}, **changed}
        with pytest.raises(CerebroError) as error:
            run(recipe(asha.recipe.root, **search), "bad")
        assert not (asha.recipe.root / "runs" / "bad").exists()
        return str(error.value)

    assert f"there is no run 'nobodys' in {asha.folder.path.parent}" in error_of(start={"run": "nobodys"})
    assert "there is no run 'nobodys'" in error_of(known="nobodys")
    assert "has no config 'c0099'" in error_of(start={"run": asha.run, "config": "c0099"})
    assert "made with the hyper-parameters dropout, lr, the space here has lr" in error_of(
        space={"lr": [0.1]}
    )
    assert "set `epochs` to more than" in error_of(max_epochs=1)
    assert "does not take the checkpoint" in error_of(width=5)


@pytest.mark.usefixtures("imports_as_found")
def test_a_killed_leader_changes_no_later_proposal(tmp_path: Path) -> None:
    """Rungs and TPE in one search; where the kill falls, the seed says."""
    made = storm_recipe(1, 3)
    made["task"]["args"] = {"width": 8}
    made["data"] |= {"partitions": 2, "batch_size": 96}
    space = {"lr": {"loguniform": [0.001, 1]}}
    made["search"] = {"method": "asha", "sampler": "tpe", "num": 8, "space": space, "concurrency": 2}
    made["search"]["options"] = {"n_startup_trials": 2}
    kill = Kind(What.KILL, Whom.CONTROLLER)
    kills = random_plan(11, 1, nodes=1, commits=8, kinds={kill: KINDS[kill]})
    with Cluster(made, RunFolder(tmp_path / "led"), nodes=1, candidates=2) as cluster:
        storm = Storm(cluster, kills)
        assert storm.rage(SOON)
    (strike,) = storm.strikes
    for candidate in cluster.candidates:
        result = RunResult(record_of(cluster.folder, candidate))
        later = [e for e in result.events if e.revision > strike.revision]
        assert any(isinstance(e, ev.LeaderChanged) for e in later)
        assert sum(isinstance(e, ev.ConfigCreated) for e in later) > 1
        assert unexplained(result.events, make_search(result.recipe)) == []
        assert len(result.leaderboard) == 8


def test_children_of_a_population_go_on_from_their_parents(tmp_path: Path) -> None:
    result = run(recipe(tmp_path, method="pbt", num=4, max_epochs=2, quantile_fraction=0.5), "pbt")
    configs = [e.config for e in result.events if type(e).__name__ == "ConfigCreated"]
    children = {config.id: config for config in configs if config.parent is not None}
    assert children
    assert verify(result) == []
    assert unexplained(result.events, make_search(result.recipe)) == []
    youngest = max(children)
    done = list(replay(result, youngest))
    assert all(visit.same for visit in done)
    assert {visit.visit.unit.config for visit in done} > {youngest}, "its parent's visits first"
