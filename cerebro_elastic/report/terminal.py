"""The terminal, or whatever a command writes to."""

from __future__ import annotations

from typing import Any

from rich.console import Console


def terminal(**options: Any) -> Console:
    """A console that shows texts as they are. What users' code says has brackets and colons, which rich would
    otherwise take for markup: it would leave ``[batch, time]`` out, and raise at ``[/data]``."""
    return Console(markup=False, emoji=False, highlight=False, **options)
