"""Which epoch and which config are best: one answer for searches, results, pages and retention."""

from __future__ import annotations

import math
from functools import reduce
from typing import Literal

from hypothesis import given
from hypothesis import strategies as st

from cerebro_elastic.core.decisions.observing import observe
from cerebro_elastic.core.history.derived import derive
from cerebro_elastic.core.history.progress import advance
from cerebro_elastic.core.history.view import ConfigHistory, RunView
from cerebro_elastic.core.model.attempts import Visit
from cerebro_elastic.core.model.configs import Config
from cerebro_elastic.core.model.events import RunOpened, StateRead
from cerebro_elastic.core.model.run import Plan, Spec
from cerebro_elastic.core.model.state import State
from cerebro_elastic.core.model.units import CheckpointRef
from cerebro_elastic.recipes import Objective
from cerebro_elastic.reporting.page.board import Board
from cerebro_elastic.reporting.page.run_page import RunPage
from cerebro_elastic.reporting.progress import best_so_far
from cerebro_elastic.reporting.results import leaderboard, results
from cerebro_elastic.search.criterion import Criterion, ranked
from support.builders import visit

Mode = Literal["min", "max"]
PLAN = Plan("run", partitions=1, epochs=9)
ODD = (math.nan, math.inf, -math.inf, None)
IDS = ("c0000", "c0001", "c9999", "c10000")


def visits_of(config: str, curve: list[float | None]) -> list[Visit]:
    """An epoch of one unit for each value; those that are ``None`` do not log it."""
    visits: list[Visit] = []
    for epoch, value in enumerate(curve):
        metrics = {} if value is None else {"val_nll": value}
        before = visits[-1].output if visits else None
        output = CheckpointRef(f"memory://{config}/{epoch}", f"{config} {epoch}", 1)
        chain = {"attempt": epoch + 1, "input": before, "output": output}
        visits.append(visit(config, epoch, metrics=metrics, **chain))
    return visits


values = st.sampled_from([*ODD, 1.0, 1.0, 2.0, 0.0, -0.0, -1.0])


def _within(value: float | None, bound: float) -> bool:
    return value is not None and math.isfinite(value) and value < bound


@given(
    st.lists(st.lists(values, min_size=1, max_size=5), min_size=1, max_size=4),
    st.sampled_from(["min", "max"]),
    st.none() | st.floats(-2, 2),
)
def test_all_places_have_the_same_best_epoch_and_the_same_best_config(
    curves: list[list[float | None]], mode: Mode, bound: float | None
) -> None:
    constraints = [] if bound is None else [{"metric": "val_nll", "below": bound}]
    section = {"metric": "val_nll", "mode": mode, "constraint": constraints}
    objective = Objective.model_validate(section)
    visits = {name: visits_of(name, curve) for name, curve in zip(IDS, curves, strict=False)}
    made = {
        name: reduce(lambda at, v: advance(at, v, PLAN), of, Config(name, {})) for name, of in visits.items()
    }
    log = [each for of in visits.values() for each in of]
    state = derive(State(plan=PLAN, configs=dict(sorted(made.items()))), log, ())
    read = StateRead(9, state, tuple(log))

    rows = leaderboard(RunView([read]), objective)
    by_id = {row.config: row for row in rows}
    order = [row.config for row in rows if row.best is not None]
    best_values = {row.config: row.best for row in rows if row.best is not None}
    assert all(math.isfinite(value) for value in best_values.values())
    if bound is not None:
        assert all(value < bound for value in best_values.values())
        by_name = zip(IDS, curves, strict=False)
        inside = [name for name, curve in by_name if any(_within(value, bound) for value in curve)]
        assert sorted(order) == sorted(inside)

    shown = best_so_far(results(state, {}, objective), objective)
    assert (list(shown), shown) == (order, best_values)

    page = RunPage(Board(), Spec(PLAN, {"objective": section}, "", "", "", "", {}, "", ""))
    for event in (RunOpened(1, PLAN), read):
        page.take(event)
    page.publish(live=False)
    assert [(row.config, row.best, row.best_epoch) for row in page.ranked()] == [
        (row.config, row.best, row.best_epoch) for row in rows if row.best is not None
    ]

    criterion = Criterion.of(objective)
    seen = observe(state, PLAN).configs
    assert [view.config for view in ranked((criterion.best(view), view) for view in seen)] == order

    for name, of in visits.items():
        best_one = by_id[name].best_checkpoint
        kept = ConfigHistory.of(Config(name, {}), of, PLAN).kept(objective)
        assert kept == {ref.url for ref in (*(each.output for each in of[-2:]), best_one) if ref is not None}
