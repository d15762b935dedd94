"""Escapes foreign text for Markdown, YAML and CSV, so that it stays text."""

from __future__ import annotations

import html
import math
import re
from typing import Any

import yaml

from cerebro_elastic.system.words import one_line

_FORMULA = tuple("=+-@\t\r\n\uff1d\uff0b\uff0d\uff20")
"""The characters with which formulas begin; the last four are full-width."""


def markdown(value: Any) -> str:
    """Text in a line or a cell of a table: no HTML, no link, no image, no end of the cell."""
    text = re.sub(r"([\\`\[\]|*~])", r"\\\1", one_line(str(value)))
    return html.escape(text, quote=False)


def code(value: Any) -> str:
    """The same as a span of code."""
    text = one_line(str(value)).replace("|", "\\|")
    ticks = "`" * (_longest(text) + 1)
    gap = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{ticks}{gap}{text}{gap}{ticks}"


def fence(text: str) -> str:
    """The fence of a block of code with this text."""
    return "`" * max(3, _longest(text) + 1)


def yaml_value(value: str) -> str:
    """A text as a value on one line."""
    text: str = yaml.safe_dump([one_line(value)], default_flow_style=True, allow_unicode=True, width=math.inf)
    return text.strip()[1:-1]


def csv_value(value: Any) -> Any:
    """The value for a spreadsheet: a text that looks like a formula gets a quote in front."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def _longest(text: str) -> int:
    """The length of the longest row of backticks."""
    return max((len(ticks) for ticks in re.findall("`+", text)), default=0)
