"""Leaderboard and learning curves as tables, also as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cerebro_elastic.reporting.markup import csv_value
from cerebro_elastic.reporting.results import ConfigResult, logged_metrics
from cerebro_elastic.system.files import write_text


def records(rows: Sequence[ConfigResult]) -> list[dict[str, Any]]:
    """A row for each config and full epoch (from 1): hyper-parameters, then metrics, by name. A metric with
    the name of a hyper-parameter is called ``metric.<name>``. A metric that was not logged is ``None``."""
    hparams = sorted({name for row in rows for name in row.hparams})
    metrics = logged_metrics(rows)
    titles = {name: f"metric.{name}" if name in {*hparams, "config", "epoch"} else name for name in metrics}
    return [
        {
            "config": row.config,
            "epoch": number,
            **{name: row.hparams.get(name) for name in hparams},
            **{titles[name]: values.get(name) for name in metrics},
        }
        for row in sorted(rows, key=lambda row: row.config)
        for number, values in enumerate(row.curve, start=row.behind + 1)
    ]


def write_curves(rows: Sequence[ConfigResult], path: Path) -> None:
    """The ``records`` as a CSV file."""
    write_text(path, curves_text(rows))


def curves_text(rows: Sequence[ConfigResult]) -> str:
    """The text of that file."""
    table = records(rows)
    names = (
        list(table[0]) if table else ["config", "epoch", *sorted({n for row in rows for n in row.hparams})]
    )
    return _csv(names, table)


def leaderboard_records(rows: Sequence[ConfigResult], metric: str) -> list[dict[str, Any]]:
    """The leaderboard: a row for each config, in this order; ``best`` is the best value of ``metric``. A
    hyper-parameter with the name of another column is called ``hparam.<name>``."""
    table: list[dict[str, Any]] = [
        {
            "place": place,
            "config": row.config,
            "status": row.status.value,
            "reason": row.reason,
            "metric": metric,
            "best": row.best,
            "best_epoch": row.best_at,
            "epochs": row.epochs,
        }
        for place, row in enumerate(rows, start=1)
    ]
    own = list(table[0]) if table else []
    hparams = sorted({name for row in rows for name in row.hparams})
    titles = {name: f"hparam.{name}" if name in own else name for name in hparams}
    for line, row in zip(table, rows, strict=True):
        line |= {titles[name]: row.hparams.get(name) for name in hparams}
    return table


def leaderboard_text(rows: Sequence[ConfigResult], metric: str) -> str:
    """The leaderboard as CSV."""
    table = leaderboard_records(rows, metric)
    return _csv(list(table[0]) if table else [], table)


def _csv(names: Sequence[str], table: Sequence[Mapping[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, names)
    writer.writerow({name: csv_value(name) for name in names})
    writer.writerows({name: csv_value(value) for name, value in row.items()} for row in table)
    return text.getvalue()
