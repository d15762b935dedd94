"""A model measured row by row: in a race, and on a test set, to say how far metrics would differ with other
rows.

An interval is computed for metrics that are means over rows. A row's value is what the task measures on that
row alone. If the mean of these values is the metric over all rows, the rows are drawn anew with replacement,
again and again, and the interval holds 95 % of the means (the percentile bootstrap of B. Efron, 1979). Any
other metric, such as the area under a curve, gets none. Nothing here imports torch.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from cerebro_elastic.errors import TaskError
from cerebro_elastic.training import job_batches
from cerebro_elastic.training.metrics import not_finite
from cerebro_elastic.training.task import ModelValues, UnitJob, UnitResult

COVERED = 0.95
"""The share of the means that an interval holds."""
_DRAWS = 2000
"""How often the rows are drawn."""
_AT_ONCE = 1 << 22
"""How many rows are drawn at once: what that takes stays far below the size of a model."""
_TOLERANCE = 1e-4
"""The largest relative difference between a metric and the mean of its rows: a model computes a row alone and
in a batch with differences of rounding."""


def named_as_test(metric: str) -> str:
    """The name of a metric of validation, measured on the test set: ``test_loss`` for ``val_loss``."""
    return f"test_{metric.removeprefix('val_')}" if metric.startswith("val_") else metric


def row_by_row(job: UnitJob) -> UnitJob:
    """The job with batches of one row."""
    return replace(job, loader=replace(job.loader, valid_batch_size=1))


def measured_alone(
    measure: Callable[[Iterator[Any]], Mapping[str, float]], batches: Iterable[Any]
) -> dict[str, list[float]]:
    """What ``measure`` gives for each of the ``batches`` alone, by the metric's name; empty if it fails for
    one: some metrics have no value for a single row."""
    values: dict[str, list[float]] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            for batch in batches:
                for name, value in measure(iter([batch])).items():
                    values.setdefault(name, []).append(float(value))
        except Exception:  # whatever the user's code does with a single row
            return {}
    return values


def evaluated(job: UnitJob, metrics: Mapping[str, float], row_values: Sequence[float] = ()) -> UnitResult:
    """What an evaluation of the job's partition has found. The state stays as it is."""
    assert job.state is not None
    return UnitResult(
        state=job.state,
        samples=job.partition.rows,
        batches=job_batches.unit_batches(job),
        metrics=metrics,
        row_values=row_values,
        not_finite=not_finite(metrics),
    )


def values_for_race(
    job: UnitJob, metrics: Mapping[str, float], alone: Mapping[str, Sequence[float]]
) -> Sequence[float]:
    """The value of ``job.row_metric`` for each row, of what rows have ``alone``, in an evaluation with these
    ``metrics``; none if no race needs them. Raises ``TaskError`` if the metric is no mean over rows."""
    metric = job.row_metric
    if not metric:
        return ()
    values = alone.get(metric, ())
    if metric not in metrics or len(values) != job.partition.rows:
        raise TaskError(
            f"a race needs {metric} for each validation row: the task measures {', '.join(sorted(metrics))} "
            f"of all rows, and {', '.join(sorted(alone)) or 'nothing'} of each row alone; take a metric that "
            "is a mean over rows, such as a loss or an accuracy, or another search"
        )
    check_mean_over_rows(metric, values, metrics[metric])
    return values


def check_mean_over_rows(metric: str, values: Sequence[float], batch: float) -> None:
    """Raise ``TaskError`` unless the ``batch``'s value of the metric is the mean of its rows' ``values``."""
    mean = math.fsum(values) / len(values)
    if math.isfinite(batch) and not math.isclose(mean, batch, rel_tol=1e-3, abs_tol=1e-5):
        raise TaskError(
            f"{metric} is no mean over rows: of a batch of {len(values)} rows it is {batch:.6g}, and the "
            f"mean of its values for each row is {mean:.6g}. A race compares configs row by row: take a "
            "metric that is a mean over rows, such as accuracy, or another search"
        )


def intervals(values: ModelValues, rows: int, seed: int) -> dict[str, tuple[float, float]]:
    """The interval of each metric that is a mean over the ``rows`` of the test set, by name. Where all rows
    have one value, there is none: other draws of them say nothing."""
    means = {
        name: np.asarray(each, np.float64)
        for name, each in values.rows.items()
        if len(each) == rows > 1 and _is_mean(values.metrics.get(name), each)
    }
    if not means:
        return {}
    drawn = _drawn_means(np.stack(list(means.values()), axis=1), seed)
    ends = np.quantile(drawn, [(1 - COVERED) / 2, (1 + COVERED) / 2], axis=0)
    return {name: (float(low), float(high)) for name, low, high in zip(means, *ends, strict=True)}


def _is_mean(metric: float | None, rows: Sequence[float]) -> bool:
    if metric is None or not np.isfinite(metric) or not np.isfinite(rows).all() or np.ptp(rows) == 0:
        return False
    scale = max(abs(metric), float(np.mean(np.abs(rows))))
    return abs(metric - float(np.mean(rows))) <= _TOLERANCE * scale


def _drawn_means(table: Any, seed: int) -> Any:
    """Means of rows of ``table`` that are drawn with replacement; shape (draws, columns)."""
    generator, rows = np.random.default_rng(seed), len(table)
    step = max(1, _AT_ONCE // rows)
    return np.concatenate(
        [
            table[generator.integers(0, rows, (min(step, _DRAWS - begun), rows))].mean(axis=1)
            for begun in range(0, _DRAWS, step)
        ]
    )
