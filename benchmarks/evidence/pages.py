"""Puts results into the pages of docs/evidence: figures of one look, and tables between marks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import measuring

DOCS = measuring.HERE.parents[1] / "docs" / "evidence"
LOOK = {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "svg.hashsalt": "evidence"}
OURS, PEER = "#3f51b5", "#b0b5c0"
"""The colours of our bars and of peers'."""


@dataclass(frozen=True)
class Pages:
    """Results, and the pages that show them."""

    results: Path
    """The folder of the experiments' files."""
    folder: Path
    """That of the pages."""

    @classmethod
    def of(cls, size: str) -> Pages:
        """The record and the documentation, or those of a reduced run."""
        return cls(measuring.RESULTS[size], DOCS if size == "full" else measuring.BUILD)

    def read(self, name: str) -> dict[str, Any]:
        """An experiment's results; none if it has not been run."""
        file = self.results / f"{name}.json"
        return measuring.read(file) if file.exists() else {}

    @contextmanager
    def figure(
        self, name: str, panels: int = 1, size: tuple[float, float] = (8.0, 3.0), rows: int = 1
    ) -> Iterator[list[Any]]:
        """Axes to draw on, as many as there are panels; kept as ``NAME.svg``."""
        import matplotlib as mpl
        from matplotlib import pyplot

        with mpl.rc_context(LOOK):
            drawn, axes = pyplot.subplots(
                rows, -(-panels // rows), figsize=size, layout="constrained", squeeze=False
            )
            yield list(axes.flat)
            drawn.savefig(self.folder / f"{name}.svg", metadata={"Date": None})
            pyplot.close(drawn)

    def fill(self, page: str, mark: str, text: str) -> None:
        """Put ``text`` between ``<!-- MARK -->`` and ``<!-- / -->`` of a page. Raises ``ValueError`` if it
        has no such marks."""
        path = self.folder / page
        whole = path.read_text()
        filled = between_marks(whole, text, re.escape(mark))
        if filled is None:
            raise ValueError(f"{path} has no line <!-- {mark} --> with <!-- / --> behind it")
        path.write_text(filled)


def between_marks(page: str, text: str, mark: str = r"\w[\w ]*") -> str | None:
    """The page with ``text`` between the marks of a name, by default of any; nothing if it has none."""
    filled, times = re.subn(
        rf"(<!-- {mark} -->\n).*?(<!-- / -->)",
        lambda found: f"{found[1]}\n{text}\n\n{found[2]}",
        page,
        flags=re.DOTALL,
    )
    return filled if times else None


def bars(axes: Any, values: Mapping[str, Sequence[float]], ours: Iterable[str]) -> None:
    """A bar for each name, first on top: the median, and a line from the smallest to the largest."""
    import statistics

    middles = [statistics.median(each) for each in values.values()]
    below = [middle - min(each) for middle, each in zip(middles, values.values(), strict=True)]
    above = [max(each) - middle for middle, each in zip(middles, values.values(), strict=True)]
    colours = [OURS if name in set(ours) else PEER for name in values]
    axes.barh(list(values), middles, xerr=[below, above], color=colours, error_kw={"linewidth": 1})
    axes.invert_yaxis()
