"""Configs that are trained on folds, or with several seeds: real units, results, and what is made of them."""

from __future__ import annotations

import statistics
from pathlib import Path

import numpy as np
import pytest
import torch
from recorded_run import record

from cerebro_elastic.core.model.units import Phase
from cerebro_elastic.data.reading.batches import batches
from cerebro_elastic.data.reading.partition import sample_order
from cerebro_elastic.registry import import_object
from cerebro_elastic.runs.results.export import export
from cerebro_elastic.runs.results.replay import compare_results, replay
from cerebro_elastic.runs.results.result import RunResult
from cerebro_elastic.runs.results.verify import verify
from cerebro_elastic.training.generators import rng
from cerebro_elastic.training.unit_runner import UnitRunner

FOLDS = {"folds": 3, "early_stop": False}


@pytest.fixture(scope="module")
def folded(tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    return record(
        tmp_path_factory.mktemp("folds"),
        partitions=3,
        valid=0.0,
        validation=FOLDS,
        repeats=2,
        search={"space": {"lr": [0.1]}},
    )


@pytest.mark.parametrize(("name", "repeat"), [("c0000.f1.r0", 0), ("c0000.f2.r1", 1)])
def test_a_fold_is_bit_for_bit_a_plain_fit_over_the_other_partitions(
    folded: RunResult, name: str, repeat: int
) -> None:
    row, runner = folded.configs[name], UnitRunner(folded.spec, folded.folder.cache)
    seed = folded.spec.plan.seed_of(repeat)
    rng.seed_all(seed)
    net = import_object("a_recorded_model:model", folded.recipe.root)(lr=0.1)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.1)
    job = runner.job(folded.view.state.configs[name], row.visits[0].unit, None)
    for visit in (visit for visit in row.visits if visit.unit.phase is Phase.TRAIN):
        part = runner.fetch(Phase.TRAIN, visit.unit.partition, lambda: None)
        order = sample_order(seed, visit.unit.epoch, visit.unit.partition, part.rows)
        for x, y in batches(part, order, job.loader):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(net(x), y).backward()
            optimizer.step()
    trained = folded.state(name, best=False)["model"]
    assert trained.keys() == net.state_dict().keys()
    assert all(torch.equal(trained[key], value) for key, value in net.state_dict().items())

    net.eval()
    held_out = {visit.unit.partition for visit in row.visits if visit.unit.phase is Phase.EVALUATE}
    assert held_out == {int(name[7])}
    parts = [runner.fetch(Phase.EVALUATE, j, lambda: None) for j in sorted(held_out)]
    with torch.no_grad():
        pairs = [b for part in parts for b in batches(part, np.arange(part.rows), job.loader)]
        losses = [torch.nn.functional.cross_entropy(net(x), y, reduction="sum") for x, y in pairs]
    mean = float(sum(losses)) / sum(len(y) for _, y in pairs)
    assert row.curve[-1]["val_loss"] == pytest.approx(mean, rel=1e-5)


def test_a_config_is_shown_as_the_mean_of_its_trainings(folded: RunResult) -> None:
    (row,) = folded.leaderboard
    assert [each.config for each in row.members] == [
        f"c0000.f{fold}.r{repeat}" for repeat in (0, 1) for fold in (0, 1, 2)
    ]
    assert row.best_place is not None
    values = [each.curve[row.best_place]["val_loss"] for each in row.members]
    assert row.scores == values
    assert row.best == pytest.approx(statistics.mean(values))
    assert row.std == pytest.approx(statistics.stdev(values))
    assert len(set(values)) == 6, "other seeds, and other folds, give other values"
    assert f"± {row.std:.2g} (6)" in row.best_text
    best = min(row.members, key=lambda each: each.best or 9.0)
    assert folded.training("best") == best
    assert folded.folder.report.stat().st_size


def test_verify_and_replay_hold(folded: RunResult) -> None:
    assert verify(folded) == []
    replayed = list(replay(folded, "c0000"))
    assert len(replayed) == len(folded.view.log)
    assert all(visit.same for visit in replayed)
    assert list(compare_results(folded, "c0000", replayed)) == []


def test_an_export_says_which_rows_its_model_has_not_seen(folded: RunResult, tmp_path: Path) -> None:
    exported = export(folded, tmp_path / "model")
    assert exported.row == folded.training("best")
    assert any("rows of fold" in text and "of 3" in text for text in exported.not_carried)
