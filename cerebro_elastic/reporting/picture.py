"""Charts as pictures, by matplotlib: a run's Gantt chart for slides and papers, and learning curves."""

from __future__ import annotations

import base64
import html
import io
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from cerebro_elastic.errors import MissingExtra, RunError
from cerebro_elastic.registry import install_extra
from cerebro_elastic.reporting.results import ConfigResult
from cerebro_elastic.reporting.timeline import Span, Timeline
from cerebro_elastic.system.words import hparams_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_WIDTH = 10.0
"""Inches."""
_ROW, _BAR, _MARGIN, _LEGEND_ROW = 0.22, 0.14, 0.3, 0.22
"""Inches: the height of a row, and of its bars; above and below the rows; of a row of the legend."""
_LEFT, _RIGHT = 0.11, 0.97
"""Where the time axis begins and ends, as shares of the width."""
_DOTS = 200
"""Dots per inch."""
_FONT = 6
_FAULT, _EVENT, _GRID = "#d62728", "#555555", "#dddddd"
_HUES = 20
_A_ROW = 10
"""Configs in a row of the legend."""
_LEAST_SHARE = 0.0003
"""The width of a bar that is too short to be seen, as a share of the time axis."""
_MOST_IN_LEGEND = 12
"""Configs that are named beside their curves."""
_GREY = "#808080"
"""Seen on white and on black."""
_UNITS = ((3600, "h"), (60, "min"), (1, "s"))


def gantt_picture(line: Timeline) -> bytes:
    """Draw the Gantt chart of a run as a PNG.

    Each node has a row, and each attempt a bar in its config's colour, hatched if its work was lost. Dots
    show quarantines, and marks show faults and other events.

    Raises:
        RunError: The run has no visit yet.
        MissingExtra: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as exc:
        raise MissingExtra(f"a Gantt chart as PNG needs matplotlib: {install_extra('plots')}") from exc
    if not line.spans:
        raise RunError("there is no Gantt chart yet: no unit is done")
    colours = _colours(line.spans)
    rows = _ROW * len(line.shares)
    legend = _LEGEND_ROW * math.ceil(min(len(colours), _HUES) / _A_ROW)
    height = rows + 2 * _MARGIN + legend
    figure = Figure(figsize=(_WIDTH, height), dpi=_DOTS)
    axes = figure.add_axes((_LEFT, (_MARGIN + legend) / height, _RIGHT - _LEFT, rows / height))
    _draw_gantt(axes, line, colours)
    for place, (config, colour) in enumerate(list(colours.items())[:_HUES]):
        row, column = divmod(place, _A_ROW)
        x, y = _LEFT + column * (1 - _LEFT) / _A_ROW, (legend - (row + 0.7) * _LEGEND_ROW) / height
        figure.text(x, y, "■", color=colour, fontsize=_FONT + 2)
        figure.text(x + 0.012, y, config[-12:], fontsize=_FONT)
    written = io.BytesIO()
    figure.savefig(written, format="png", metadata={"Software": None})
    return written.getvalue()


def _draw_gantt(axes: Axes, line: Timeline, colours: Mapping[str, str]) -> None:
    nodes = {share.node: row for row, share in enumerate(line.shares)}
    seconds, unit = next((n, name) for n, name in _UNITS if line.seconds >= 2 * n or n == 1)
    least = _LEAST_SHARE * line.seconds
    top = _BAR / _ROW

    def bar(node: str, start: float, end: float) -> tuple[list[tuple[float, float]], tuple[float, float]]:
        width = max(end - start, least) / seconds
        return [((start - line.begin) / seconds, width)], (nodes[node], top)

    for each in line.quarantines:
        place = bar(each.node, each.start, each.end)
        axes.broken_barh(*place, facecolor="white", edgecolor=_EVENT, hatch="....", linewidth=0.3)
    for span in line.spans:
        place = bar(span.node, span.start, span.end)
        if span.lost:
            axes.broken_barh(*place, facecolor="white", edgecolor=_FAULT, hatch="////", linewidth=0.3)
        else:
            axes.broken_barh(*place, facecolor=colours[span.unit.config])
    for at, mark in line.marks:
        y = nodes[mark.node] + top / 2 if mark.node in nodes else -0.5
        colour = _FAULT if mark.fault else _EVENT
        axes.plot((at - line.begin) / seconds, y, "v", markersize=3, color=colour, clip_on=False)
    axes.set(xlim=(0, line.seconds / seconds or 1), ylim=(len(nodes), 0))
    axes.set_yticks([row + top / 2 for row in nodes.values()], [node[-16:] for node in nodes])
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g} {unit}")
    axes.tick_params(length=0, labelsize=_FONT)
    axes.grid(axis="x", color=_GRID, linewidth=0.5)
    axes.set_axisbelow(True)
    axes.set_frame_on(False)


def _colours(spans: Sequence[Span]) -> dict[str, str]:
    """The colour of each config, in the order of their ids. After twenty the colours repeat."""
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    configs = sorted({span.unit.config for span in spans})
    return {config: to_hex(colormaps["tab20"](place % _HUES)) for place, config in enumerate(configs)}


def draw_curves(axes: Axes, rows: Sequence[ConfigResult], metric: str) -> None:
    """Draw the curves of the configs: ``metric`` over epochs."""
    for row in rows:
        epochs = range(row.behind + 1, row.epochs + 1)
        values = [epoch.get(metric, math.nan) for epoch in row.curve]
        axes.plot(epochs, values, marker=".", label=f"{row.config} {hparams_text(row.hparams)}")
    axes.locator_params(axis="x", integer=True)
    axes.set_xlabel("epoch")
    axes.set_ylabel(metric)
    if len(rows) <= _MOST_IN_LEGEND:
        axes.legend()


def curves_html(rows: Sequence[ConfigResult], metric: str) -> str:
    """The curves of the configs as a picture in HTML, for a notebook that is light or dark; how to get them
    if matplotlib is not installed. Empty if no epoch is done."""
    if not any(metric in epoch for row in rows for epoch in row.curve):
        return ""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return f"<p>For the curves: <code>{html.escape(install_extra('plots'))}</code></p>"
    figure = Figure(figsize=(8, 4))
    axes = figure.add_subplot()
    draw_curves(axes, rows, metric)
    axes.tick_params(colors=_GREY)
    for label in (axes.xaxis.label, axes.yaxis.label):
        label.set_color(_GREY)
    for spine in axes.spines.values():
        spine.set_color(_GREY)
    written = io.BytesIO()
    figure.savefig(written, format="png", transparent=True, bbox_inches="tight")
    url = f"data:image/png;base64,{base64.b64encode(written.getvalue()).decode()}"
    return f'<img src="{url}" alt="{html.escape(metric)} of each config over epochs">'
