"""The console for the output of commands, and the same for notebooks."""

from __future__ import annotations

import io
from collections.abc import Collection, Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Column, Table

from cerebro_elastic.system.process import stop_printing
from cerebro_elastic.system.words import visible


def terminal(**options: Any) -> Console:
    """A console that shows texts verbatim. Messages of users' code contain brackets and colons. Rich would
    read them as markup: it would drop ``[batch, time]``, and raise at ``[/data]``. Control characters are
    shown as symbols, and characters that the file cannot encode as ``?``. If nobody reads the output, nothing
    is printed."""
    return _Console(markup=False, emoji=False, highlight=False, **options)


def plain_table(
    *columns: str | Column, right: Collection[str] = (), fixed: Collection[str] = (), **settings: Any
) -> Table:
    """A table without lines. The columns in ``right`` hold numbers; the cells of those in ``fixed`` are never
    broken into lines."""
    headers = (
        Column(column, justify="right" if column in right else "left", no_wrap=column in fixed)
        if isinstance(column, str)
        else column
        for column in columns
    )
    return Table(*headers, box=None, padding=(0, 2, 0, 0), **settings)


def html_text(renderable: RenderableType, width: int = 120) -> str:
    """The output of a console of ``width`` columns, as HTML for a notebook."""
    console = terminal(record=True, width=width, file=io.StringIO(), force_jupyter=False)
    console.print(renderable)
    return console.export_html(inline_styles=True, code_format="<pre style='line-height: 1.2'>{code}</pre>")


_BARS = str.maketrans("▁▂▃▄▅▆▇█", "12345678")
"""The bars of curves, for files that cannot encode them."""


class _Console(Console):
    @property
    def encoding(self) -> str:
        return (getattr(self.file, "encoding", None) or "utf-8").lower()

    def on_broken_pipe(self) -> None:
        stop_printing(self.file)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield (
                segment if segment.control else segment._replace(text=self._encodable(visible(segment.text)))
            )

    def _encodable(self, text: str) -> str:
        encoding = self.encoding
        plain = text if encoding.startswith("utf") else text.translate(_BARS)
        return plain.encode(encoding, "replace").decode(encoding)
