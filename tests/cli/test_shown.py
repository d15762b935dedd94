"""Answers for machines."""

from __future__ import annotations

import json
import math

from cerebro_elastic.cli.output import json_text


def test_values_that_json_lacks_are_null() -> None:
    """A loss may be NaN, and goes on (`limits.not_finite`)."""
    value = {"metrics": {"loss": math.nan, "acc": 0.5}, "gaps": [math.inf, 1], "rows": ({"x": -math.inf},)}
    assert json.loads(json_text(value), parse_constant=lambda name: f"not JSON: {name}") == {
        "metrics": {"loss": None, "acc": 0.5},
        "gaps": [None, 1],
        "rows": [{"x": None}],
    }
