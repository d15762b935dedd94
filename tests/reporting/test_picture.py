"""Learning curves as pictures."""

from __future__ import annotations

import html
import sys
from typing import Any

import pytest

from cerebro_elastic.core.history.view import RunView
from cerebro_elastic.recipes import Objective
from cerebro_elastic.registry import install_extra
from cerebro_elastic.reporting.picture import curves_html
from cerebro_elastic.reporting.results import leaderboard


def test_the_curves_of_a_notebook(past: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = leaderboard(RunView(past.events), Objective(metric="val_acc", mode="max"))
    shown = curves_html(rows, "val_acc")
    assert shown.startswith('<img src="data:image/png;base64,')
    assert 'alt="val_acc of each config over epochs"' in shown
    assert curves_html(rows, "another") == ""
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert html.escape(install_extra("plots")) in curves_html(rows, "val_acc")
