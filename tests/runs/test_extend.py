"""A run that was extended is what it would have been, had it been so long from the start."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from test_faults import ranks

import cerebro_elastic
from cerebro_elastic import Run, RunCallback, RunError, RunResult
from cerebro_elastic.core.history.lineage import born
from cerebro_elastic.core.history.progress import advance
from cerebro_elastic.core.model.attempts import Visit
from cerebro_elastic.core.model.configs import Status
from cerebro_elastic.core.model.events import RunExtended
from cerebro_elastic.runs.arguments import Extend
from cerebro_elastic.runs.extension import _longer_recipe
from cerebro_elastic.runs.start.extend_and_retry import planned
from cerebro_elastic.worker.offline.visit_replayer import VisitReplayer

pytestmark = pytest.mark.cluster


class Interrupted(Exception):
    pass


class InterruptsAtFirstUnit(RunCallback):
    def on_unit_end(self, visit: Visit) -> None:
        raise Interrupted(visit.unit.config)


class KillsANode(RunCallback):
    """At the first unit and at the third, a rank is killed, in the middle of a unit or between two."""

    def __init__(self, run: str) -> None:
        self.run = run
        self.epochs: list[tuple[str, int]] = []
        self.units = self.killed = 0

    def on_unit_end(self, _visit: Visit) -> None:
        self.units += 1
        if self.units in (1, 3):
            os.kill(ranks(self.run)[-1], signal.SIGKILL)
            self.killed += 1

    def on_epoch_end(self, config: str, epoch: int, _metrics: Mapping[str, float]) -> None:
        self.epochs.append((config, epoch))


def test_it_equals_a_run_of_that_length_from_the_start(project: Path) -> None:
    name, recipe, home = "extended-run", project / "plain.yaml", project / "runs"
    before = cerebro_elastic.run(recipe, run_id=name, home=home)
    with pytest.raises(Interrupted):
        Run.open(name, home=home).extend(
            epochs=4, configs=["c0003", "c0001"], callbacks=[InterruptsAtFirstUnit()]
        )
    kills = KillsANode(name)
    result = cerebro_elastic.run(recipe, run_id=name, home=home, callbacks=[kills])  # its recipe of before
    assert kills.killed == 2
    assert {config for config, _ in kills.epochs} == {"c0001", "c0003"}
    assert {row.config: len(row.curve) for row in result.leaderboard} == {
        "c0000": 2,
        "c0001": 4,
        "c0002": 2,
        "c0003": 4,
    }
    assert all(row.status is Status.FINISHED for row in result.leaderboard)
    for row in before.leaderboard:
        assert list(result.config(row.config).curve[:2]) == list(row.curve)
    assert sum(isinstance(event, RunExtended) for event in result.events) == 1
    run = Run.open(name, home=home)
    assert run.verify() == []
    _equals_one_from_the_start(result, "c0003", project / "replayed")
    assert all(again.differences == () for again in run.replay("c0000"))

    shutil.rmtree(result.config("c0002").checkpoint.url)
    with pytest.raises(RunError, match=r"gone:\n  c0002"):
        run.extend(epochs=5)
    with pytest.raises(RunError, match="c0001 has 4 epochs behind it, and is to have 4"):
        run.extend(epochs=4, configs=["c0001"])


def _equals_one_from_the_start(result: RunResult, config: str, folder: Path) -> None:
    """Its visits, repeated in a run that had all its epochs from the start, lead to the same states."""
    spec = replace(result.spec, extensions=())
    row, head = result.config(config), None
    at = born(result.view.state.configs[config])
    with VisitReplayer(spec, result.folder.cache, "cpu") as replayer:
        for number, visit in enumerate(row.visits):
            again = replayer(at, visit, head, str(folder / str(number))).visit
            assert again.output.digest == visit.output.digest
            assert again.metrics == visit.metrics
            at, head = advance(at, visit, spec.plan), again.output
    assert head is not None
    assert head.digest == row.checkpoint.digest


WRONG = {
    "nothing": (Extend(), "say by how much"),
    "fewer": (Extend(epochs=1), "configs have 2 epochs already"),
    "an unknown config": (Extend(epochs=4, configs=["c9"]), "has no config 'c9'"),
    "more of a grid": (Extend(num=9), "every point of its space"),
    "a budget that was not there": (Extend(budget={"units": 9.0}), "no such bound"),
    "an unknown budget": (
        Extend(budget={"minutes": 9.0}),
        "epochs, hours, timeout, units",
    ),
}


@pytest.mark.parametrize("why", WRONG)
def test_an_impossible_extension_is_refused_with_a_reason(why: str, recorded: RunResult) -> None:
    wish, text = WRONG[why]
    with pytest.raises(RunError, match=text):
        planned(recorded, wish)


def test_a_deadline_moves_to_a_later_moment(recorded: RunResult) -> None:
    recipe = recorded.spec.recipe
    search = {**recipe["search"], "budget": {"deadline": "2999-01-02T00:00+00:00"}}
    spec = replace(recorded.spec, recipe={**recipe, "search": search})
    later = _longer_recipe(spec, Extend(budget={"deadline": "2999-01-02T00:00-01:00"})).search.budget.until
    assert later == datetime(2999, 1, 2, 1, tzinfo=UTC).timestamp()
    with pytest.raises(RunError, match=r"the run had 2999-01-02.*: give more"):
        _longer_recipe(spec, Extend(budget={"deadline": "2999-01-02T00:00+01:00"}))
