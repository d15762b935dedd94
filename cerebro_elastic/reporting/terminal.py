"""The console that commands write to."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from cerebro_elastic.words import visible


def terminal(**options: Any) -> Console:
    """A console that shows texts as they are. Messages of users' code contain brackets and colons. Rich would
    read them as markup: it would drop ``[batch, time]``, and raise at ``[/data]``. Control characters are
    shown as signs."""
    return _Console(markup=False, emoji=False, highlight=False, **options)


class _Console(Console):
    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=visible(segment.text))
