"""A small run, made in this process: real task, data, checkpoints, ledger and record; only its store is in
memory, and one node does all its units."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from cerebro_elastic.controller.controller import Controller
from cerebro_elastic.core.model.nodes import Node
from cerebro_elastic.core.model.run import Spec
from cerebro_elastic.data.manifest import read_manifest
from cerebro_elastic.recipes import load_recipe
from cerebro_elastic.registry import load
from cerebro_elastic.reporting.results import write_curves
from cerebro_elastic.runs.folder import RunFolder
from cerebro_elastic.runs.from_recipe import make_search, plan_of, validations
from cerebro_elastic.runs.results.report import write_report
from cerebro_elastic.runs.results.result import RunResult
from cerebro_elastic.runs.results.test_set import measure_winner
from cerebro_elastic.runs.start.prepare_run import write_spec
from cerebro_elastic.runs.start.reuse import read_reusable, take_over
from cerebro_elastic.runs.terminal_view import Watcher
from cerebro_elastic.runs.versions import on_record
from cerebro_elastic.store.ledger.journal import Journal
from cerebro_elastic.system.clock import SystemClock
from cerebro_elastic.system.logs import EventLog
from cerebro_elastic.system.source_code import code_digest
from cerebro_elastic.training.unit_runner import UnitRunner
from cerebro_elastic.worker.group_rendezvous import RankIdentity
from cerebro_elastic.worker.leaving import Leaving
from cerebro_elastic.worker.rank_attempt import perform
from cerebro_elastic.worker.rank_context import RankContext
from cerebro_elastic.worker.watchdog import Watchdog
from support.ledger import Ledger
from support.memory_store import MemoryStore
from support.prepared import prepare

MODEL = """
from torch import nn


def model(lr):
    return nn.Sequential(nn.Linear(2, 4), nn.Dropout(0.5), nn.Linear(4, 2))
"""

RECIPE = {
    "name": "recorded",
    "seed": 3,
    "epochs": 2,
    "nodes": 1,
    "task": {"kind": "torch", "model_fn": "a_recorded_model:model", "optimizer": "AdamW",
             "loss": "cross_entropy"},
    "search": {"space": {"lr": [0.1, 0.01]}},
    "objective": {"metric": "val_loss", "mode": "min"},
}  # fmt: skip


def rows() -> dict[str, np.ndarray]:
    x = np.random.default_rng(0).normal(size=(24, 2)).astype(np.float32)
    return {"x": x, "y": (x[:, 0] > 0).astype(np.int64)}


def opened(
    home: Path,
    run: str = "recorded",
    reuse: bool = False,
    say: Callable[[str], None] = lambda _text: None,
    model: str = MODEL,
    partitions: int = 2,
    valid: float = 0.2,
    test: float = 0.0,
    **changed: object,
) -> Spec:
    """The run as it is opened: it may ``reuse`` what earlier ones have made; ``changed`` are keys of the
    recipe, ``test`` is the share of its test set, on which the winner is measured."""
    imported = sys.modules.get("a_recorded_model")
    if imported is not None and imported.__file__ != str(home / "a_recorded_model.py"):
        del sys.modules["a_recorded_model"]  # of another home
    (home / "a_recorded_model.py").write_text(model)
    data = str(home / "data")
    if not (home / "data").exists():
        prepare(rows, data, partitions=partitions, seed=1, valid=valid, test=test)
    manifest = read_manifest(data)
    recipe = load_recipe({**RECIPE, **changed, "data": {"url": data, "batch_size": 3}}, root=home)
    folder = RunFolder(home / "runs" / run)
    folder.path.mkdir(parents=True)
    spec = Spec(
        plan=plan_of(recipe, run, len(manifest.train), validations(recipe, manifest)),
        recipe=recipe.resolved(),
        recipe_digest=recipe.digest,
        data=data,
        data_digest=manifest.digest,
        root=str(home),
        code={"a_recorded_model.py": code_digest(home / "a_recorded_model.py")},
        storage=str(folder.path),
        version="0",
    )
    if reuse:
        spec = take_over(spec, recipe, folder, say)
    write_spec(folder, spec)
    return spec


def record(home: Path, run: str = "recorded", **opening: Any) -> RunResult:
    """The run, to its end; it is ``opened`` so."""
    spec, folder = opened(home, run, **opening), RunFolder(home / "runs" / run)
    recipe = spec.load_recipe()
    ledger, journal = Ledger(MemoryStore(), run), Journal(folder.history)
    ledger.open_run(spec)
    since = journal.resume(ledger.read())
    leader = ledger.lead("the-leader", ledger.store.grant(99), on_record(spec), journal.head)
    assert leader is not None
    ledger.register(Node("n", "host", boot="boot"), ledger.store.grant(99))
    clock, unit_runner = SystemClock(), UnitRunner(spec, folder.cache, "cpu")
    unit_runner.use_threads()
    controller = Controller(
        *(leader, load("cerebro.schedulers", recipe.scheduler)(), make_search(recipe)),
        name="the-leader",
        since=since,
        observe=lambda events, _: journal.append(events),
        head=lambda: journal.head,
        reusable=read_reusable(spec).steps,
    )
    with (
        (folder.path / "dump").open("w+") as dump,
        controller,
        RankContext(
            ledger=ledger,
            spec=spec,
            unit_runner=unit_runner,
            clock=clock,
            log=EventLog(),
            identity=RankIdentity("n", "boot"),
            leaving=Leaving(clock),
            watchdog=Watchdog(dump, clock),
            alarm=lambda _error: None,
            quick_save_seconds=60.0,
        ) as context,
    ):
        while controller.state.outcome is None:
            while controller.step(0):
                pass
            for attempt in ledger.assignments("n"):
                perform(context, attempt)
    if opening.get("test"):
        measure_winner(ledger, folder, journal, Watcher(), {})
    result = RunResult(folder)
    write_curves(result.leaderboard, folder.curves)
    write_report(result)
    return result
