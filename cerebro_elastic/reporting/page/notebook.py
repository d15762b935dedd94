"""The learning curves of a run's result below the cell of a notebook."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from jinja2 import Template

from cerebro_elastic.reporting.page import curves
from cerebro_elastic.reporting.page.environment import page_environment
from cerebro_elastic.reporting.results import ConfigResult
from cerebro_elastic.reporting.tables import hparams_text

_COLOURS = ("#3a8fd0", "#d9730d", "#1b9e77", "#cc6699", "#998200", "#8e6bbf", "#2a9db5", "#a8655a")
"""Colours of the best configs, distinguishable on white, on black and by the colour-blind."""


def curves_html(rows: Sequence[ConfigResult], metric: str) -> str:
    """The curves of the metric, and of the same quantity in training, as HTML. Empty if no epoch is done.

    Args:
        rows: The configs, the best first.
        metric: The objective's metric.
    """
    groups = curves.groups(rows, metric)
    if not groups:
        return ""
    drawn = {line.config for panel in groups[0].panels for line in panel.lines}
    best = [row.config for row in rows if row.config in drawn]
    return _template().render(
        panels=groups[0].panels,
        curves=curves,
        colours=dict(zip(best, _COLOURS, strict=False)),
        hparams={row.config: hparams_text(row.hparams) for row in rows},
    )


@cache
def _template() -> Template:
    return page_environment({}).get_template("notebook.html.j2")
