"""Asynchronous halving keeps its rungs from one decision to the next: it decides as if it had not."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from cerebro_elastic.core.model.configs import Status
from cerebro_elastic.core.model.interfaces import ConfigView, Decision, Resume, SearchContext, Stop
from cerebro_elastic.core.model.state import Point
from cerebro_elastic.search.halving import asha
from support.builders import recipe

RUNGS, EPOCHS, FACTOR = (1, 2, 4), 5, 2
SEARCH = {"method": "asha", "num": 20, "reduction_factor": FACTOR, "concurrency": 100}
RECIPE = recipe({**SEARCH, "space": {"x": {"uniform": [0, 1]}}}, epochs=EPOCHS, objective={"metric": "loss"})
Change = tuple[int, int, float, Status, bool, bool]
CHANGES = st.lists(
    st.tuples(
        st.integers(0, 7),
        st.integers(0, EPOCHS),
        st.sampled_from([0.1, 0.2, 0.3, math.nan, math.inf]),
        st.sampled_from(Status),
        st.booleans(),
        st.booleans(),
    ),
    max_size=40,
)


@given(CHANGES)
def test_decisions_follow_from_the_configs_alone(changes: list[Change]) -> None:
    remembering, views = asha(RECIPE), list[ConfigView]()
    for which, epochs, loss, status, idle, by_hand in changes:
        place = min(which, len(views))
        before = [*views, ConfigView(f"c{place}", {})][place]
        curve = before.curve[:epochs]
        curve = [*curve, *(Point(n, n, {"loss": loss}, ends=True) for n in range(len(curve) + 1, epochs + 1))]
        view = replace(before, epochs=epochs, curve=curve, status=status, idle=idle, by_hand=by_hand)
        views = [*views[:place], view, *views[place + 1 :]]
        context = SearchContext(views, epochs=EPOCHS)
        assert remembering.judge(context) == asha(RECIPE).judge(context) == expected(views)


def expected(views: Sequence[ConfigView]) -> list[Decision]:
    judged = list(judged_at_rungs(views))
    return [decision for decision in judged if isinstance(decision, Stop)] or judged


def judged_at_rungs(views: Sequence[ConfigView]) -> Iterator[Decision]:
    """The definition: at a rung the best ``1 / FACTOR`` of those that have reached it go on."""
    for rung in reversed(RUNGS):
        reached = [
            view
            for view in views
            if view.epochs >= rung
            and view.status is not Status.FAILED
            and not (view.by_hand and view.status is Status.STOPPED)
        ]
        finite = [view for view in reached if math.isfinite(loss_at(view, rung))]
        best = sorted(finite, key=lambda view: loss_at(view, rung))[: len(reached) // FACTOR]
        names = {view.config for view in best}
        where = "1 epoch" if rung == 1 else f"{rung} epochs"
        for view in views:
            if view.epochs == rung and view.idle and not view.by_hand:
                if view.config in names and view.status is Status.STOPPED:
                    yield Resume(view.config, f"among the best at {where}")
                elif view.config not in names and view.status is Status.LIVE:
                    loss = loss_at(view, rung)
                    text = f"loss {loss:.4g}" if math.isfinite(loss) else "loss not finite"
                    yield Stop(view.config, f"rests with {text} after {where}")


def loss_at(view: ConfigView, rung: int) -> float:
    return view.curve[rung - 1].metrics["loss"]
