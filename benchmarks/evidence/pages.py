"""Puts results into the pages of docs/evidence: figures of one look, and tables between marks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from measuring import HERE

PAGES = HERE.parents[1] / "docs" / "evidence"
LOOK = {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "svg.hashsalt": "evidence"}
OURS, PEER = "#3f51b5", "#b0b5c0"
"""The colours of our bars and of peers'."""


@contextmanager
def figure(name: str, panels: int = 1, size: tuple[float, float] = (8.0, 3.0)) -> Iterator[Any]:
    """Axes to draw on, a list of them if there are several panels; kept as ``NAME.svg``."""
    import matplotlib as mpl
    from matplotlib import pyplot

    with mpl.rc_context(LOOK):
        drawn, axes = pyplot.subplots(1, panels, figsize=size, layout="constrained")
        yield axes
        drawn.savefig(PAGES / f"{name}.svg", metadata={"Date": None})
        pyplot.close(drawn)


def bars(axes: Any, values: Mapping[str, Sequence[float]], ours: Iterable[str]) -> None:
    """A bar for each name, first on top: the median, and a line from the smallest to the largest."""
    import statistics

    middles = [statistics.median(each) for each in values.values()]
    below = [middle - min(each) for middle, each in zip(middles, values.values(), strict=True)]
    above = [max(each) - middle for middle, each in zip(middles, values.values(), strict=True)]
    colours = [OURS if name in set(ours) else PEER for name in values]
    axes.barh(list(values), middles, xerr=[below, above], color=colours, error_kw={"linewidth": 1})
    axes.invert_yaxis()


def fill(page: str, mark: str, text: str) -> None:
    """Put ``text`` between ``<!-- MARK -->`` and ``<!-- / -->`` of a page. Raises ``ValueError`` if it has
    no such marks."""
    path = PAGES / page
    whole = path.read_text()
    begin, end = re.escape(f"<!-- {mark} -->"), re.escape("<!-- / -->")
    filled, times = re.subn(
        rf"({begin}\n).*?({end})",
        lambda found: f"{found[1]}\n{text}\n\n{found[2]}",
        whole,
        count=1,
        flags=re.DOTALL,
    )
    if not times:
        raise ValueError(f"{path} has no line <!-- {mark} --> with <!-- / --> behind it")
    path.write_text(filled)
