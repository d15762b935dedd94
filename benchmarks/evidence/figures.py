"""Draws the figures of the page "Evidence" from the results that the experiments have written.

python benchmarks/evidence/figures.py [--to docs/evidence]
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path

import matplotlib as mpl
from matplotlib import pyplot

RESULTS = Path(__file__).parent / "results"
PAGES = Path(__file__).parents[2] / "docs" / "evidence"
LOOK = {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "svg.hashsalt": "evidence"}


def partial_shuffling(to: Path) -> None:
    """Learning curves: means over seeds, and bands of a standard deviation."""
    curves = json.loads((RESULTS / "partial_shuffling.json").read_text())["curves"]
    figure, panels = pyplot.subplots(1, len(curves), figsize=(8, 3), layout="constrained")
    for axes, (data, orders) in zip(panels, curves.items(), strict=True):
        for order, seeds in orders.items():
            epochs = range(1, len(seeds[0]) + 1)
            means = [statistics.mean(values) for values in zip(*seeds, strict=True)]
            spread = [statistics.stdev(values) for values in zip(*seeds, strict=True)]
            (line,) = axes.plot(epochs, means, marker=".", label=order)
            low, high = ([m + sign * s for m, s in zip(means, spread, strict=True)] for sign in (-1, 1))
            axes.fill_between(epochs, low, high, color=line.get_color(), alpha=0.15, linewidth=0)
        axes.set_title(data)
        axes.set_xlabel("epoch")
        axes.set_xticks(list(epochs))
    panels[0].legend(frameon=False)
    figure.savefig(to / "partial_shuffling.svg", metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--to", type=Path, default=PAGES)
    asked = parser.parse_args()
    with mpl.rc_context(LOOK):
        partial_shuffling(asked.to)


if __name__ == "__main__":
    main()
