"""The terminal, or whatever a command writes to."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from cerebro_elastic.words import visible


def terminal(**options: Any) -> Console:
    """A console that shows texts as they are. What users' code says has brackets and colons, which rich would
    otherwise take for markup: it would leave ``[batch, time]`` out, and raise at ``[/data]``. What a terminal
    would obey is shown as a sign."""
    return _Console(markup=False, emoji=False, highlight=False, **options)


class _Console(Console):
    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=visible(segment.text))
