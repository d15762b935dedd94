"""A run's Gantt chart as a picture for slides and papers. ``page/gantt.py`` draws the same on a page."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import TYPE_CHECKING

from cerebro_elastic.errors import MissingExtra, RunError
from cerebro_elastic.reporting.page.gantt import BAR, LEFT, ROW, TOP, WIDTH, Flag, Gantt, Lane, gantt
from cerebro_elastic.reporting.timeline import Timeline

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SCALE = 100
"""Pixels of the page that make an inch of the picture."""
_DOTS = 200
"""Dots per inch of the picture."""
_FONT = 6
_SEVERAL, _FAULT, _EVENT, _GRID = "#b8b8b8", "#d62728", "#555555", "#dddddd"
_HUES = 20
_A_ROW, _LEGEND = 10, 22
"""Configs in a row of the legend, and its height."""


def picture(line: Timeline) -> bytes:
    """Draw the chart as a PNG.

    Each node has a row, and each attempt a bar in its config's colour, hatched if its work was lost. Dots
    show quarantines, and marks show faults and other events.

    Raises:
        RunError: The run has no visit yet.
        MissingExtra: matplotlib is not installed.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as exc:
        raise MissingExtra(
            "a Gantt chart as PNG needs matplotlib: pip install 'cerebro-elastic[plots]'"
        ) from exc
    chart = gantt(line)
    if chart is None:
        raise RunError("there is no Gantt chart yet: no unit is done")
    colours = _colours(chart)
    height = chart.height + _LEGEND * (-(-min(len(colours), _HUES) // _A_ROW)) + 8
    figure = Figure(figsize=(WIDTH / _SCALE, height / _SCALE), dpi=_DOTS)
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set(xlim=(0, WIDTH), ylim=(height, 0))
    axes.axis("off")
    _draw(axes, chart, colours)
    written = io.BytesIO()
    figure.savefig(written, format="png", metadata={"Software": None})
    return written.getvalue()


def _draw(axes: Axes, chart: Gantt, colours: Mapping[str, str]) -> None:
    for tick in chart.across:
        axes.plot([tick.at, tick.at], [TOP, chart.height - 22], color=_GRID, linewidth=0.5, zorder=0)
        axes.text(tick.at, chart.height - 6, tick.text, ha="center", fontsize=_FONT)
    for lane in chart.lanes:
        _draw_lane(axes, lane, colours)
    for flag in chart.flags:
        _draw_flag(axes, flag, TOP - ROW / 2)
    for place, (config, colour) in enumerate(list(colours.items())[:_HUES]):
        row, column = divmod(place, _A_ROW)
        x, y = LEFT + column * (WIDTH - LEFT) / _A_ROW, chart.height + row * _LEGEND
        axes.broken_barh([(x, 10)], (y, 10), facecolor=colour)
        axes.text(x + 14, y + 9, config[-12:], fontsize=_FONT)


def _draw_lane(axes: Axes, lane: Lane, colours: Mapping[str, str]) -> None:
    axes.text(LEFT - 8, lane.y + 12, lane.node[-16:], ha="right", fontsize=_FONT)
    for band in lane.bands:
        where = [(band.x, band.width)], (lane.y, BAR)
        axes.broken_barh(*where, facecolor="white", edgecolor=_EVENT, hatch="....", linewidth=0.3)
    for bar in lane.bars:
        place = [(bar.x, bar.width)], (lane.y, BAR)
        if bar.lost:
            axes.broken_barh(*place, facecolor="white", edgecolor=_FAULT, hatch="////", linewidth=0.3)
        else:
            axes.broken_barh(*place, facecolor=colours.get(bar.config, _SEVERAL))
    for flag in lane.flags:
        _draw_flag(axes, flag, lane.y + BAR / 2)


def _draw_flag(axes: Axes, flag: Flag, y: float) -> None:
    axes.plot(flag.x, y, marker="v", markersize=3, color=_FAULT if flag.fault else _EVENT)


def _colours(chart: Gantt) -> dict[str, str]:
    """The colour of each config, in the order of their ids. After twenty the colours repeat."""
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    configs = sorted({bar.config for lane in chart.lanes for bar in lane.bars if bar.config})
    return {config: to_hex(colormaps["tab20"](place % _HUES)) for place, config in enumerate(configs)}
