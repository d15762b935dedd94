"""Learning curves as a table that any tool reads."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

from cerebro_elastic.report.results import ConfigResult


def write_curves(rows: Sequence[ConfigResult], path: Path) -> None:
    """A CSV file with one line for each config and full epoch (from 1): hyper-parameters, then metrics.
    A metric that bears the name of a hyper-parameter comes as ``metric.<name>``."""
    hparams = sorted({name for row in rows for name in row.hparams})
    metrics = sorted({name for row in rows for epoch in row.curve for name in epoch})
    titles = [f"metric.{name}" if name in {*hparams, "config", "epoch"} else name for name in metrics]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["config", "epoch", *hparams, *titles])
        for row in sorted(rows, key=lambda row: row.config):
            for number, values in enumerate(row.curve, start=row.behind + 1):
                known = [values.get(name, "") for name in metrics]
                writer.writerow(
                    [row.config, number, *(row.hparams.get(name, "") for name in hparams), *known]
                )
