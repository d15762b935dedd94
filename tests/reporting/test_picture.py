"""Charts as pictures."""

from __future__ import annotations

import html
import io
import re
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cerebro_elastic.core.history.view import RunView
from cerebro_elastic.errors import MissingExtra, RunError
from cerebro_elastic.recipes import Objective
from cerebro_elastic.registry import install_extra
from cerebro_elastic.reporting.picture import curves_html, gantt_picture
from cerebro_elastic.reporting.results import leaderboard
from cerebro_elastic.reporting.timeline import timeline


def pixels(png: bytes) -> Any:
    """[height, width, 3], in 0 to 255; two of them a pixel of the page."""
    image = pytest.importorskip("matplotlib.image").imread(io.BytesIO(png), format="png")
    return np.round(image[..., :3] * 255).astype(int)


def test_a_row_for_each_node_and_a_colour_for_each_config(past: Any) -> None:
    seen = pixels(gantt_picture(timeline(RunView(past.events))))
    assert seen.shape[1] == 2000
    row = seen[74, 220:]  # within the bars of the first row, from where the axis begins
    colours = {tuple(pixel) for pixel in row[10::20].tolist()}
    blue, light_blue, orange = (31, 119, 180), (174, 199, 232), (255, 127, 14)
    assert {blue, light_blue, orange} <= colours, "of c0000, c0001 and c0002, on node-0"
    assert tuple(row[20].tolist()) == blue, "c0000 began"


@pytest.mark.parametrize("seconds", [10.0, 100.0, 120.0, 7200.0 * 50])
def test_no_label_is_cut(past: Any, seconds: float) -> None:
    """The last mark of the axis lies at its very end, and the legend is as wide as it can be."""
    line = timeline(RunView(past.events))
    names = [f"config-{'w' * 5}{i:02}" for i in range(20)]
    spans = [
        replace(line.spans[0], end=line.begin + seconds, unit=replace(line.spans[0].unit, config=name))
        for name in names
    ]
    seen = pixels(gantt_picture(replace(line, end=line.begin + seconds, spans=spans)))
    border = np.concatenate([seen[:, :4].ravel(), seen[:, -4:].ravel(), seen[-4:].ravel()])
    assert set(border.tolist()) == {255}


def test_a_quarantine_is_drawn(past: Any) -> None:
    line = timeline(RunView(past.events))
    assert line.quarantines
    assert gantt_picture(line) != gantt_picture(replace(line, quarantines=()))


def test_the_same_history_makes_the_same_gantt_picture(past: Any) -> None:
    assert gantt_picture(timeline(RunView(past.events))) == gantt_picture(timeline(RunView(past.events)))


def test_before_the_first_unit_there_is_none(past: Any) -> None:
    with pytest.raises(RunError, match="no unit is done"):
        gantt_picture(timeline(RunView(past.events[:3])))


def test_without_the_extra_it_says_what_to_install(past: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtra, match=re.escape(install_extra("plots"))):
        gantt_picture(timeline(RunView(past.events)))


def test_the_curves_of_a_notebook(past: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = leaderboard(RunView(past.events), Objective(metric="val_acc", mode="max"))
    shown = curves_html(rows, "val_acc")
    assert shown.startswith('<img src="data:image/png;base64,')
    assert 'alt="val_acc of each config over epochs"' in shown
    assert curves_html(rows, "another") == ""
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert html.escape(install_extra("plots")) in curves_html(rows, "val_acc")
