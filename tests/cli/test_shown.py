"""Answers for machines."""

from __future__ import annotations

import json
import math

import pytest

from cerebro_elastic.cli.options import echo_json


def test_values_that_json_lacks_are_null_and_texts_are_kept(capsys: pytest.CaptureFixture[str]) -> None:
    """A loss may be NaN, and goes on (`limits.not_finite`)."""
    name = "caf\u00e9 \u202e \udc80"
    value = {"name": name, "metrics": {"loss": math.nan}, "gaps": [math.inf, 1], "rows": ({"x": -math.inf},)}
    echo_json(value)
    assert json.loads(capsys.readouterr().out, parse_constant=lambda name: f"not JSON: {name}") == {
        "name": name,
        "metrics": {"loss": None},
        "gaps": [None, 1],
        "rows": [{"x": None}],
    }
