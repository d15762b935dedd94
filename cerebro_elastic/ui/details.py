"""The parts of a run's page that are computed from the whole history: how nodes spent their time, what went
wrong, bytes moved, the search space. They lag behind a long run by as much as they cost."""

from __future__ import annotations

from typing import Any

from cerebro_elastic.data.manifest import Manifest
from cerebro_elastic.reporting.failures import failure_texts
from cerebro_elastic.reporting.gap import gap
from cerebro_elastic.reporting.page import parallel
from cerebro_elastic.reporting.page.page import logarithmic
from cerebro_elastic.reporting.results import nodes_of
from cerebro_elastic.reporting.timeline import Timeline, timeline
from cerebro_elastic.reporting.traffic import summarize_traffic
from cerebro_elastic.runs.folder import RunFolder
from cerebro_elastic.ui.board import Board
from cerebro_elastic.ui.view import RunView

_MOST_MARKS = 300


def publish_details(board: Board, view: RunView, folder: RunFolder, manifest: Manifest | None) -> None:
    """Write these parts of the page."""
    line = timeline(view.events)
    _publish_nodes(board, view, line)
    failed = [row for row in view.results.values() if row.status == "failed"]
    best_known = gap(view.state)
    board.put(
        "run",
        "health",
        {
            "failures": list(failure_texts(failed, view.events, folder.logs)),
            "marks": [[mark.at, mark.text, mark.node, mark.fault] for mark in line.marks[-_MOST_MARKS:]],
            "faults": sum(mark.fault for mark in line.marks),
            "earlier": max(0, len(line.marks) - _MOST_MARKS),
            "gap": best_known and [best_known.forecast, best_known.bound, best_known.share],
        },
    )
    _publish_traffic(board, view, manifest)
    _publish_space(board, view)


def _publish_nodes(board: Board, view: RunView, line: Timeline) -> None:
    """How each node has spent its time, and attempts and quarantines for the chart."""
    known = nodes_of(view.events)
    for share in line.shares:
        node = known.get(share.node)
        board.put(
            "shares",
            share.node,
            {
                "present": share.present,
                "training": share.training,
                "hops": share.hopping,
                "profiling": share.profiling,
                "lost": share.lost,
                "quarantined": share.quarantined,
                "idle": share.idle,
                "visits": share.visits,
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
    board.put("run", "quarantines", [[q.node, q.start, q.end, q.why] for q in line.quarantines])


def _publish_traffic(board: Board, view: RunView, manifest: Manifest | None) -> None:
    hosts = {name: node.host for name, node in nodes_of(view.events).items()}
    traffic = summarize_traffic(view.visits, manifest, hosts)
    board.put(
        "run",
        "traffic",
        {
            "hops": traffic.hops,
            "stays": traffic.stays,
            "hopped": traffic.hopped,
            "written": traffic.written,
            "data": traffic.data,
            "read": traffic.read,
            "dataset": traffic.dataset,
            "methods": [[cost.name, cost.formula, cost.bytes] for cost in traffic.communication],
        },
    )


def _publish_space(board: Board, view: RunView) -> None:
    """The search space in parallel coordinates, drawn as the report draws it."""
    metric = view.objective.metric
    chart = parallel.coordinates(view.ranked(), metric, logarithmic(view.spec))
    axes: dict[str, Any] | None = None
    if chart is not None:
        axes = {
            "axes": [
                [axis.name, axis.x, axis.log, [[tick.at, tick.text] for tick in axis.ticks]]
                for axis in chart.axes
            ],
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
