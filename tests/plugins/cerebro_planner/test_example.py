"""The example in the docstring of ``cerebro_planner`` prints what it says."""

from __future__ import annotations

import re
import textwrap

import pytest

import cerebro_planner as openshop


def test_the_example_prints_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    assert openshop.__doc__ is not None
    example = re.search(r"::\n\n(.*?)\n\n-", openshop.__doc__, re.S)
    assert example is not None
    exec(textwrap.dedent(example[1]), {})
    lines = capsys.readouterr().out.splitlines()
    assert (lines[0], lines[-1]) == ("12.0 0.0", "16.0")
    assert len(lines) == 6 + 2, "a line for each unit"
