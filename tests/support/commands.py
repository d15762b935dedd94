"""The command as users type it, in this process: importing torch takes seconds."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Said(NamedTuple):
    """What a command left: its exit code, and what it wrote."""

    code: int
    out: str
    err: str


Cerebro = Callable[..., Said]
"""``cerebro("run", "recipe.yaml")``."""
