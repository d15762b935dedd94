"""The parts of a run's page that are computed from the whole history: how nodes spent their time, what went
wrong, bytes moved, the search space. They lag behind a long run by as much as they cost."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from cerebro_elastic.data.manifest import Manifest
from cerebro_elastic.errors import CerebroError
from cerebro_elastic.reporting.failures import failure_texts
from cerebro_elastic.reporting.gap import gap
from cerebro_elastic.reporting.page import parallel
from cerebro_elastic.reporting.page.page import logarithmic
from cerebro_elastic.reporting.timeline import Timeline, timeline
from cerebro_elastic.reporting.traffic import summarize_traffic
from cerebro_elastic.runs.folder import RunFolder
from cerebro_elastic.ui.board import Board
from cerebro_elastic.ui.view import RunPage

_MOST_MARKS = 300
_LEAST = 4
"""How many configs must have ended before importances are computed."""


def publish_details(board: Board, view: RunPage, folder: RunFolder, manifest: Manifest | None) -> None:
    """Write these parts of the page."""
    line = timeline(view.events)
    _publish_nodes(board, view, line)
    best_known = gap(view.state)
    board.put(
        "run",
        "health",
        {
            "failures": list(failure_texts(view.state.configs.values(), folder.logs)),
            "marks": [asdict(mark) for mark in line.marks[-_MOST_MARKS:]],
            "faults": sum(mark.fault for mark in line.marks),
            "earlier": max(0, len(line.marks) - _MOST_MARKS),
            "gap": best_known and [best_known.forecast, best_known.bound, best_known.share],
        },
    )
    board.put("run", "traffic", asdict(summarize_traffic(view, manifest)))
    _publish_space(board, view)


def _publish_nodes(board: Board, view: RunPage, line: Timeline) -> None:
    """How each node has spent its time, and attempts and quarantines for the chart."""
    for share in line.shares:
        node = view.nodes.get(share.node)
        board.put(
            "shares",
            share.node,
            {
                **share.values(),
                "host": node.host if node else "",
                "hardware": node.hardware if node else "",
            },
        )
    board.keep("shares", {share.node for share in line.shares})
    board.put(
        "run",
        "lost",
        [
            [span.node, span.unit.config, span.start, span.end, span.why, span.lost]
            for span in line.spans
            if span.visit is None
        ],
    )
    board.put("run", "quarantines", [asdict(quarantine) for quarantine in line.quarantines])


def _publish_space(board: Board, view: RunPage) -> None:
    """The search space in parallel coordinates, drawn as the report draws it."""
    metric = view.objective.metric
    chart = parallel.coordinates(view.ranked(), metric, logarithmic(view.spec))
    axes: dict[str, Any] | None = None
    if chart is not None:
        axes = {
            "axes": [asdict(axis) for axis in chart.axes],
            "letters": chart.letters,
            "rows": chart.rows,
            "width": parallel.WIDTH,
            "height": parallel.HEIGHT,
            "top": parallel.TOP,
            "bottom": parallel.BOTTOM,
            "least": parallel.LEAST,
        }
    board.put("run", "axes", axes)
    for path in chart.paths if chart else ():
        board.put("paths", path.config, [path.points, path.tip])
    board.keep("paths", {path.config for path in chart.paths} if chart else ())


def importances(view: RunPage) -> dict[str, Any]:
    """How much each hyper-parameter matters for the objective, by optuna: the shares by name, the most
    important first; or why there are none."""
    metric = view.objective.metric
    ended = [row for row in view.results.values() if row.best is not None and row.status != "live"]
    if len(ended) < _LEAST:
        return {"problem": f"importances need {_LEAST} configs that have ended with a value of {metric}"}
    try:
        from optuna.importance import get_param_importances

        from cerebro_elastic.search.study_journal import study_of
    except ImportError:
        return {"problem": "importances need optuna: pip install 'cerebro-elastic[search]'"}
    events = list(view.events)
    try:
        recipe = view.spec.load_recipe()
        shares = get_param_importances(study_of(recipe, view.plan.run, lambda: events))
    except (CerebroError, ValueError, RuntimeError) as error:
        return {"problem": f"optuna cannot say: {error}"}
    return {"shares": [[name, share] for name, share in shares.items()], "configs": len(ended)}
