"""Learning curves as pictures, by matplotlib."""

from __future__ import annotations

import base64
import html
import io
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from cerebro_elastic.registry import install_extra
from cerebro_elastic.reporting.results import ConfigResult
from cerebro_elastic.system.words import hparams_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_IN_LEGEND = 12
"""Configs that are named beside their curves."""
_GREY = "#808080"
"""Seen on white and on black."""


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
