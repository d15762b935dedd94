"""Searches on real nodes: what the record says was decided is what the search says of its history."""

from __future__ import annotations

import os
import signal
import uuid
from pathlib import Path

import pytest

import cerebro_elastic
from cerebro_elastic import RunResult
from cerebro_elastic.core.events import ConfigEnded, ConfigResumed, Event, NodeLeft, UnitCommitted
from cerebro_elastic.core.state import State
from cerebro_elastic.core.values import Status
from cerebro_elastic.runs.part import make_search
from cerebro_elastic.runs.replay import replay, verify
from cerebro_elastic.runs.watcher import Watcher
from cerebro_elastic.testing.search_contract import unexplained

pytestmark = pytest.mark.cluster

NET = """
import numpy as np
from torch import nn

def load():
    x = np.random.default_rng(0).normal(size=(240, 8)).astype(np.float32)
    return {"x": x, "y": (x.sum(axis=1) > 0).astype(np.int64)}

def model(width, dropout=0.0):
    return nn.Sequential(nn.Linear(8, width), nn.ReLU(), nn.Dropout(dropout), nn.Linear(width, 2))
"""
SPACE = {"lr": {"loguniform": [1e-4, 1]}, "dropout": {"uniform": [0, 0.5]}}


def run(folder: Path, run_id: str, watcher: Watcher, **search: object) -> RunResult:
    (folder / "searched_net.py").write_text(NET)
    task = {"kind": "torch", "model_fn": "searched_net:model", "loss": "cross_entropy", "optimizer": "SGD"}
    recipe = {
        "nodes": 2,
        "task": {**task, "args": {"width": 4}},
        "data": {"source": "searched_net:load", "partitions": 3},
        "search": {"space": SPACE, **search},
    }
    loaded = cerebro_elastic.load_recipe(recipe, root=folder)
    return cerebro_elastic.run(loaded, run_id=run_id, home=folder / "runs", watcher=watcher)


class Killer:
    """Kills a node's agent, and with it its rank, after so many visits."""

    def __init__(self, run_id: str, node: str, after: int) -> None:
        self.mark = (f"--rdzv-id={run_id}\0", f"--rdzv-conf=node={node},")
        self.left = after

    def show(self, events: list[Event], _state: State) -> None:
        before = self.left
        self.left -= sum(isinstance(event, UnitCommitted) for event in events)
        if before > 0 >= self.left:
            for entry in Path("/proc").iterdir():
                if entry.name.isdigit() and self._is_meant(entry):
                    os.kill(int(entry.name), signal.SIGKILL)

    def _is_meant(self, entry: Path) -> bool:
        try:
            command = (entry / "cmdline").read_text()
        except OSError:
            return False
        return all(mark in command for mark in self.mark)


def test_asha_decides_with_a_node_lost_as_it_would_have_without_us(tmp_path: Path) -> None:
    run_id = f"asha-{uuid.uuid4().hex[:6]}"
    killer = Killer(run_id, "node-1", after=12)
    watcher = Watcher(show=killer.show)
    result = run(tmp_path, run_id, watcher, method="asha", num=16, max_epochs=9, concurrency=4)
    assert killer.left <= 0
    assert any(isinstance(event, NodeLeft) for event in result.events)
    assert len(result.leaderboard) == 16
    assert {row.status for row in result.leaderboard} == {Status.FINISHED, Status.STOPPED}
    assert {len(row.curve) for row in result.leaderboard} == {1, 3, 9}
    decided = [e for e in result.events if isinstance(e, ConfigEnded | ConfigResumed)]
    assert decided
    assert unexplained(result.events, make_search(result.recipe)) == []
    other = make_search(cerebro_elastic.load_recipe(result.recipe, seed=99))
    assert unexplained(result.events, other) != [], "another seed, other configs"
    assert verify(result) == []


def test_children_of_a_population_go_on_from_their_parents(tmp_path: Path) -> None:
    run_id = f"pbt-{uuid.uuid4().hex[:6]}"
    result = run(tmp_path, run_id, Watcher(), method="pbt", num=4, max_epochs=3, quantile_fraction=0.5)
    configs = [e.config for e in result.events if type(e).__name__ == "ConfigCreated"]
    children = {config.id: config for config in configs if config.parent is not None}
    assert children
    assert verify(result) == []
    assert unexplained(result.events, make_search(result.recipe)) == []
    youngest = max(children)
    done = list(replay(result, youngest))
    assert all(visit.same for visit in done)
    assert {visit.visit.unit.config for visit in done} > {youngest}, "its parent's visits first"
